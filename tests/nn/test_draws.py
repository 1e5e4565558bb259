"""The cheap generator against JAX's, and its numbers against the normal distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy import stats

from crossreg.nn.kernels.draws import fold_in, normal, threefry


def test_with_all_rounds_it_is_the_generator_of_jax():
    key = jnp.asarray([0x13198A2E, 0x03707344], jnp.uint32)
    counters = jnp.arange(14, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    ours = threefry((key[0], key[1]), (counters[:7], counters[7:]), rounds=20)
    np.testing.assert_array_equal(jnp.concatenate(ours), threefry_2x32((key[0], key[1]), counters))


def test_numbers_are_normal_and_independent():
    keys = jax.random.split(jax.random.key(3), 30_000)
    sites = [jax.vmap(lambda key, n=n: normal(fold_in(key, n), 7))(keys) for n in (1, 2)]
    drawn = np.stack(sites)  # site, key, channel
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-3
    assert stats.kstest(drawn[0, :, 3], "norm").pvalue > 1e-3
    # Moments to four of their standard errors, √(Var z^k / n): far tails are there.
    n = drawn.size
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert np.mean(drawn.astype(float) ** power) == pytest.approx(moment, abs=4 * (variance / n) ** 0.5)
    # Neither channels, nor sites, nor keys know of each other, nor do their sizes.
    columns = np.concatenate([drawn[0].T, drawn[1].T, np.roll(drawn[0], 1, axis=0).T])
    for values in (columns, columns**2):
        correlation = np.corrcoef(values) - np.eye(len(columns))
        assert np.abs(correlation).max() < 5 / np.sqrt(30_000)


def test_a_key_is_one_stream():
    key = jax.random.key(5)
    np.testing.assert_array_equal(normal(key, 9), normal(key, 9))
    # Fewer numbers are the first of more.
    np.testing.assert_allclose(normal(key, 4), normal(key, 9)[:4], rtol=1e-6)
    folded = [jax.random.key_data(fold_in(key, n)).tolist() for n in range(100)]
    assert len({tuple(words) for words in folded}) == 100
    many = jax.vmap(lambda n: jax.random.key_data(fold_in(key, n)))(jnp.arange(100))
    np.testing.assert_array_equal(many, folded)


@pytest.mark.parametrize("kind", ["rbg", "raw"])
def test_other_keys_are_left_to_jax(kind):
    key = jax.random.PRNGKey(2) if kind == "raw" else jax.random.key(2, impl="rbg")
    np.testing.assert_array_equal(normal(key, 5), jax.random.normal(key, (5,)))
    assert fold_in(key, 3).dtype == key.dtype
