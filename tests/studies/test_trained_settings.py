"""A sweep trains what its settings say: what a method would replace is refused, and rows say what was trained."""

from typing import Any

import pytest

from crossreg.cars import study as car_module
from crossreg.cars.study import run_car
from crossreg.cli.main import main
from crossreg.config import Config, to_yaml
from crossreg.designs.car_study import car_study
from crossreg.designs.grids import ALL_METHODS
from crossreg.errors import InputError
from crossreg.methods import dropout
from crossreg.methods.names import parse_method
from crossreg.methods.xreg import INDEPENDENT
from crossreg.runs.programs import read_programs
from crossreg.runs.sweep_folder import read_rows
from crossreg.studies.sweep.programs import without_idle
from crossreg.training.cohort import check_learnable
from crossreg.training.cost import reg_updates_per_step

# Another value than the default for everything that a method may set, and for two settings that none does.
OTHERS: dict[str, Any] = {
    "feature_noise": "both",
    "sites": ("block1",),
    "sigma_per": "layer",
    "epsilon_per": "element",
    "mode_noise": "generalization",
    "lift_noise": 0.7,
    "generalization_head": False,
    "train_samples": 3,
    "reg_objective": "moment-matched",
    "dropout_rate": 0.3,
    "width": 5,
    "k_reg": 7,
}
_NOISE = {"feature_noise", "sites", "mode_noise", "lift_noise", "train_samples"}
_XREG = {*OTHERS} - {"dropout_rate", "width", "k_reg"}
_PLAIN = _NOISE  # no generalization head: what the setting says is what they have
REPLACED = {
    "xreg": _XREG,
    "xreg-mm": _XREG - {"reg_objective"},
    "xreg-internal": _XREG - {"generalization_head"},
    "xreg-heads": _XREG,
    "xreg-modes": _XREG - {"mode_noise", "generalization_head"},
    "xreg-layer-element": _XREG - {"sigma_per", "epsilon_per"},
    "xreg-ensemble": _XREG,
    "unregularized": _PLAIN,
    "ensemble": _PLAIN,
    "ensemble+early+conformal": _PLAIN,
    "dropout": _PLAIN | {"dropout_rate"},
    "dropout-0.3": _PLAIN,
    "dropout-reg": _PLAIN | {"dropout_rate"},
    "fixed-noise": _PLAIN,
    "fixed-noise-0.7": _PLAIN - {"lift_noise"},
    "persistence": set(),
}


@pytest.mark.parametrize("name", REPLACED)
def test_what_a_method_would_replace_is_refused(name):
    method, refused = parse_method(name), {}
    for field, value in OTHERS.items():
        try:
            method.check_settings(Config().replace(**{field: value}), {})
        except InputError as error:
            refused[field] = str(error)
    assert refused.keys() == REPLACED[name]
    for field, message in refused.items():
        assert message.startswith(f"methods {name}: this method sets {field} to ")
        assert f"leave {field} out" in message
    method.check_settings(Config(), {})


@pytest.mark.parametrize("name", ["unregularized", "ensemble", "ensemble+growth", "dropout", "fixed-noise-0.7"])
def test_a_method_without_anything_to_learn_on_reg_has_no_growth_to_learn(name):
    """Growth is part of ρ: it would be learned on reg, and the row would say that reg was not used."""
    base, method = Config().replace(lead_growth=True, reg_horizon=4), parse_method(name)
    with pytest.raises(InputError, match=r"this method sets lead_growth to false, not true; leave lead_growth out"):
        method.check_settings(base, {})
    assert not any(config.model.learns_on_reg for config in method.configs(base))


def test_growth_alone_needs_reg():
    fields: dict[str, Any] = {
        "feature_noise": "none",
        "generalization_head": False,
        "lead_growth": True,
        "reg_horizon": 3,
    }
    config = Config().replace(**fields, reg_size=4)
    assert config.model.learns_on_reg
    assert without_idle(config).train.reg_horizon == 3
    other = config.replace(rollout_particles=12)
    assert without_idle(other) == without_idle(config).replace(rollout_particles=12)
    single = other.replace(reg_horizon=1, lead_growth=False, generalization_head=True)
    assert without_idle(single).train.rollout_particles == 30
    assert reg_updates_per_step(config) > 0
    check_learnable(config)
    with pytest.raises(InputError, match="reg_size is 0: this model learns on reg"):
        check_learnable(config.replace(reg_size=0))


