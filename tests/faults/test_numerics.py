"""Of what numbers depend on besides settings and data."""

import os
import subprocess
import sys

import pytest

from long_tests import long

SUMS = """
import hashlib, os, sys
os.sched_setaffinity(0, [0] if sys.argv[1] == "one" else os.sched_getaffinity(0))
import jax, jax.numpy as jnp, numpy as np
x = jnp.asarray(np.random.default_rng(0).normal(size=(100_000, 17)), jnp.float32)
parts = jax.jit(lambda x: (x.T @ x, x.sum(axis=0), jnp.tanh(x).sum()))(x)
print(hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in parts)).hexdigest())
"""


@long
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one core")
def test_nproc_makes_long_sums_the_same_on_any_number_of_cores():
    """Without it they differ, which is why the number of cores goes with every snapshot."""

    def sums(cores: str, **more: str) -> str:
        environment = {k: v for k, v in os.environ.items() if k not in ("JAX_COMPILATION_CACHE_DIR", "NPROC")} | more
        command = [sys.executable, "-c", SUMS, cores]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout

    assert sums("one", NPROC="2") == sums("all", NPROC="2")
    assert sums("one", NPROC="1") == sums("all", NPROC="1")
