"""What is left of a function when its constants are computed."""

import jax
import jax.numpy as jnp
import numpy as np

from crossreg.export.folding import folded

LIKE = jax.ShapeDtypeStruct((3, 4), jnp.float32)


def primitives(function) -> list[str]:
    return [equation.primitive.name for equation in jax.make_jaxpr(function)(LIKE).eqns]


def test_noise_and_calls_are_folded_away():
    @jax.jit
    def noisy(x):
        return x * jax.random.normal(jax.random.key(7), (3, 4)) + jax.nn.softplus(jnp.arange(4.0))

    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    rest = folded(noisy, LIKE)
    assert primitives(rest) == ["mul", "add"]
    np.testing.assert_allclose(rest(x), noisy(x), rtol=1e-6)


def test_structures_and_results_that_no_argument_reaches_are_kept():
    def function(x):
        return {"b": x, "a": (jnp.cos(1.0), jax.nn.relu(x).sum())}

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    found, wanted = folded(function, LIKE)(x), function(x)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_loop_stays_a_loop():
    def function(x):
        return jax.lax.fori_loop(0, 5, lambda _, h: h * jnp.exp(jnp.float32(0.1)), x)

    assert "scan" in primitives(folded(function, LIKE))
    np.testing.assert_allclose(folded(function, LIKE)(jnp.ones((3, 4))), np.exp(0.5) * np.ones((3, 4)), rtol=1e-6)
