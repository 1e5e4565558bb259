"""The settings that published numbers were made with, written out: presets, methods, and the grids of named sweeps.

A change here is a change of what a name stands for, so that rows made before and after it must not be compared.
"""

import dataclasses
import itertools

import pytest

from crossreg.cli import quickstart as quickstart_module
from crossreg.config import OWN_DATA, Config, DataConfig, changed_fields, from_dict
from crossreg.designs.grids import ALL_METHODS, plan
from crossreg.designs.presets import PRESETS, preset
from crossreg.errors import InputError
from crossreg.methods.names import config_of, parse_method

DATA_DEFAULTS = {
    "data": None, "field": None, "axes": None, "split": "trajectory", "split_seed": 0, "time_stride": 1,
    "in_memory_gib": 1.0, "scenario": "diff_ks", "num_spatial_dims": None, "num_points": None, "train_size": 50,
    "reg_size": 50, "one_pool": False, "test_size": 30, "train_horizon": 10, "test_horizon": 200, "reg_steps": None,
    "observed_fraction": 0.7, "mask_per": "run", "mask_seed": 0, "mask_channel": False, "score_on": "all",
}  # fmt: skip
PLANE = {"num_spatial_dims": 2, "num_points": 96}
NO_NOISE = {"feature_noise": "none", "generalization_head": False, "train_samples": None}
# Likelihoods on reg: ten independent samples, and the paper's rate.
INDEPENDENT = {
    "num_samples": 10, "train_samples": None, "antithetic": False, "reg_batch_size": 16, "site_learning_rate": 0.01,
    "settle": 0.1,
}  # fmt: skip
DROPOUT = {"feature_noise": "dropout", "generalization_head": False, "train_samples": 1}
# What each preset changes in the default config.
EXPECTED_PRESETS = {
    "reference": {},
    "forecasts": {
        "log_sigma_max": -0.7, "lead_growth": True, "reg_horizon": 10, "reg_objective": "crps", "settle": 0.1,
    },
    "low-observation": {"observed_fraction": 0.3, "feature_noise": "none"},
    "head-only": {"feature_noise": "none"},
    "unregularized": NO_NOISE,
    "dropout": DROPOUT,
    "protocol": INDEPENDENT | {
        "learning_rate": 1e-3, "schedule": "constant", "scaled_start": False, "log_sigma_pred_start": -2.0,
        "evaluation_samples": 10, "reg_objective": "moment-matched", "generalization_head": False, "settle": 0.0,
        "clip": 0.0,
    },
    "diff_ks": {},
    "diff_ks_cons": {"scenario": "diff_ks_cons"},
    "diff_kdv": {"scenario": "diff_kdv", "test_horizon": 10},
    "diff_burgers": {"scenario": "diff_burgers", "test_horizon": 10},
    "diff_adv": {"scenario": "diff_adv"},
    "phy_decay_turb": {"scenario": "phy_decay_turb", "test_horizon": 10, **PLANE},
    "phy_gs": {"scenario": "phy_gs", "test_horizon": 10, **PLANE},
    "phy_kolm_flow": {"scenario": "phy_kolm_flow", **PLANE},
}  # fmt: skip
# What each method without wrappers changes in the default config, for each of its candidates, and its members.
EXPECTED_METHODS = {
    "xreg": ([{}], 1),
    "xreg-crps": ([{"reg_objective": "crps"}], 1),
    "xreg-fair": ([INDEPENDENT | {"reg_objective": "fair"}], 1),
    "xreg-mm": ([INDEPENDENT | {"reg_objective": "moment-matched"}], 1),
    "xreg-mixture": ([INDEPENDENT | {"reg_objective": "mixture"}], 1),
    "xreg-internal": ([{"generalization_head": False}], 1),
    "xreg-internal-mm": (
        [INDEPENDENT | {"generalization_head": False, "reg_objective": "moment-matched"}], 1,
    ),
    "xreg-heads": ([{"feature_noise": "none"}], 1),
    "xreg-modes": (
        [{"feature_noise": "none", "generalization_head": False, "mode_noise": "generalization"}], 1,
    ),
    "xreg-layer": ([{"sigma_per": "layer"}], 1),
    "xreg-element": ([{"epsilon_per": "element"}], 1),
    "xreg-layer-element": ([{"sigma_per": "layer", "epsilon_per": "element"}], 1),
    "xreg-ensemble": ([{}], 3),
    "dropout": ([DROPOUT], 1),
    "dropout-reg": ([DROPOUT | {"dropout_rate": p} for p in (0.01, 0.02, 0.05)] + [DROPOUT]
                    + [DROPOUT | {"dropout_rate": 0.2}], 1),
    "ensemble": ([NO_NOISE], 3),
    "unregularized": ([NO_NOISE], 1),
    "fixed-noise": ([{**NO_NOISE, "lift_noise": 0.1, "train_samples": 1}], 1),
    "persistence": ([], 1),
    "persistence-masked": ([], 1),
}  # fmt: skip
WRAPPED = (
    "xreg+early", "xreg+temperature", "xreg+conformal", "dropout+early", "dropout+temperature", "dropout+conformal",
    "dropout+early+temperature", "dropout-reg+temperature", "dropout-reg+conformal", "ensemble+early",
    "ensemble+temperature", "ensemble+conformal", "ensemble+early+temperature", "ensemble+early+conformal",
    "unregularized+early", "unregularized+temperature", "unregularized+conformal", "unregularized+early+temperature",
    "fixed-noise+temperature",
)  # fmt: skip
PAPER = ("xreg", "dropout", "ensemble", "unregularized")
OBSERVED = [(0.4, 50), (0.6, 50), (0.8, 50), (1.0, 50)]
TRAIN_SIZES = [(0.7, 20), (0.7, 30), (0.7, 40), (0.7, 70)]
REGIME = ("observed_fraction", "train_size")
ABLATION = [
    {}, {"sites": ("block1",)}, {"sites": ("block2",)}, {"sites": ("block3",)}, {"sites": ("block4_pre",)},
    {"sites": ("pre_head",)}, {"sigma_per": "layer"}, {"epsilon_per": "element"},
    {"sigma_per": "layer", "epsilon_per": "element"}, {"generalization_head": False},
    {"mode_noise": "generalization"}, {"reg_objective": "crps"}, {"reg_objective": "fair"},
    {"reg_objective": "moment-matched"}, {"reg_objective": "mixture"}, {"k_reg": 1}, {"k_reg": 20}, {"k_reg": 50},
    {"settle": 0.0}, {"num_samples": 2}, {"num_samples": 30}, {"reg_size": 3}, {"reg_size": 5}, {"reg_size": 10},
    {"reg_size": 20}, {"log_sigma_pred_start": -5.0}, {"log_sigma_pred_start": -2.0}, {"scaled_start": False},
    {"learning_rate": 1e-3, "schedule": "constant"},
]  # fmt: skip
# Of a total of trajectories, what a method that needs held-out data holds out.
HELD_OUT = {25: (5,), 40: (5, 8), 60: (5, 12), 80: (5, 16)}
HOLD_NOTHING_OUT = ("dropout", "ensemble", "unregularized", "persistence", "persistence-masked")
EQUAL_DATA = (
    "xreg", "dropout", "dropout+temperature", "dropout+conformal", "ensemble", "ensemble+temperature",
    "ensemble+conformal", "ensemble+early+temperature", "ensemble+early+conformal", "unregularized",
    "unregularized+early+temperature", "unregularized+conformal", "persistence", "persistence-masked",
)  # fmt: skip


