"""Run folders and the command line, end to end on small made-up data."""

import json
import subprocess
import sys

import numpy as np
import pytest
import yaml

from crossreg.cli.main import main
from crossreg.config import Config, from_dict, load_yaml, to_dict
from crossreg.designs.presets import PRESETS, preset
from crossreg.errors import InputError
from crossreg.runs.prediction import predict_file
from crossreg.runs.run_folder import load_run
from refused_commands import refused

SMALL = [
    "--train-size",
    "7",
    "--reg-size",
    "6",
    "--test-size",
    "4",
    "--train-horizon",
    "3",
    "--test-horizon",
    "5",
    "--width",
    "4",
    "--num-blocks",
    "3",
    "--num-modes",
    "5",
    "--steps",
    "20",
    "--evaluate-every",
    "10",
    "--batch-size",
    "6",
    "--num-samples",
    "4",
    "--quiet",
]


@pytest.fixture
def folder(cached_waves, tmp_path):
    out = tmp_path / "run"
    assert main(["train", "--observed-fraction", "0.6", "--seed", "3", "--out", str(out), *SMALL]) == 0
    return out


def test_train_evaluate_predict(folder, capsys, tmp_path):
    assert {p.name for p in folder.iterdir()} == {
        "config.yaml",
        "metrics.json",
        "metrics.jsonl",
        "fields.json",
        "lock",
        "manifest.json",
        "mask.npy",
        "model.npz",
        "snapshots",
        "test_fields.npz",
        "versions.json",
    }
    config = load_yaml(folder / "config.yaml")
    assert (config.data.observed_fraction, config.train.seed, config.train.steps) == (0.6, 3, 20)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 20]

    capsys.readouterr()
    said = []
    for _ in range(2):
        assert main(["evaluate", str(folder), "--json"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    metrics = json.loads(said[0])
    assert metrics == json.loads((folder / "metrics.json").read_text())
    assert set(metrics) == {"test", "reg", "train", "sigma", "test_times"}
    for split in ("test", "reg", "train"):
        assert {"nll", "ece_mix", "crps", "rmse", "std_mu", "coverage"} <= set(metrics[split])
        assert len(metrics[split]["coverage"]) == 9
    assert str(tmp_path) not in said[0]
    assert main(["evaluate", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "test ECE" in shown
    parts = next(line for line in shown.splitlines() if line.startswith("train"))
    names = ("rmse", "rms_predictive", "rms_generalization")
    assert parts.split()[1:4] == [f"{metrics['train'][name]:.4f}" for name in names]

    x = np.random.default_rng(0).normal(size=(5, 2, 20))
    np.save(tmp_path / "x.npy", x)
    arguments = ["predict", folder, "--input", tmp_path / "x.npy", "--output", tmp_path / "p.npz"]
    assert main([*map(str, arguments), "--levels", "0.1", "0.5", "0.9", "0.99"]) == 0
    with np.load(tmp_path / "p.npz") as file:
        out = dict(file)
    for name in ("mean", "std", "std_predictive", "std_generalization"):
        assert out[name].shape == x.shape
    np.testing.assert_allclose(out["std"] ** 2, out["std_predictive"] ** 2 + out["std_generalization"] ** 2, rtol=1e-4)
    assert out["quantiles"].shape == (4, 5, 2, 20)
    assert (np.diff(out["quantiles"], axis=0) > 0).all()
    np.testing.assert_allclose(out["levels"], [0.1, 0.5, 0.9, 0.99])

    # The run's own mask was applied: what stands at hidden points does not matter.
    run = load_run(str(folder))
    assert run.mask is not None
    hidden = ~run.mask
    x[..., hidden] = 8.0
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "mask.npy", ~hidden)

    def mean_with(name, *flags):
        assert main([*map(str, arguments[:-1]), str(tmp_path / name), *flags]) == 0
        with np.load(tmp_path / name) as file:
            return file["mean"]

    np.testing.assert_array_equal(mean_with("own.npz"), out["mean"])
    assert not np.allclose(mean_with("none.npz", "--no-mask"), out["mean"])
    np.testing.assert_array_equal(mean_with("given.npz", "--mask", str(tmp_path / "mask.npy")), out["mean"])


def test_bad_prediction_inputs_are_refused(folder, capsys, tmp_path):
    def attempt(x, *more):
        np.save(tmp_path / "x.npy", x)
        return refused(capsys, "predict", folder, "--input", tmp_path / "x.npy", "--output", tmp_path / "p.npz", *more)

    good = np.zeros((5, 2, 20))
    assert "has shape (5, 20); expected (batch, 2, x)" in attempt(np.zeros((5, 20)))
    assert "has shape (5, 3, 20)" in attempt(np.zeros((5, 3, 20)))
    assert "is empty" in attempt(np.zeros((0, 2, 20)))
    assert "has type" in attempt(good.astype(complex))
    bad = good.copy()
    bad[2, 1, 7] = np.nan
    assert "is not finite, as float32, at index (2, 1, 7)" in attempt(bad)
    for flags in ((), ("--no-mask",)):
        said = attempt(np.zeros((5, 2, 24)), *flags)
        assert "has fields of 24 points; the run was trained on 20 (x 20)" in said
        assert "mask" not in said
    assert "is not finite, as float32" in attempt(good + 1e300)
    assert "must lie in (0, 1)" in attempt(good, "--levels", "1.5")
    assert "has 0 values; expected 1 to 1000, each in (0, 1)" in attempt(good, "--levels")
    assert "exclude each other" in attempt(good, "--no-mask", "--mask", tmp_path / "x.npy")
    np.save(tmp_path / "mask.npy", np.full(20, 0.5))
    assert "expected only 0 (hidden) and 1 (observed)" in attempt(good, "--mask", tmp_path / "mask.npy")
    np.save(tmp_path / "mask.npy", np.ones(19))
    assert "has shape (19,)" in attempt(good, "--mask", tmp_path / "mask.npy")
    (tmp_path / "x.npy").write_text("not an array")
    command = ("predict", folder, "--input", tmp_path / "x.npy", "--output", tmp_path / "p.npz")
    assert "not an NPY array" in refused(capsys, *command)
    (tmp_path / "x.npy").write_bytes(b"PK broken")
    assert "not an NPY array" in refused(capsys, *command)
    (tmp_path / "x.npy").unlink()
    assert "No such file" in refused(capsys, *command)
    assert not (tmp_path / "p.npz").exists()
    np.save(tmp_path / "x.npy", good)
    onto_itself = ("predict", folder, "--input", tmp_path / "x.npy", "--output", tmp_path / "x.npy")
    assert "exists already" in refused(capsys, *onto_itself)
    nowhere = ("predict", folder, "--input", tmp_path / "x.npy", "--output", tmp_path / "no" / "p.npz")
    assert "cannot write here" in refused(capsys, *nowhere)


def test_bad_training_arguments_are_refused(cached_waves, capsys, tmp_path):
    out = tmp_path / "new"

    def attempt(*arguments):
        message = refused(capsys, "train", *arguments, "--out", out, *SMALL)
        assert not out.exists()
        return message

    assert "--observed-fraction 1.5: must lie in (0, 1]" in attempt("--observed-fraction", "1.5")
    assert "--observed-fraction 0.0: must lie in (0, 1]" in attempt("--observed-fraction", "0")
    assert "preset nope: not one of reference, forecasts, low-observation" in attempt("--preset", "nope")
    assert "--steps" in refused(capsys, "train", "--out", out, "--steps", "many")
    assert "--train-size 71: the train pool has 1 to 70" in refused(capsys, "train", "--train-size", "71", "--out", out)
    assert "not the name of an APEBench scenario" in attempt("--scenario", "a/b")
    assert "an FNO of 3 blocks has block1, block2, block3_pre, pre_head" in attempt("--sites", "block7")
    assert "holds at most 11" in refused(capsys, "train", "--out", out, *SMALL, "--num-modes", "12")
    assert "--seed 99999999999: must lie in" in attempt("--seed", "99999999999")
    assert "--preset: expected one argument" in refused(capsys, "train", "--out", out, "--preset")
    assert "must lie inside the bounds (-4, 3)" in attempt("--generalization-head", "--head-log-sigma-min", "-4")
    assert "trian: no such command; did you mean train?" in refused(capsys, "trian")
    assert "xyz: no such command; there are train, data, " in refused(capsys, "xyz")
    assert "--out" in refused(capsys, "train")
    assert "Unrecognized options: --stepz, --outt; did you mean --steps? (see" in attempt("--stepz", "3", "--outt=x")
    assert "Unrecognized options: --batch-sise; did you mean --batch-size?" in attempt("--batch_sise", "3")
    assert "Unrecognized options: --zzz (see crossreg train --help)" in attempt("--zzz")
    assert not out.exists()


def test_a_prediction_needs_the_run_folder_alone(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setitem(sys.modules, "apebench", None)
    np.save(tmp_path / "x.npy", np.zeros((3, 2, 20)))
    arguments = ["predict", folder, "--input", tmp_path / "x.npy", "--output", tmp_path / "p.npz"]
    assert main([*map(str, arguments)]) == 0


def test_a_diverged_run_says_so_and_leaves_its_last_finite_state(cached_waves, capsys, tmp_path):
    out = tmp_path / "wild"
    assert main(["train", "--out", str(out), *SMALL, "--learning-rate", "1e30"]) == 4
    assert "diverged at step" in capsys.readouterr().err
    metrics = json.loads((out / "metrics.json").read_text())
    assert set(metrics) == {"test", "reg", "train", "sigma", "test_times"}
    assert json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["diverged_at"] > 0
    assert main(["evaluate", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == metrics


def test_nothing_is_overwritten(folder, capsys, tmp_path):
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    said = refused(capsys, "train", "--out", folder, *SMALL)
    assert "already holds a run of other settings (observed_fraction 0.6, not 0.7; seed 3, not 0)" in said
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    assert "is not empty" in refused(capsys, "train", "--out", tmp_path / "mine", *SMALL)
    assert "is not a folder" in refused(capsys, "train", "--out", tmp_path / "mine" / "thesis.tex", *SMALL)


def test_damaged_runs_are_refused(folder, capsys, tmp_path):
    assert "no such folder" in refused(capsys, "evaluate", tmp_path / "none")
    assert "holds no run" in refused(capsys, "evaluate", tmp_path)
    (tmp_path / "sweep.json").write_text("{}")
    assert "it is a sweep: `crossreg table`" in refused(capsys, "evaluate", tmp_path)
    model = (folder / "model.npz").read_bytes()
    (folder / "model.npz").write_bytes(model[:500])
    assert "is corrupted (its SHA-256 is not the one in manifest.json)" in refused(capsys, "evaluate", folder)
    # What an older version wrote has no manifest and no seal: every file must then be what the others ask for.
    (folder / "manifest.json").unlink()
    assert "not a readable checkpoint" in refused(capsys, "evaluate", folder)
    fields = json.loads((folder / "fields.json").read_text())
    (folder / "model.npz").write_bytes(model)
    with np.load(folder / "model.npz") as file:
        arrays = dict(file)
    whole = dict(arrays)
    arrays.pop("heads.mean.bias")
    np.savez(folder / "model.npz", **arrays)  # pyright: ignore[reportArgumentType]
    assert f"belongs to other settings or data (None, not {fields['identity']})" in refused(capsys, "evaluate", folder)
    fields.pop("identity")
    (folder / "fields.json").write_text(json.dumps(fields))
    assert "has no array" in refused(capsys, "evaluate", folder)
    np.savez(folder / "model.npz", **whole)  # pyright: ignore[reportArgumentType]
    assert main(["evaluate", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((folder / "metrics.json").read_text())
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("width: 4", "width: 6"))
    assert "not float32(6, 2)" in refused(capsys, "evaluate", folder)
    (folder / "config.yaml").write_text(text.replace("width: 4", "width: wide"))
    assert "model.width is 'wide'; expected a whole number" in refused(capsys, "evaluate", folder)
    (folder / "config.yaml").write_text(text)
    (folder / "fields.json").write_text(json.dumps(fields | {"digest": "0" * 64}))
    assert "was trained on other data" in refused(capsys, "evaluate", folder)
    (folder / "fields.json").write_text("{")
    assert "fields.json: not readable" in refused(capsys, "evaluate", folder)
    (folder / "fields.json").write_text(json.dumps(fields))
    (folder / "model.npz").unlink()
    assert "has not finished" in refused(capsys, "evaluate", folder)


def test_a_config_file_and_flags_combine(cached_waves, tmp_path):
    (tmp_path / "c.yaml").write_text(
        yaml.safe_dump({"train": {"k_reg": 7, "learning_rate": "1e-3"}, "data": {"mask_seed": 9}})
    )
    out = tmp_path / "run"
    flags = ["--preset", "head-only", "--config", str(tmp_path / "c.yaml"), "--mask-seed", "2"]
    assert main(["train", *flags, "--out", str(out), *SMALL]) == 0
    config = load_yaml(out / "config.yaml")
    assert config.model.generalization_head
    assert config.model.feature_noise == "none"
    assert (config.train.k_reg, config.train.learning_rate, config.data.mask_seed) == (7, 1e-3, 2)
    # A saved config runs again as it is.
    assert main(["train", "--config", str(out / "config.yaml"), "--quiet", "--out", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "metrics.json").read_bytes() == (out / "metrics.json").read_bytes()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train": {"stepz": 3}}, "train has no setting 'stepz'"),
        ({"training": {}}, "no section 'training'"),
        ({"train": {"steps": 2.5}}, "train.steps is 2.5; expected a whole number"),
        ({"data": {"mask_per": "week"}}, "data.mask_per is 'week'"),
        ({"model": {"lead_growth": True}}, "lead_growth is True: is learned from rollouts: set `reg_horizon`"),
        ([1, 2], "expected the sections data, model, train"),
    ],
)
def test_bad_configs_say_what_and_where(values, message):
    with pytest.raises(InputError, match=message):
        from_dict(values)


def test_configs_survive_yaml(tmp_path):
    from crossreg.config import to_yaml

    for name in PRESETS:
        config = preset(name).replace(sites=("block1", "pre_head"), num_points=32)
        (tmp_path / "c.yaml").write_text(to_yaml(config))
        assert load_yaml(tmp_path / "c.yaml") == config
    assert from_dict(to_dict(Config())) == Config()


def test_the_papers_four_regimes():
    reference, low, head, plain = (preset(n) for n in ("reference", "low-observation", "head-only", "unregularized"))
    assert [c.data.observed_fraction for c in (reference, low, head, plain)] == [0.7, 0.3, 0.7, 0.7]
    assert {c.data.train_size for c in (reference, low, head, plain)} == {50}
    assert [c.model.feature_noise for c in (reference, low, head, plain)] == ["generalization", "none", "none", "none"]
    assert [c.model.generalization_head for c in (reference, low, head, plain)] == [True, True, True, False]
    # The paper's own reference regime has no σ_gen head.
    assert not preset("protocol").model.generalization_head
    assert reference.train.reg_objective == "scaled-crps"


def test_help_does_not_import_jax():
    code = "import sys; from crossreg.cli.main import main; main(['--help']); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    code = (
        "import sys\nfrom crossreg.cli.main import main\ntry: main(['train', '--help'])\nexcept SystemExit: pass\n"
        "assert 'jax' not in sys.modules"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "--observed-fraction" in shown
    assert "--train-size" in shown


def test_prediction_overwrites_nothing_and_says_when_it_is_not_finite(cached_waves, capsys, tmp_path):
    run = tmp_path / "run"
    assert main(["train", "--out", str(run), *SMALL]) == 0
    np.save(tmp_path / "x.npy", np.ones((3, 2, 20)))
    np.save(tmp_path / "far.npy", np.full((3, 2, 20), 1e30))
    before = (run / "model.npz").read_bytes()
    capsys.readouterr()
    for source, target, message in (
        ("x.npy", run / "model.npz", "exists already"),
        ("x.npy", tmp_path / "x.npy", "exists already"),
        (
            "far.npy",
            tmp_path / "far.npz",
            "reaches 1e+30 in field 0, and the run was trained on inputs from -0.9999 to",
        ),
    ):
        assert main(["predict", str(run), "--input", str(tmp_path / source), "--output", str(target), "--no-mask"]) == 2
        assert message in capsys.readouterr().err
    assert (run / "model.npz").read_bytes() == before
    # A run of an older version does not say what its inputs were.
    how: dict = {"levels": (0.5,), "mask_file": None, "no_mask": True}
    with pytest.raises(InputError, match="the predicted std is not finite"):
        predict_file(load_run(run)._replace(input_range=None), tmp_path / "far.npy", tmp_path / "far.npz", **how)
    assert not (tmp_path / "far.npz").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch-size", "10000000"], "a step would take about"),
        (["--num-samples", "1"], "2 or more samples"),
        (["--mask-per", "bogus"], "step')."),
    ],
)
def test_settings_that_cannot_work_leave_no_folder(cached_waves, capsys, tmp_path, flags, message):
    assert main(["train", "--out", str(tmp_path / "run"), *SMALL, *flags]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "╰" not in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_choice_that_is_none_is_refused_in_python_too():
    # Under the tests' own type checks, those speak first.
    with pytest.raises((InputError, TypeError), match="generalization"):
        Config().replace(feature_noise="x")