def test_the_message_says_what_the_method_sets():
    asked = Config().replace(generalization_head=False, reg_objective="moment-matched")
    with pytest.raises(InputError) as refused:
        parse_method("xreg").check_settings(asked, {})
    assert str(refused.value) == (
        'methods xreg: this method sets generalization_head to true, not false and reg_objective to "scaled-crps",'
        ' not "moment-matched"; leave generalization_head, reg_objective out, or name a method that has them'
    )
    parse_method("xreg-internal-mm").check_settings(asked, {})
    # The sweep's own change comes last and is what trains, so that the file's value is replaced by it and not silently.
    parse_method("xreg-internal").check_settings(asked, {"reg_objective": "crps"})


def test_a_method_that_passes_trains_every_setting_that_was_given():
    for name in ALL_METHODS.split(","):
        method = parse_method(name)
        for field, value in OTHERS.items():
            base = Config().replace(**{field: value})
            try:
                method.check_settings(base, {})
            except InputError:
                continue
            for config in method.configs(base):
                group = next(g for g in (config.model, config.train) if hasattr(g, field))
                assert getattr(group, field) == value, (name, field)


@pytest.mark.parametrize(
    ("method", "change", "is_refused"),
    [
        ("xreg-mm", {"reg_objective": "crps"}, True),
        ("xreg-mm+early", {"reg_objective": "crps"}, True),
        ("xreg-mm", {"reg_objective": "moment-matched"}, False),
        ("xreg", {"reg_objective": "crps"}, False),
        ("xreg", {"generalization_head": False}, False),
        ("xreg-internal", {"generalization_head": True}, True),
        ("xreg-layer", {"sigma_per": "channel"}, True),
        ("dropout-0.3", {"dropout_rate": 0.1}, True),
        ("dropout", {"dropout_rate": 0.3}, False),
        ("dropout", {"train_samples": 4}, False),
    ],
)
def test_a_grid_may_vary_a_method_but_not_contradict_its_name(method, change, is_refused):
    if is_refused:
        with pytest.raises(InputError, match=f"{next(iter(change))} to .*, not "):
            parse_method(method).check_settings(Config(), change)
        return
    parse_method(method).check_settings(Config(), change)
    [config] = parse_method(method).configs(Config(), change)
    [(field, value)] = change.items()
    assert value in (getattr(config.model, field, None), getattr(config.train, field, None))


