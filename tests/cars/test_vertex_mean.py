"""The vertex mean against its closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.cars.pairs import CarPairs
from crossreg.cars.vertex_mean import fit_vertex_mean
from crossreg.errors import InputError


def pairs(pressure: np.ndarray, num_vertices: list[int]) -> CarPairs:
    cars, vertices = pressure.shape
    return CarPairs(
        channels=jnp.zeros((cars, 9, 4, 4)),
        decode=jnp.zeros((cars, vertices), jnp.int32),
        pressure=jnp.asarray(pressure, jnp.float32)[:, None],
        num_vertices=jnp.asarray(num_vertices, jnp.int32),
        rows=jnp.arange(cars - 2, dtype=jnp.int32),
        num_rows=jnp.asarray(cars - 2, jnp.int32),
    )


def test_mean_and_variance_over_the_train_cars():
    pressure = np.random.default_rng(0).normal(2.0, np.linspace(0.1, 3, 7), (6, 7))
    train = pressure[:4]
    split = pairs(pressure, [7] * 6)
    mixture = fit_vertex_mean(split)(split.gather(jnp.asarray([0, 3, 1])), jax.random.split(jax.random.key(0), 3))
    assert mixture.means.shape == (1, 3, 1, 7)
    np.testing.assert_allclose(mixture.mean[1, 0], train.mean(0), rtol=1e-5)
    spread = train.var(0, ddof=1)
    expected = 1.25 * (3 * spread + 2 * spread.mean()) / 5
    np.testing.assert_allclose(mixture.variance[2, 0], expected, rtol=1e-5)


def test_its_error_bars_cover_new_cars():
    rng = np.random.default_rng(1)
    sigma = rng.uniform(0.5, 2, 4000)
    cars = rng.normal(0, sigma, (9, 4000))
    fitted = fit_vertex_mean(pairs(cars, [4000] * 9))
    z = cars[8] / np.sqrt(fitted.var[0]) - np.asarray(fitted.mean[0]) / np.sqrt(fitted.var[0])
    assert abs(np.mean(z**2) - 1) < 0.15


def test_cars_that_do_not_correspond_have_none():
    with pytest.raises(InputError, match="different vertex counts"):
        fit_vertex_mean(pairs(np.ones((5, 8)), [8, 8, 6, 8, 8]))