def test_defaults_of_data():
    assert dataclasses.asdict(DataConfig()) == DATA_DEFAULTS
    of_the_files = ("train_size", "reg_size", "test_size", "train_horizon", "test_horizon")
    assert {**dict.fromkeys(of_the_files), "observed_fraction": 1.0} == OWN_DATA


def test_own_data_have_defaults_of_their_own_and_what_is_said_of_them_counts():
    own = from_dict({"data": {"data": "u.npy", "observed_fraction": 0.4, "reg_size": 3}}).data
    assert (own.train_size, own.reg_size, own.test_size, own.train_horizon) == (None, 3, None, None)
    assert own.observed_fraction == 0.4
    assert from_dict({"data": {"data": "u.npy"}}).data.observed_fraction == 1.0
    moved = from_dict({"data": {"data": "v.npy"}}, base=Config(data=own)).data  # what was said before counts too
    assert moved == dataclasses.replace(own, data="v.npy")


@pytest.mark.parametrize("noise", ["feature_noise=none", "lift_noise=0.1"])
def test_no_grid_changes_what_methods_differ_in(noise):
    with pytest.raises(InputError, match="is what methods differ in; choose them with `methods`"):
        plan("grid", methods="xreg", grid=[noise])


def test_every_preset_is_listed():
    assert list(EXPECTED_PRESETS) == list(PRESETS)


@pytest.mark.parametrize("name", EXPECTED_PRESETS)
def test_a_preset_is_what_it_was(name):
    assert changed_fields(preset(name)) == EXPECTED_PRESETS[name]


@pytest.mark.parametrize("name", EXPECTED_METHODS)
def test_a_method_is_what_it_was(name):
    method = parse_method(name)
    candidates, members = EXPECTED_METHODS[name]
    assert [changed_fields(config) for config in method.configs(Config())] == candidates
    assert method.members == members
    assert not method.wrapped


