"""Names of methods: what they stand for, and how a wrong one is refused."""

import pytest

from crossreg.config import Config
from crossreg.designs.grids import Trial
from crossreg.errors import InputError
from crossreg.methods.names import ENSEMBLE_SIZE, parse_method, parse_methods


def test_variants_change_what_they_name():
    [config] = parse_method("xreg-layer-element-mixture").configs(Config())
    assert (config.model.sigma_per, config.model.epsilon_per) == ("layer", "element")
    assert config.train.reg_objective == "mixture"
    [heads] = parse_method("xreg-heads").configs(Config())
    assert (heads.model.feature_noise, heads.model.generalization_head) == ("none", True)
    [modes] = parse_method("xreg-modes").configs(Config())
    assert (modes.model.feature_noise, modes.model.mode_noise) == ("none", "generalization")
    for name in ("xreg-rollout-mm", "xreg-mm-rollout"):
        assert parse_method(name).name == "xreg-rollout-mm"
        [both] = parse_method(name).configs(Config())
        assert (both.train.reg_horizon, both.train.reg_objective) == (10, "moment-matched")
    [given] = parse_method("dropout-0.25").configs(Config())
    assert given.model.dropout_rate == 0.25
    rates = [c.model.dropout_rate for c in parse_method("dropout-reg").configs(Config())]
    assert rates == sorted(set(rates))
    assert 0.1 in rates
    [fixed] = parse_method("fixed-noise-0.3").configs(Config())
    assert (fixed.model.lift_noise, fixed.train.train_samples) == (0.3, 1)
    assert [parse_method(f"ensemble-{members}").members for members in (5, 100)] == [5, 100]
    assert parse_method("xreg-ensemble").members == ENSEMBLE_SIZE
    assert parse_method("persistence-masked").candidates == ()


# The settings of how an update draws: samples on reg and on train, pairs of samples, pairs of fields on reg, the end.
DRAWS = ("num_samples", "train_samples", "antithetic", "reg_batch_size", "site_learning_rate", "settle")


def draws_of(name: str, **given) -> tuple:
    [config] = parse_method(name).configs(Config().replace(**given))
    return tuple(getattr(config.train, setting) for setting in DRAWS)


@pytest.mark.parametrize("word", ["mm", "fair", "mixture", "internal-mm"])
def test_likelihoods_on_reg_have_the_draws_of_the_paper(word):
    assert draws_of(f"xreg-{word}") == (10, None, False, 16, 0.01, 0.1)


def test_a_crps_on_reg_has_few_samples_in_pairs():
    for name in ("xreg", "xreg-crps", "xreg-internal", "xreg-ensemble"):
        assert draws_of(name) == (4, 2, True, None, 0.02, 0.05)


def test_draws_that_are_given_stay():
    given = {"num_samples": 20, "reg_batch_size": 8, "site_learning_rate": 0.03, "settle": 0.2}
    assert draws_of("xreg-mm", **given) == (20, None, False, 8, 0.03, 0.2)
    assert draws_of("xreg-rollout", settle=0.3)[-1] == 0.3


def test_samples_on_train_that_another_method_has_set_do_not_stay():
    for other, samples in {"dropout": 2, "unregularized": 2, "train-noise": None}.items():
        [before] = parse_method(other).configs(Config())
        [config] = parse_method("xreg").configs(before)
        assert config.train.train_samples == samples  # as many as on reg, where they are independent


def test_rollouts_are_learned_from_in_the_last_tenth():
    for name in ("xreg-rollout", "xreg-rollout-ensemble", "train-noise-rollout"):
        assert draws_of(name)[-1] == 0.1
    assert draws_of("train-noise")[-1] == 0.05


def test_noise_learned_on_train_has_ten_independent_samples():
    assert draws_of("train-noise")[1:5] == (10, False, None, 0.01)


