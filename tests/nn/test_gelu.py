"""GELU between noise factors, for fields too large for a cache, is the same map as the readable one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.nn.kernels import pending as waiting
from crossreg.nn.kernels.gelu import gelu_and_slope
from crossreg.nn.kernels.pending import Pending


def test_gelu_and_its_slope():
    x = jnp.concatenate([jnp.linspace(-30, 30, 2001), jnp.asarray([-1e4, 1e4])])
    value, slope = gelu_and_slope(x)
    np.testing.assert_allclose(value, jax.nn.gelu(x), atol=1e-6)
    np.testing.assert_allclose(slope, jax.vmap(jax.grad(jax.nn.gelu))(x), atol=1e-5)


@pytest.mark.parametrize(("present", "gelu"), [((1, 1), True), ((0, 1), True), ((1, 0), True), ((1, 0), False)])
def test_values_and_gradients_are_those_of_the_readable_path(present, gelu, monkeypatch):
    monkeypatch.setattr(waiting, "_LARGE", 1)
    keys = jax.random.split(jax.random.key(0), 4)
    field, back = (jax.random.normal(key, (2, 3, 5, 7, 4)) for key in keys[:2])  # replica, channel, sample, *space
    factors = tuple(1 + 0.3 * jax.random.normal(key, (2, 3, 5)) for key in keys[2:])

    def run(path):
        def one(field, factors):
            first, second = (f if here else None for f, here in zip(factors, present, strict=True))
            return Pending(field, first, gelu, second).done(path)

        value, pull = jax.vjp(jax.vmap(one), field, factors)
        return value, pull(back)

    for found, expected in zip(jax.tree.leaves(run("reverse")), jax.tree.leaves(run("plain")), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