def test_every_method_that_all_stands_for():
    listed = ALL_METHODS.split(",")
    assert sorted(listed) == sorted([*EXPECTED_METHODS, *WRAPPED])
    for name in WRAPPED:
        base, *wrappers = name.split("+")
        method = parse_method(name)
        assert [w for w in ("early", "temperature", "sigma_temperature", "conformal") if getattr(method, w)] == wrappers
        assert method.configs(Config()) == parse_method(base).configs(Config())
        assert method.members == EXPECTED_METHODS[base][1]


def listed(name: str, **options) -> list[tuple]:
    """The trials of a named sweep with one seed: what is changed, and the method."""
    return [(trial.changes, trial.method.name) for trial in plan(name, seeds=1, **options)]


def test_the_papers_grids():
    def crossed(regimes, methods=PAPER):
        return [(dict(zip(REGIME, regime, strict=True)), method) for regime in regimes for method in methods]

    assert listed("paper-observed") == crossed(OBSERVED)
    assert listed("paper-train-size") == crossed(TRAIN_SIZES)
    assert listed("paper") == crossed([*OBSERVED, *TRAIN_SIZES])
    assert listed("paper", methods="dropout+early") == crossed([*OBSERVED, *TRAIN_SIZES], ["dropout+early"])
    assert listed("paper-regimes") == [
        ({"observed_fraction": 0.7, "train_size": 50}, "xreg"),
        ({"observed_fraction": 0.3, "train_size": 50}, "xreg-heads"),
        ({"observed_fraction": 0.7, "train_size": 50}, "xreg-heads"),
        ({"observed_fraction": 0.7, "train_size": 50}, "unregularized"),
    ]
    # Nothing else differs from the default.
    for trial in plan("paper", seeds=1) + plan("paper-regimes", seeds=1):
        assert trial.config.replace(observed_fraction=0.7, train_size=50, steps=30_000) == Config()


def test_the_grid_with_the_papers_own_settings():
    """Its two tables and four regimes, log σ_pred from −5 and from −2."""
    training = {
        "learning_rate": 1e-3, "schedule": "constant", "settle": 0.0, "clip": 0.0, "scaled_start": False,
        "evaluation_samples": 10,
    }  # fmt: skip
    tables = itertools.product([*OBSERVED, *TRAIN_SIZES], ("xreg-internal-mm", "dropout", "ensemble"))
    figures = [
        ((0.7, 50), "xreg-internal-mm"),
        ((0.3, 50), "xreg-heads-mm"),
        ((0.7, 50), "xreg-heads-mm"),
        ((0.7, 50), "unregularized"),
    ]
    rows = [*tables, *figures]
    assert listed("paper-exact") == [
        (dict(zip(REGIME, regime, strict=True)) | training | {"log_sigma_pred_start": start}, method)
        for start in (-5.0, -2.0)
        for regime, method in rows
    ]


def test_the_grid_of_equal_data():
    expected = []
    for fraction, total, method in itertools.product((0.4, 0.7, 1.0), HELD_OUT, EQUAL_DATA):
        for held in (0,) if method in HOLD_NOTHING_OUT else HELD_OUT[total]:
            sizes = {"train_size": total - held, "reg_size": held, "one_pool": True}
            expected.append(({"observed_fraction": fraction, **sizes}, method))
    assert listed("equal-data") == expected


def test_the_grids_of_forecasts():
    """At full and at partial observation; and at equal data, where 12 of 60 are held out for methods that need it."""
    methods = (
        "xreg", "xreg-ensemble", "xreg-rollout", "xreg-rollout-ensemble", "ensemble", "ensemble+growth", "dropout",
        "dropout+growth", "unregularized+growth", "train-noise", "train-noise+early", "train-noise-rollout",
        "train-noise-rollout+growth", "persistence+growth",
    )  # fmt: skip
    scored = {"rollout_steps": 100}
    assert listed("rollouts") == [({"observed_fraction": f} | scored, m) for f in (1.0, 0.7) for m in methods]
    hold_nothing_out = ("ensemble", "dropout", "train-noise", "train-noise-rollout")
    assert listed("rollouts-equal-data") == [
        ({"observed_fraction": 1.0, "train_size": 60 - held, "reg_size": held, "one_pool": True} | scored, method)
        for method in methods
        for held in [0 if method in hold_nothing_out else 12]
    ]