def test_commands_refuse_before_anything_is_written(tiny, cached_waves, tmp_path, capsys, monkeypatch):
    (tmp_path / "c.yaml").write_text(to_yaml(tiny.replace(generalization_head=False, reg_objective="moment-matched")))
    common = ["--config", str(tmp_path / "c.yaml"), "--methods", "unregularized,xreg"]
    out = tmp_path / "s"
    grid = ["sweep", "grid", "--grid", "mask_seed=3", "--out", str(out)]
    for command in ([*grid, *common], [*grid, *common, "--plan"], ["plan", "paper", "--on", "h200:1", *common]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "--methods xreg: this method sets generalization_head to true, not false" in said
        assert said.count("\n") == 1
    assert main(["plan", "protocol", "--on", "h200:1", "--methods", "xreg"]) == 2
    (tmp_path / "c.yaml").write_text(to_yaml(tiny))
    contradiction = ["--grid", "reg_objective=crps", "--methods", "xreg-mm", "--out", str(out), *common[:2]]
    assert main(["sweep", "grid", *contradiction]) == 2
    assert "--methods xreg-mm: this method sets reg_objective" in capsys.readouterr().err
    assert not out.exists()
    study = car_study("quick").replace(methods="unregularized,xreg", generalization_head=False)
    monkeypatch.setattr(car_module, "prepare", lambda *arguments, **options: pytest.fail("no car is needed for this"))
    with pytest.raises(InputError, match="methods xreg: this method sets generalization_head to true, not false"):
        run_car(study, out)
    assert not out.exists()


def test_rows_say_what_was_trained(tiny, cached_waves, tmp_path):
    """Of every row, what its trained replicas were made with, whatever of it the method, the file and the grid set."""
    (tmp_path / "c.yaml").write_text(
        to_yaml(tiny.replace(generalization_head=False, reg_objective="moment-matched", k_reg=3))
    )
    command = ["sweep", "grid", "--grid", "dropout_rate=0.1,0.4", "--methods", "xreg-internal-mm,dropout,persistence"]
    flags = ["--seeds", "1", "--steps", "10", "--config", str(tmp_path / "c.yaml"), "--quiet"]
    assert main([*command, *flags, "--out", str(tmp_path / "s")]) == 0
    rows = {(row["method"], row["settings"].get("dropout_rate")): row for row in read_rows(tmp_path / "s")}
    shapes = {"width": 4, "num_blocks": 3, "num_modes": 5, "batch_size": 6}
    common = shapes | {"evaluation_samples": 5, "evaluate_every": 10, "generalization_head": False}
    of_xreg = {"reg_objective": "moment-matched", "k_reg": 3, **INDEPENDENT}
    of_dropout = {"feature_noise": "dropout", "train_samples": 1}  # nothing is learned on reg, so no objective
    trained = {key: row["trained_with"] for key, row in rows.items()}
    assert trained == {
        ("xreg-internal-mm", 0.1): common | of_xreg,
        ("xreg-internal-mm", 0.4): common | of_xreg | {"dropout_rate": 0.4},
        ("dropout", 0.1): common | of_dropout,
        ("dropout", 0.4): common | of_dropout | {"dropout_rate": 0.4},
        ("persistence", 0.1): {},
        ("persistence", 0.4): {},
    }
    stored = [training.config for program in read_programs(tmp_path / "s") for training in program.trainings.values()]
    rates = sorted(c.model.dropout_rate for c in stored if c.model.feature_noise == "dropout")
    assert rates == [0.1, 0.4]
    assert {c.train.reg_objective for c in stored if c.model.learns_on_reg} == {"moment-matched"}
    table = (tmp_path / "s" / "table.md").read_text()
    assert "generalization_head False" in table


def test_a_row_says_which_candidate_was_chosen(tiny, cached_waves, tmp_path, monkeypatch):
    monkeypatch.setattr(dropout, "RATES", (0.05, 0.4))
    (tmp_path / "c.yaml").write_text(to_yaml(tiny))
    command = ["sweep", "grid", "--grid", "mask_seed=3", "--methods", "dropout-reg", "--seeds", "2", "--steps", "10"]
    assert main([*command, "--config", str(tmp_path / "c.yaml"), "--quiet", "--out", str(tmp_path / "s")]) == 0
    for row in read_rows(tmp_path / "s"):
        assert row["trained_with"]["dropout_rate"] == row["notes"]["dropout_rate"]


@pytest.mark.parametrize(
    ("sweep", "setting", "said"),
    [
        ("paper-exact", {"learning_rate": 3e-3}, "learning_rate is 0.003, and this sweep sets it to 0.001;"),
        ("paper-exact", {"evaluation_samples": 99}, "evaluation_samples is 99, and this sweep sets it to 10;"),
        ("paper-train-size", {"observed_fraction": 0.5}, "observed_fraction is 0.5, and this sweep sets it to 0.7;"),
        (
            "paper-observed",
            {"observed_fraction": 0.4},
            "observed_fraction is 0.4, and this sweep sets it to 0.4, 0.6, ",
        ),
        ("ablation", {"seed": 5}, "--config: seed is 5; the first seed of a sweep is --first-seed"),
    ],
)
def test_what_a_sweep_would_replace_is_refused(sweep, setting, said, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(to_yaml(Config().replace(**setting)))
    command = ["sweep", sweep, "--plan", "--seeds", "1", "--config", str(tmp_path / "c.yaml")]
    assert main([*command, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err


def test_what_a_sweep_leaves_to_some_runs_or_to_the_grid_is_not_refused(tmp_path, capsys):
    """An ablation changes the samples of some rows; of a field in --grid, the flag counts for more than the file."""
    (tmp_path / "c.yaml").write_text(to_yaml(Config().replace(num_samples=7, k_reg=4)))
    command = ["sweep", "ablation", "--plan", "--seeds", "1", "--config", str(tmp_path / "c.yaml")]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    command[1] = "paper-observed"
    assert main([*command, "--grid", "k_reg=2,3", "--out", str(tmp_path / "out")]) == 0
