"""Compiled programs are forgotten when they take too much room, and not before."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from crossreg.machine.memory_maps import release_programs, share_of_maps


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_programs_are_forgotten_where_they_take_more_than_a_share():
    double: Any = jax.jit(lambda x: 2 * x)  # how many programs it has is not public
    double(jnp.arange(3))
    assert 0 < share_of_maps() < 1
    release_programs(share=1.0)
    assert double._cache_size() == 1
    release_programs(share=0.0)
    assert double._cache_size() == 0
    assert double(jnp.arange(3)).tolist() == [0, 2, 4]
