"""A distribution in units against the mixture of the fields themselves, and where that one has lost its digits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.errors import InputError
from crossreg.objectives import REG_OBJECTIVES, log_scale, train_objective
from crossreg.predictive.in_units import InUnits, error_of, standardized, standardized_as
from crossreg.predictive.mixture import Mixture
from crossreg.predictive.recalibrated import Recalibrated

OFFSET, SCALE = (30.0, -2.0), (5.0, 0.25)
PROPERTIES = ("mean", "means", "std", "variance", "std_predictive", "var_predictive", "std_generalization",
              "var_generalization", "var_of_means", "vars_predictive", "vars_generalization", "variances")  # fmt: skip


def ones(values: tuple[float, ...]) -> jnp.ndarray:
    return jnp.asarray(values)[:, None]


@pytest.fixture(scope="module")
def standard() -> Mixture:
    """Four components of three fields with two channels on five points."""
    rng = np.random.default_rng(1)
    means, *sigmas = rng.normal(size=(4, 3, 2, 5)), *(rng.uniform(0.3, 1.5, size=(4, 3, 2, 5)) for _ in range(2))
    pred, gen = (jnp.asarray(sigma**2) for sigma in sigmas)
    return Mixture(jnp.asarray(means), pred, gen)


@pytest.fixture(scope="module")
def both(standard) -> tuple[InUnits, Mixture]:
    """The distribution in units, and the mixture whose components are in these units."""
    o, s = ones(OFFSET), ones(SCALE)
    whole = Mixture(o + s * standard.means, s**2 * standard.vars_predictive, s**2 * standard.vars_generalization)
    return InUnits(standard, o, s), whole


@pytest.fixture(scope="module")
def truth() -> jnp.ndarray:
    return ones(OFFSET) + ones(SCALE) * jnp.asarray(np.random.default_rng(2).normal(size=(3, 2, 5)))


def test_all_that_it_says_is_what_the_mixture_of_the_fields_says(both, truth):
    found, wanted = both
    for name in PROPERTIES:
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=2e-4, err_msg=name)
    np.testing.assert_allclose(found.std_of_means**2, wanted.var_of_means, rtol=2e-4)
    assert found.num_samples == 4
    np.testing.assert_allclose(found.distance_within(), wanted.distance_within(), rtol=2e-4)
    for name in ("log_prob", "cdf", "log_tail", "crps", "distance_to"):
        values = [getattr(one, name)(truth) for one in both]
        np.testing.assert_allclose(*values, rtol=2e-4, atol=2e-5, err_msg=name)
    for level in (0.05, 0.5, 0.9):
        np.testing.assert_allclose(found.quantile(level), wanted.quantile(level), rtol=1e-4)


@pytest.mark.parametrize("is_recalibrated", [False, True])
def test_a_truth_of_another_shape_is_refused_before_it_is_standardised(is_recalibrated, both, truth):
    knots = jnp.asarray([0.0, 1.0])
    same = Recalibrated(both[0].standard, knots, knots, jnp.asarray(1.0))
    found = dataclasses.replace(both[0], standard=same) if is_recalibrated else both[0]
    assert found.crps(truth).shape == truth.shape
    for wrong in (truth[:, 0], truth[0], truth[..., :3]):
        with pytest.raises(InputError, match=r"^y has shape \(.*\); the prediction has \(3, 2, 5\)$"):
            found.crps(wrong)


def test_offsets_are_combined_in_full_float32(both):
    """A GPU rounds the factors of other products to 11 bits: at 10⁵, to 50."""
    program = str(jax.make_jaxpr(lambda predictive: predictive.combined(np.eye(2)).means)(both[0]))
    assert program.count("dot_general") == program.count("precision=(Precision.HIGHEST, Precision.HIGHEST)") > 0


def test_what_is_changed_or_combined_stays_in_its_units(both):
    found, wanted = both
    weights = np.asarray([[1.0, 2.0], [0.0, -3.0], [0.5, 0.0]])
    related = np.asarray([[1.0, 0.6], [0.6, 1.0]])
    for one, other in (
        (found.tempered(1.7), wanted.tempered(1.7)),
        (found.scale_sigmas(0.6), wanted.scale_sigmas(0.6)),
        (found.combined(weights), wanted.combined(weights)),
        (found.combined(weights, correlation=related), wanted.combined(weights, correlation=related)),
    ):
        for name in ("mean", "std", "std_predictive", "std_generalization"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=2e-4, atol=1e-5, err_msg=name)


def test_errors_and_standardised_truths(both, standard, truth):
    found, wanted = both
    np.testing.assert_allclose(error_of(found, truth), wanted.mean - truth, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(error_of(wanted, truth), wanted.mean - truth)
    own, z = standardized(found, truth)
    assert own is standard
    np.testing.assert_allclose(z, (truth - ones(OFFSET)) / ones(SCALE), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("objective", [train_objective, *REG_OBJECTIVES.values()])
def test_losses_are_those_of_the_standardised_field(objective, both, standard, truth):
    z = (truth - ones(OFFSET)) / ones(SCALE)
    np.testing.assert_allclose(objective(both[0], truth), objective(standard, z), rtol=1e-5)


@pytest.mark.parametrize(("offset", "scale"), [(101325.0, 12.0), (0.0, 1e18), (1e-20, 1e-22)])
def test_spreads_keep_their_digits_at_any_offset_and_scale(standard, offset, scale):
    """A mixture of the fields themselves has lost them: its spread of means is rounding, or its squares no numbers."""
    found = InUnits(standard, ones((offset, offset)), ones((scale, scale)))
    for name in ("std", "std_predictive", "std_generalization", "std_of_means"):
        values = np.asarray(getattr(found, name), np.float64) / scale
        np.testing.assert_allclose(values, getattr(standard, name), rtol=1e-5, err_msg=name)
    assert np.isfinite(found.crps(found.mean)).all()


def test_components_in_the_units_of_another(standard):
    """Every component, and the means under generalization noise alone, are where they were in the fields' units."""
    mixture = Mixture(standard.means, standard.vars_predictive, standard.vars_generalization, 1.5 * standard.means[:3])
    one = InUnits(mixture, ones(OFFSET), ones(SCALE))
    for other, o, s in ((InUnits(standard, ones((7.0, 4.0)), ones((2.0, 8.0))), (7.0, 4.0), (2.0, 8.0)),
                        (standard, (0.0, 0.0), (1.0, 1.0))):  # fmt: skip
        moved = standardized_as(one, other)
        assert moved.instance_means is not None
        for own, there in ((moved.means, mixture.means), (moved.instance_means, 1.5 * standard.means[:3])):
            expected = (ones(OFFSET) + ones(SCALE) * there - ones(o)) / ones(s)
            np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-5)
        for name in ("vars_predictive", "vars_generalization"):
            expected = (ones(SCALE) / ones(s)) ** 2 * getattr(mixture, name)
            np.testing.assert_allclose(getattr(moved, name), expected, rtol=1e-5)


def test_the_log_of_the_scale_is_that_of_the_points_that_count(standard):
    units, y = InUnits(standard, ones(OFFSET), ones((1.0, 100.0))), jnp.zeros((3, 2, 5))
    weights = {"first": [1.0, 0.0], "second": [0.0, 1.0], "none": [0.0, 0.0]}
    means = {name: float(log_scale(units, y, jnp.asarray(w)[:, None])) for name, w in weights.items()}
    assert means == pytest.approx({"first": 0.0, "second": np.log(100), "none": 0.0})
    assert float(log_scale(units, y)) == pytest.approx(np.log(10))
    assert float(log_scale(standard, y)) == 0