def test_methods_of_forecasts():
    rollout = {"reg_horizon": 10, "lead_growth": True, "reg_objective": "crps", "log_sigma_max": -0.7, "settle": 0.1}
    noise = {"generalization_head": False, "feature_noise": "predictive", "log_sigma_max": -0.7}
    noise |= {"train_objective": "crps", "train_samples": 10, "antithetic": False, "site_learning_rate": 0.01}
    expected = {
        "xreg-rollout": (rollout, 1),
        "xreg-rollout-ensemble": (rollout, 3),
        "train-noise": (noise, 1),
        "train-noise-rollout": (noise | {"train_rollout_steps": 10, "settle": 0.1}, 1),
    }
    for name, (settings, members) in expected.items():
        method = parse_method(name)
        assert [changed_fields(config) for config in method.configs(Config())] == [settings]
        assert (method.name, method.members) == (name, members)
        assert method.learns_on_reg(method.configs(Config())) == name.startswith("xreg")
    # Methods that start from a config of another one leave nothing of it.
    for other in ("xreg", "unregularized", "dropout"):
        kept = config_of(other, config_of("train-noise-rollout", Config())).train
        assert (kept.train_objective, kept.train_rollout_steps) == ("likelihood", 1)
    # How long the rollouts are may vary in a sweep; what they minimise is in the name.
    assert plan("grid", methods="xreg-rollout", seeds=1, grid=["reg_horizon=30"])[0].configs[0].train.reg_horizon == 30
    [trial] = plan("grid", methods="xreg-rollout-mm", seeds=1, grid=["reg_objective=crps"])
    with pytest.raises(InputError, match="reg_objective"):
        trial.method.check_settings(trial.base, trial.changes)


def test_the_grids_of_the_ablation_and_of_one_scenario():
    regimes = [{"observed_fraction": f, "train_size": n} for f, n in ((0.4, 50), (0.7, 30), (1.0, 50))]
    assert listed("ablation") == [(regime | change, "xreg") for regime in regimes for change in ABLATION]
    assert listed("scenario") == [
        ({}, method)
        for method in (
            "xreg", "dropout", "ensemble", "unregularized", "dropout+early", "ensemble+early", "dropout+conformal",
            "ensemble+conformal", "ensemble+sigma-temperature", "persistence",
        )
    ]  # fmt: skip


def test_steps_and_seeds_of_a_sweep():
    for name in ("paper-observed", "paper-train-size", "paper", "equal-data", "ablation", "scenario"):
        assert {trial.config.train.steps for trial in plan(name, seeds=1)} == {10_000}
    for name in ("paper-regimes", "paper-exact"):
        assert {trial.config.train.steps for trial in plan(name, seeds=1)} == {30_000}
    assert {trial.config.train.steps for trial in plan("paper-regimes", seeds=1, steps=70)} == {70}
    assert {trial.config.train.steps for trial in plan("paper", seeds=1, base=Config().replace(steps=90))} == {90}
    of_the_file = Config().replace(k_reg=3, seed=77)
    trials = plan("grid", methods="xreg,dropout", seeds=3, first_seed=200, grid=["mask_seed=4,5"], base=of_the_file)
    assert [(p.changes, p.method.name, p.config.train.seed) for p in trials] == [
        ({"mask_seed": mask_seed}, method, seed)
        for mask_seed in (4, 5)
        for method in ("xreg", "dropout")
        for seed in (200, 201, 202)
    ]
    for trial in trials:
        [config] = trial.configs
        assert (config.train.k_reg, config.train.seed) == (3, trial.config.train.seed)
        assert config.data.mask_seed == trial.config.data.mask_seed == trial.changes["mask_seed"]
    assert [trial.config.train.seed for trial in plan("scenario", methods="xreg")] == [0, 1, 2, 3, 4]


class AskedError(Exception):
    """Ends a quickstart once it has said what it trains."""


@pytest.mark.parametrize(
    ("asked", "steps", "evaluate_every"),
    [({}, 5_000, 500), ({"steps": 30_000}, 30_000, 1_000), ({"steps": 7}, 7, 1)],
)
def test_what_the_quickstart_trains(asked, steps, evaluate_every, data, tmp_path, monkeypatch):
    def ask(configs, data, folders, **_):
        raise AskedError(configs, folders)

    loaded = []
    monkeypatch.setattr(quickstart_module, "load_config", lambda config: loaded.append(config) or data)
    monkeypatch.setattr(quickstart_module, "train_side_by_side", ask)
    with pytest.raises(AskedError) as stopped:
        quickstart_module.quickstart(tmp_path / "out", **asked)
    configs, folders = stopped.value.args
    assert {
        name: changed_fields(config.replace(steps=30_000, evaluate_every=250)) for name, config in configs.items()
    } == {
        "xreg": {},
        "dropout": DROPOUT,
        "unregularized": NO_NOISE,
    }
    for config in configs.values():
        assert (config.train.steps, config.train.evaluate_every) == (steps, evaluate_every)
    assert loaded == [DataConfig()]
    assert folders == {name: tmp_path / "out" / name for name in configs}
