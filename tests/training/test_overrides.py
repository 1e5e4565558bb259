"""An optimiser for θ and ψ, and an objective for ρ, that a caller passes in place of settings."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from crossreg.data.keys import TRAIN_STREAM
from crossreg.data.load import make_data
from crossreg.data.units import Units
from crossreg.nn.surrogate import predict
from crossreg.objectives import batch_mean, train_objective
from crossreg.predictive.mixture import Mixture
from crossreg.routing import Routed, merge, route
from crossreg.training.checkpoint import named_arrays
from crossreg.training.cohort import start_cohort
from crossreg.training.loop import train_replicas
from crossreg.training.replicas import unstack

UNITS = Units((0.3, -1.0), (2.0, 0.5))


@pytest.fixture(scope="module")
def config(tiny):
    return tiny.replace(num_blocks=1, steps=7, evaluate_every=4, k_reg=3, settle=0.3, score_on="observed")


@pytest.fixture(scope="module")
def in_units(trajectories, config):
    made = make_data(trajectories, config.data)
    return dataclasses.replace(
        made, **{n: dataclasses.replace(getattr(made, n), units=UNITS) for n in ("train", "reg")}
    )


@pytest.fixture(scope="module")
def started(config, in_units):
    """Two replicas of one block, on fields in units, scored where they were observed."""
    return start_cohort([config.replace(seed=seed) for seed in (4, 5)], [in_units] * 2)


def last(started, steps=7, **overrides):
    models, tasks, config = started
    return list(train_replicas(models, tasks, dataclasses.replace(config, steps=steps), **overrides))[-1]


def assert_same(a, b) -> None:
    found, expected = named_arrays(eqx.filter(a, eqx.is_array)), named_arrays(eqx.filter(b, eqx.is_array))
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.fixture(scope="module")
def default(started):
    return last(started)


def test_an_objective_of_ones_own_is_the_named_one_bit_for_bit(started):
    seen = []

    def mine(mixture, y, weight):
        """The scaled CRPS, written out; the samples of an objective that the package does not know are independent."""
        assert not mixture.paired
        seen.append((type(mixture), y.shape, weight.shape))
        within = mixture.distance_within(distinct=True)
        return batch_mean(mixture.distance_to(y) / within + 0.5 * jnp.log(within), weight)

    models, tasks, config = started
    started = models, tasks, dataclasses.replace(config, antithetic=False)
    found, default = last(started, reg_objective=mine), last(started)
    assert_same(found.snapshot, default.snapshot)
    assert set(seen) == {(Mixture, (3, 2, 20), (3, 1, 20))}  # components and truth of the standardised fields
    losses = [report.record.reg_loss for report in (found, default) if report.record is not None]
    np.testing.assert_array_equal(losses[0], losses[1])


def test_an_objective_of_ones_own_reaches_rho_alone(started, default):
    """With a loss of no gradient ρ stays where it started; θ and ψ take their first step as they always do."""
    found = last(started, reg_objective=lambda mixture, y, weight: jnp.sum(0 * mixture.means))
    start = route(started[0])
    assert_same(found.snapshot.state.rho.tree(), start.rho)
    first = (last(started, steps=1, **given) for given in ({}, {"reg_objective": lambda *_: jnp.zeros(())}))
    assert_same(*(report.snapshot.state.theta_psi for report in first))
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), default.snapshot.state.rho.tree(), start.rho)
    assert jax.tree.all(moved)


def test_one_step_of_sgd_is_that_of_the_formula(started, in_units):
    """θ ← θ − η ∇L_train, with no rate per parameter, no schedule and no clipping, for each replica."""
    models, _, config = started
    found = last(started, steps=1, optimizer=optax.sgd(0.25))
    for replica, seed in enumerate((4, 5)):
        parts = route(unstack(models, replica))
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), TRAIN_STREAM), 1)
        batch_key, noise_key = jax.random.split(key)
        batch = in_units.train.sample(batch_key, config.batch_size)

        def loss(theta_psi, parts=parts, batch=batch, noise_key=noise_key):
            model = merge(Routed(theta_psi, parts.rho, parts.static))
            mixture = predict(model, batch.x, key=noise_key, num_samples=2, antithetic=True)
            return train_objective(mixture, batch.y, batch.weight)

        gradients = named_arrays(jax.jit(jax.grad(loss))(parts.theta_psi))
        trained = named_arrays(route(unstack(found.models, replica)).theta_psi)
        for name, before in named_arrays(parts.theta_psi).items():
            step = 0.25 * np.asarray(gradients[name])
            np.testing.assert_allclose(before - trained[name], step, rtol=1e-3, atol=1e-6, err_msg=name)
            assert np.abs(step).max() > 1e-5, name


def test_rho_keeps_its_own_optimizer(started):
    """With rates of 0 for θ and ψ, ρ moves exactly as it does when Adam has a rate of next to nothing for them."""
    models, tasks, config = started
    still = last(started, optimizer=optax.set_to_zero())
    assert_same(still.snapshot.state.theta_psi.tree(), route(models).theta_psi)
    slow = dataclasses.replace(config, learning_rate=1e-30)
    expected = list(train_replicas(models, tasks, slow))[-1]
    assert_same(still.snapshot.state.rho, expected.snapshot.state.rho)
    assert_same(still.snapshot.state.reg_optimizer, expected.snapshot.state.reg_optimizer)


def test_a_training_with_an_optimizer_resumes_from_its_snapshot(started):
    """With a state of momenta and a count, and parameters that the transformation reads."""
    models, tasks, config = started
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.linear_schedule(1e-2, 0.0, 7)))
    reports = list(train_replicas(models, tasks, config, optimizer=optimizer))
    middle = next(report.snapshot for report in reports if report.step < 7)
    again = list(train_replicas(models, tasks, config, start=middle, optimizer=optimizer))[-1]
    assert_same(again.snapshot, reports[-1].snapshot)
    record = reports[-1].record
    assert record is not None
    assert np.isfinite(record.reg_nll).all()


@pytest.mark.parametrize("wrong", [{"optimizer": "adam"}, {"reg_objective": 3}])
def test_what_is_no_optimizer_or_objective_is_refused(started, wrong):
    # Under the tests' own type checks, those speak first.
    with pytest.raises((ValueError, TypeError), match=r"optimizer|reg_objective"):
        last(started, **wrong)
