"""Data that were changed, on disk or in mid-training: they are known by their numbers, and refused."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossreg.cli.main import main
from crossreg.config import OWN_DATA, Config, DataConfig, load_yaml
from crossreg.data.files.load import load_file, load_files
from crossreg.data.files.split import split_source
from crossreg.data.formats import source as source_module
from crossreg.data.formats.open import open_source
from crossreg.data.load import make_data, trajectories_of
from crossreg.errors import InputError
from crossreg.runs.safeguards.manifest import vouch
from crossreg.runs.safeguards.saving import Saving
from crossreg.studies import train as train_module
from crossreg.studies.train import train_run


# Sizes of its own on every axis: 12 samples, 6 times, 2 channels, 20 points.
def _fields() -> np.ndarray:
    x, phase = np.arange(20.0), np.random.default_rng(0).uniform(0, 6, (12, 1, 2, 1))
    return np.sin(x / 3 + phase + np.arange(6.0).reshape(1, 6, 1, 1)).astype(np.float32)


@pytest.fixture
def sampled(monkeypatch) -> None:
    """Files of more than three fields are large ones, which evenly spaced fields are looked at of."""
    monkeypatch.setattr(source_module, "SAMPLED_BYTES", 3 * 2 * 20 * 4)
    monkeypatch.setattr("crossreg.data.files.load.SAMPLED_BYTES", 3 * 2 * 20 * 4)


def _change(path: Path, sample: int, time: int) -> None:
    values = np.load(path)
    values[sample, time] += 1e-3
    np.save(path, values)


def test_every_number_in_memory_counts(sampled, tmp_path):
    path = tmp_path / "u.npy"
    np.save(path, _fields())
    before, looked_at = load_file(path).digest, open_source(path).digest
    _change(path, 5, 3)
    assert open_source(path).digest == looked_at  # one that is not looked at
    assert load_file(path).digest != before
    # Of files larger than the memory allowed, what is held of them counts; here 8, 1 and 2 of 12 trajectories.
    held = {"in_memory_gib": 11 * 6 * 2 * 20 * 4 / 2**30, "train_size": 8, "reg_size": 1, "test_size": 2}
    before = load_file(path, **held).digest
    assert before not in (looked_at, load_file(path).digest)
    settings: dict[str, Any] = OWN_DATA | held | {"data": str(path)}
    config = DataConfig(**settings)
    for part in split_source(open_source(path), config).values():
        _change(path, part.samples[-1], 2)
        assert open_source(path).digest == looked_at
        changed = load_file(path, **held).digest
        assert changed != before
        before = changed
    # What is not held counts as far as it is looked at, as the first field of a file always is.
    seed = next(
        seed
        for seed in range(100)
        for parts in [split_source(open_source(path), dataclasses.replace(config, split_seed=seed)).values()]
        if not any(0 in part.samples for part in parts)
    )
    before = load_file(path, **held, split_seed=seed).digest
    _change(path, 0, 0)
    assert load_file(path, **held, split_seed=seed).digest != before


def test_every_number_that_a_sweep_holds_counts(sampled, tmp_path):
    """Of a file larger than the memory allowed two runs hold 5 or 8, 1 and 2 of 12 trajectories."""
    path = tmp_path / "u.npy"
    np.save(path, _fields())
    held = {"in_memory_gib": 11 * 6 * 2 * 20 * 4 / 2**30, "reg_size": 1, "test_size": 2}
    settings: list[dict[str, Any]] = [OWN_DATA | held | {"data": str(path), "train_size": size} for size in (5, 8)]
    few, many = (DataConfig(**each) for each in settings)
    looked_at = open_source(path).digest
    alone = trajectories_of(many)
    assert alone.digest == load_files(many).digest
    both = trajectories_of(few, many)
    assert both.digest == trajectories_of(many, few).digest
    assert len({both.digest, alone.digest, trajectories_of(few).digest, looked_at}) == 4
    for config in (few, many):
        assert make_data(both, config).digest == load_files(config).digest
    with pytest.raises(InputError, match="has changed since it was first read"):
        make_data(alone, few)  # what it holds was not looked at
    parts = split_source(open_source(path), many)
    only_many = parts["train"].samples[-1]
    assert only_many not in split_source(open_source(path), few)["train"].samples
    for number in (parts["test"].samples[-1], parts["reg"].samples[0], only_many):
        _change(path, number, 2)
        assert open_source(path).digest == looked_at
        with pytest.raises(InputError, match="has changed since it was first read"):
            make_data(both, many)
        changed = trajectories_of(few, many)
        assert changed.digest != both.digest
        both = changed
    # What no run holds does not count, and what one of them does not hold leaves its data as they were.
    _change(path, only_many, 3)
    assert make_data(both, few).train.field_shape == (2, 20)
    [left] = set(range(12)) - {sample for part in parts.values() for sample in part.samples}
    both = trajectories_of(few, many)
    _change(path, left, 2)
    assert open_source(path).digest == looked_at
    assert trajectories_of(few, many).digest == both.digest


@pytest.mark.parametrize("grid", ["train_size=8", "train_size=5,8"])
def test_a_sweep_on_a_part_of_a_large_file_has_one_digest(grid, sampled, tmp_path, capsys):
    """Its trained models are found by report, figures and extract, and no row is mixed with those of other data."""
    path, out = tmp_path / "u.npy", tmp_path / "s"
    np.save(path, _fields())
    train = {"steps": 4, "evaluate_every": 2, "batch_size": 5, "num_samples": 2, "evaluation_samples": 3}
    data = {"in_memory_gib": 11 * 6 * 2 * 20 * 4 / 2**30, "reg_size": 1, "test_size": 2, "train_size": 8}
    model = {"width": 4, "num_blocks": 1, "num_modes": 4}
    (tmp_path / "c.yaml").write_text(json.dumps({"data": data, "model": model, "train": train}))
    sweep = ["sweep", "grid", "--data", str(path), "--config", str(tmp_path / "c.yaml"), "--grid", grid]
    sweep += ["--methods", "xreg", "--seeds", "1", "--out", str(out), "--quiet"]
    assert main(sweep) == 0
    count = grid.count(",") + 1
    assert main(["report", str(out), "--output", str(tmp_path / "r.html"), "--quiet"]) == 0
    page = (tmp_path / "r.html").read_text()
    entries = json.loads(page.split('id="report">')[1].split("</script>")[0])["entries"]
    assert sum(bool(entry["trajectories"]) for entry in entries) == count
    assert "not in the folder" not in page
    taken = ["extract", str(out), "--method", "xreg", "--seed", "0", "--where", "train_size=8"]
    assert main([*taken, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    before = {p.name for p in (out / "trained").glob("*.npz")}
    assert main(sweep) == 0
    assert {p.name for p in (out / "trained").glob("*.npz")} == before
    assert len(before) == count
    config = load_yaml(tmp_path / "run" / "config.yaml").data
    looked_at = open_source(path).digest
    _change(path, split_source(open_source(path), config)["train"].samples[-1], 2)
    assert open_source(path).digest == looked_at
    assert main([*taken, "--out", str(tmp_path / "other"), "--quiet"]) == 2
    assert main(sweep) == 0
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert len({row["key"] for row in rows}) == len(rows) == 2 * count


def test_a_run_of_a_version_that_looked_at_some_fields_is_still_evaluated(sampled, tiny, tmp_path, capsys):
    path, out = tmp_path / "u.npy", tmp_path / "run"
    np.save(path, _fields())
    command = ["train", "--data", str(path), "--out", str(out), "--quiet"]
    sizes = {"width": 4, "num-blocks": 1, "num-modes": 4, "steps": 4, "batch-size": 5, "num-samples": 2}
    command += [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    assert main(command) == 0
    fields = json.loads((out / "fields.json").read_text())
    assert fields["digest"] == open_source(path).whole_digest
    _change(path, 5, 3)
    assert main(["evaluate", str(out)]) == 2
    assert "holds other data than the run was trained on" in capsys.readouterr().err
    (out / "fields.json").write_text(json.dumps(fields | {"digest": open_source(path).digest}))
    vouch(out, "fields.json")
    assert main(["evaluate", str(out)]) == 0
    assert "knew large data by a sample of fields" in capsys.readouterr().err


class _Changing(train_module.TrainingDisplay):
    """Changes the data at the second look."""

    path = Path()

    def update(self, name, report):
        super().update(name, report)
        if report.step == 20:
            values = np.lib.format.open_memmap(self.path, "r+")
            values[7] *= 2
            values.flush()


@pytest.mark.parametrize("when", ["training", "scoring"])
def test_streamed_data_that_change_are_noticed_before_anything_is_stored(when, tmp_path, monkeypatch, capsys):
    path, out = tmp_path / "u.npy", tmp_path / "run"
    np.save(path, _fields())
    config = Config().replace(width=4, num_blocks=1, num_modes=4, steps=40, evaluate_every=10, batch_size=5)
    config = config.replace(num_samples=2, evaluation_samples=2, data=str(path), in_memory_gib=0.0)
    config = config.replace(train_size=8, reg_size=2, test_size=2, train_horizon=None, test_horizon=None)
    _Changing.path = path
    if when == "training":
        monkeypatch.setattr(train_module, "TrainingDisplay", _Changing)
    else:
        usual = train_module.compute_test_fields

        def compute(*arguments, **options):
            _change(path, 11, 5)
            return usual(*arguments, **options)

        monkeypatch.setattr(train_module, "compute_test_fields", compute)
    with pytest.raises(InputError, match=r"u\.npy: has changed since it was first read"):
        train_run(config, out, progress=False, saving=Saving(every=0.0))
    stored = {p.name for p in out.rglob("*") if p.is_file()}
    assert not stored & {"metrics.json", "test_fields.npz"}
    lines = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    if when == "training":
        assert lines == [10, 20]  # the look at 20 came before the change
        saved = [int(name.split(".")[1]) for name in stored if name.startswith("train.")]
        assert saved
        assert max(saved) <= 20
        assert "model.npz" not in stored
    assert load_yaml(out / "config.yaml").data.data == str(path)


SMALL = "--width 4 --num-blocks 1 --num-modes 4 --steps 8 --evaluate-every 2 --batch-size 5 --num-samples 2 --quiet"


def test_what_lies_beside_streamed_data_may_change(tmp_path, monkeypatch):
    """A run in the folder of its data, notes, and files that were not there when the data were opened."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, fields in zip("ab", np.split(_fields(), 2), strict=True):
        np.save(folder / f"{name}.npy", fields)
    (folder / "notes.txt").write_text("first")
    usual = source_module.Source.check_unchanged
    looks = []

    def check(source):
        looks.append(source)
        (folder / "notes.txt").write_text(f"look {len(looks)}")
        np.save(folder / f"prediction_{len(looks)}.npy", np.zeros((2, 3)))
        usual(source)

    monkeypatch.setattr(source_module.Source, "check_unchanged", check)
    command = ["train", "--data", str(folder), "--in-memory-gib", "0", *SMALL.split(), "--evaluation-samples", "2"]
    assert main([*command, "--out", str(folder / "run")]) == 0
    assert len(looks) > 4
    assert (folder / "run" / "metrics.json").exists()


