"""Forecasts of functions and of pooled models: which component a particle follows, and what noise of ψ is."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.forecasts import loop as module
from crossreg.forecasts.forecast import Limits, components
from crossreg.forecasts.particles import members_of
from crossreg.forecasts.rollout import rollout
from crossreg.nn.surrogate import predict
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.ensemble import EnsemblePredictor, member_keys, pooled
from crossreg.predictors.predictor import SurrogatePredictor
from forecasts.test_rollout import KEY, as_batch, close
from linear_fields import POINTS, fields, linear_model

RHO, PSI = linear_model(), linear_model(0.3, owner="predictive")
BOTH = dataclasses.replace(RHO, stages=(*RHO.stages, *PSI.stages))
WIDE = Limits(np.full(1, -99.0), np.full(1, 99.0))


@pytest.mark.parametrize("model", [PSI, BOTH])
def test_a_function_with_noise_of_psi_is_forecast_like_its_model(model):
    """The instances go their own way, without the noise of ψ."""

    def function(batch, keys):
        return predict(model, batch.x, key=keys, num_samples=4)

    expected, found = (rollout(of, fields(2), 3, 4, key=KEY, limits=WIDE) for of in (model, function))
    close(found.particles, expected.particles)
    close(found.std_generalization, expected.std_generalization)
    close(found.std_predictive, expected.std_predictive)
    assert model is PSI or float(found.std_generalization.min()) > 0.0


@pytest.mark.parametrize("models", [(PSI, RHO), (RHO, PSI), (BOTH, RHO), (PSI, PSI)])
def test_members_without_predictive_noise_are_their_own_instances(models):
    """The spread of means over model instances, in a prediction and in a forecast of one step."""
    x0, keys = fields(2), jax.random.split(KEY, 2)
    ensemble = EnsemblePredictor(models, 8)
    found, instances = ensemble(as_batch(x0), keys), []
    for number, member in enumerate(ensemble.members):
        mixture = components(member(as_batch(x0), member_keys(number, keys)))
        own = mixture.means if mixture.instance_means is None else mixture.instance_means
        instances.append(np.broadcast_to(own, mixture.means.shape))
    expected = np.minimum(np.concatenate(instances).var(0), np.asarray(found.means).var(0))
    close(found.std_generalization**2, expected, 1e-5)
    forecast = rollout(ensemble, x0, 3, 8, key=keys, limits=WIDE)
    close(forecast.std_generalization[0], found.std_generalization, 1e-5)
    close(forecast.std_predictive[0], found.std_predictive, 1e-5)


def test_pooled_instances_keep_the_share_of_their_mixture():
    """One instance of four components weighs as much as four instances of four."""
    shape = (4, 1, 1, 1)
    means = jnp.arange(4.0).reshape(shape)
    one = Mixture(means, jnp.ones(shape), jnp.ones(shape), jnp.full((1, 1, 1, 1), 1.5))
    other = Mixture(means + 9, jnp.ones(shape), jnp.ones(shape))
    found = components(pooled([one, other])).instance_means
    assert found is not None
    np.testing.assert_array_equal(np.ravel(found), [1.5, 1.5, 1.5, 1.5, 9, 10, 11, 12])
    assert components(pooled([other, other])).instance_means is None


def test_fewer_particles_follow_components_of_all_members():
    """A function whose components are ordered by member, one of which triples the field."""
    model = linear_model(1e-3)
    triple = eqx.tree_at(lambda m: m.heads.mean.weight, model, 3 * model.heads.mean.weight)
    ensemble = EnsemblePredictor([model, triple], 10)

    def function(batch, keys):
        return ensemble(batch, keys)

    x0 = np.ones((1, 1, POINTS), np.float32)
    particles = np.asarray(rollout(function, x0, 2, 4, limits=WIDE).particles)[:, :, 0, 0].mean(-1)
    close(particles, np.asarray([[1, 1], [1, 1], [3, 9], [3, 9]]), 2e-2)
    assert rollout(function, x0, 1, 60, limits=WIDE).particles.shape[0] == 10  # as many as there are components
    assert rollout(ensemble, x0, 1, 5, limits=WIDE).particles.shape[0] == 6  # rounded up to a multiple of the members


@pytest.mark.parametrize("components_of_each", [5, 20])
def test_particles_that_are_stepped_together_are_fewer_by_the_number_of_components(components_of_each, monkeypatch):
    """A step of each computes all components of a mixture."""

    def function(batch, keys):
        return predict(RHO, batch.x, key=keys, num_samples=components_of_each)

    found, real = [], module._roll
    monkeypatch.setattr(module, "_roll", lambda member, *args: found.append(member.keys.shape) or real(member, *args))
    monkeypatch.setattr(module, "_VALUES_PER_CALL", {"cpu": 40 * POINTS, "accelerator": 40 * POINTS})
    forecast = rollout(function, fields(8), 2, 5, key=KEY, limits=WIDE)
    assert max(particles * batch * components_of_each for particles, batch in found) <= 40
    monkeypatch.undo()
    close(forecast.particles, rollout(function, fields(8), 2, 5, key=KEY, limits=WIDE).particles)


def test_the_particles_of_a_network_are_one_each():
    [member], _ = members_of(SurrogatePredictor(RHO, 3), 7, jax.random.split(KEY, 2), as_batch(fields(2)))
    assert member.width == 1
