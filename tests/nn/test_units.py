r"""A surrogate in units is the same one in standardised fields: $u = s z + o$ in, $s\mu + o$ and $s\sigma$ out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.nn.fno import fno
from crossreg.nn.heads import Moments
from crossreg.nn.noise import gaussian_noise
from crossreg.nn.surrogate import predict
from crossreg.nn.units import Units

UNITS = Units((30.0, -2.0), (5.0, 0.25))
KEY = jax.random.key(4)


def _in_units(field):
    """A batch of standardised fields, or of means, in their units."""
    return field * UNITS.scales(field.ndim - 2) + UNITS.offsets(field.ndim - 2)


@pytest.mark.parametrize("increment", [False, True])
@pytest.mark.parametrize("mask_channel", [False, True])
def test_predictions_are_those_of_the_standardised_fields(increment, mask_channel):
    plain = fno(
        1,
        2 + mask_channel,
        2,
        width=4,
        num_blocks=1,
        num_modes=3,
        feature_noise=lambda name, shape: gaussian_noise(name, shape, owner="generalization", start=-1.0),
        generalization_head=True,
        predict_increment=increment,
        key=KEY,
    )
    model = dataclasses.replace(plain, units=UNITS)
    z = jax.random.normal(KEY, (3, 2, 12))
    seen = [jnp.ones((3, 1, 12)).at[:, :, 4].set(0)] * mask_channel
    wanted = predict(plain, jnp.concatenate([z, *seen], axis=1), key=KEY, num_samples=3)
    found = predict(model, jnp.concatenate([_in_units(z), *seen], axis=1), key=KEY, num_samples=3)
    scale = UNITS.scales(1)
    np.testing.assert_allclose(found.mean, _in_units(wanted.mean), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.quantile(0.9), _in_units(wanted.quantile(0.9)), rtol=1e-4, atol=1e-4)
    for name in ("std", "std_predictive", "std_generalization"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name) * scale, rtol=1e-4, atol=1e-4)


def test_there_and_back_is_the_identity():
    x = jax.random.normal(KEY, (3, 7)) * 4
    back = UNITS.from_network(Moments(UNITS.to_network(x)[:2], jnp.zeros((2, 7)), None))
    np.testing.assert_allclose(back.mean, x[:2], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(UNITS.to_network(x)[2:], x[2:])  # a mask stays as it is
    np.testing.assert_allclose(jnp.exp(back.log_sigma_pred), np.broadcast_to(UNITS.scales(1), (2, 7)), rtol=1e-6)
    assert back.log_sigma_gen is None


def test_every_channel_has_its_own_offset_and_scale():
    """By numbers: 40 is two scales of 5 above 30, and −1.5 two of 0.25 above −2."""
    x = jnp.asarray([[40.0, 30.0, 25.0], [-1.5, -2.25, -2.0], [1.0, 0.0, 1.0]])
    z = UNITS.to_network(x)
    np.testing.assert_allclose(z, [[2.0, 0.0, -1.0], [2.0, -1.0, 0.0], [1.0, 0.0, 1.0]], atol=1e-6)
    log_sigma = jnp.log(jnp.asarray([[0.5, 1.0, 2.0], [4.0, 0.25, 1.0]]))
    found = UNITS.from_network(Moments(z[:2], log_sigma, log_sigma[:, ::-1]))
    np.testing.assert_allclose(found.mean, x[:2], atol=1e-5)
    np.testing.assert_allclose(jnp.exp(found.log_sigma_pred), [[2.5, 5.0, 10.0], [1.0, 0.0625, 0.25]], rtol=1e-5)
    assert found.log_sigma_gen is not None
    np.testing.assert_allclose(jnp.exp(found.log_sigma_gen), [[10.0, 5.0, 2.5], [0.25, 0.0625, 1.0]], rtol=1e-5)