def test_files_that_were_opened_may_not_change(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for name, fields in zip("ab", np.split(_fields(), 2), strict=True):
        np.save(folder / f"{name}.npy", fields)

    def touch():
        os.utime(folder / "b.npy", ns=(1, 1))

    for change in (touch, lambda: np.save(folder / "a.npy", _fields()[:6]), (folder / "b.npy").unlink):
        source = open_source(folder)
        source.check_unchanged()
        change()
        with pytest.raises(InputError, match="has changed since it was first read"):
            source.check_unchanged()


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_of_a_store_may_not_change(tmp_path, version, monkeypatch):
    """Of many chunks some are looked at, and the folders that they are in; what else lies in a store is not."""
    xarray = pytest.importorskip("xarray")
    path = tmp_path / "u.zarr"
    fields = _fields()[:, :, 0]
    data = xarray.Dataset(dict.fromkeys(("u", "v"), (("sample", "time", "x"), fields)))
    chunks = {name: {"chunks": (1, 2, size)} for name, size in (("u", 20), ("v", 20))}
    data.to_zarr(path, zarr_format=version, consolidated=False, encoding=chunks)
    every = [
        p for p in (path / "u").rglob("*") if p.is_file() and not p.name.startswith(".z") and p.name != "zarr.json"
    ]
    assert len(every) == 12 * 3
    stamped = {name for name, *_ in open_source(path).stamps}
    assert {str(p) for p in every} <= stamped
    assert {str(path / "u" / name) for name in ((".zarray", ".zattrs") if version == 2 else ("zarr.json",))} <= stamped
    source = open_source(path)
    (path / "run").mkdir()
    (path / "run" / "mask.npy").write_bytes(b"anything")
    (path / "notes.txt").write_text("mine")
    source.check_unchanged()
    monkeypatch.setattr("crossreg.data.formats.open._STAMPED_CHUNKS", 5)
    few = open_source(path).stamps
    assert len([name for name, *_ in few if "zarr.json" not in name and "/.z" not in name]) == (
        20 if version == 3 else 12
    )

    def rewritten(file: Path) -> None:
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content)

    last = sorted(every)[-1]  # one of the evenly spaced
    known = {name for name, *_ in few}
    unlooked = next(p for p in every if str(p) not in known and str(p.parent) in known)
    metadata = path / "v" / (".zarray" if version == 2 else "zarr.json")
    for change in (
        lambda: last.write_bytes(last.read_bytes()[::-1]),
        lambda: rewritten(unlooked),
        lambda: metadata.write_text(metadata.read_text() + " "),
    ):
        source = open_source(path)
        source.check_unchanged()
        change()
        with pytest.raises(InputError, match="has changed since it was first read"):
            source.check_unchanged()