def test_one_method_has_one_name():
    for given, name in {
        "ensemble-3": "ensemble",
        "ensemble-03+early": "ensemble+early",
        "dropout-0.10": "dropout",
        "dropout-.25": "dropout-0.25",
        "dropout-0.00001": "dropout-0.00001",
        "dropout-0.1234567": "dropout-0.1234567",
        "fixed-noise-2.0": "fixed-noise-2",
        "xreg-both": "xreg",
        "xreg-scaled-layer": "xreg-layer",
        "xreg-element-layer": "xreg-layer-element",
        "xreg-scaled-heads": "xreg-heads",
        "xreg-heads-crps": "xreg-heads-crps",
        "xreg-ensemble-mm": "xreg-mm-ensemble",
    }.items():
        assert parse_method(given).name == name
        assert parse_method(name).name == name
    with pytest.raises(InputError, match="ensemble is given twice"):
        parse_methods("ensemble,ensemble-3")


def test_all_data_is_for_what_needs_nothing_held_out():
    for given, name in {
        "ensemble-3-all-data": "ensemble-all-data",
        "dropout-.2-all-data": "dropout-0.2-all-data",
    }.items():
        method = parse_method(given, for_cars=True)
        assert (method.name, method.all_data) == (name, True)
        assert method.configs(Config()) == parse_method(name.removesuffix("-all-data")).configs(Config())
        assert parse_method(name, for_cars=True).name == name
    assert not parse_method("ensemble", for_cars=True).all_data
    for name, message in {
        "xreg-all-data": "xreg needs held-out data",
        "dropout-reg-all-data": "dropout-reg needs held-out data",
        "ensemble-all-data+conformal": r"ensemble\+conformal needs held-out data",
        "persistence-all-data": "persistence is not trained",
    }.items():
        with pytest.raises(InputError, match=message):
            parse_methods(name, for_cars=True)
    with pytest.raises(InputError, match="-all-data is for cars"):
        parse_methods("xreg,ensemble-all-data")


def test_wrappers_keep_a_part_of_reg_from_what_learns_on_it():
    base = Config()
    for name, keeps in {
        "xreg": False,
        "xreg+temperature": True,
        "xreg-heads+early": True,
        "dropout+conformal": False,
        "dropout-reg": False,
        "dropout-reg+temperature": True,
        "ensemble+early+temperature+conformal": False,
        "ensemble+early+sigma-temperature": False,
        "xreg+sigma-temperature": True,
        "persistence+temperature": False,
    }.items():
        assert Trial(base, parse_method(name), {}).splits_off_calibration == keeps, name
    needs = [Trial(base, parse_method(n), {}).needs_reg for n in ("xreg", "ensemble", "ensemble+early", "dropout-reg")]
    assert needs == [True, False, True, True]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("xregg", r"no such method; did you mean xreg\? there are xreg"),
        ("xreg-louder", "no such method"),
        ("xreg-heads-both", "heads and both exclude each other"),
        ("fixed-noise0.3", "no such method"),
        ("dropout-1.5", r"1\.5 must be a number in \(0, 1\)"),
        ("ensemble-0", "1 to 100 members"),
        ("ensemble-101", "1 to 100 members"),
        ("ensemble+late", r"no wrapper \+late; there are \+early"),
        ("ensemble+temperature+early", r"write it as ensemble\+early\+temperature"),
        ("ensemble+temperature+sigma-temperature", r"\+temperature and \+sigma-temperature exclude each other"),
        ("ensemble+growth+temperature", r"\+growth and \+temperature exclude each other"),
        ("persistence+early", "cannot stop early"),
        ("xreg-rollout+early", "xreg-rollout learns from rollouts in the end, which stopping early would undo"),
        ("train-noise-rollout+early", "learns from rollouts in the end"),
        ("xreg,dropout,xreg", "xreg is given twice"),
        (" , ", "names no method"),
    ],
)
def test_a_wrong_name_is_refused(names, message):
    with pytest.raises(InputError, match=message):
        parse_methods(names)
