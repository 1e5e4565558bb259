"""Files of other runs, of other seeds and of other data: each is what it should be, or it is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from crossreg.cli.main import main
from crossreg.config import Config, to_dict
from crossreg.designs.grids import plan
from crossreg.errors import InputError
from crossreg.runs.archive import Archive
from crossreg.runs.fields.test_fields import load_run_fields
from crossreg.runs.programs import read_programs
from crossreg.runs.run_folder import load_run
from crossreg.runs.safeguards.manifest import vouch
from crossreg.runs.sweep_folder import read_rows
from crossreg.studies.launchers.settings import Workers
from crossreg.studies.sweep.fields import load_sweep_fields
from crossreg.studies.sweep.run import run_sweep
from crossreg.studies.train import train_run

MODEL, FIELDS, MANIFEST = "model.npz", "test_fields.npz", "manifest.json"


@pytest.fixture(scope="module")
def made(waves, tiny: Config, tmp_path_factory) -> Path:
    """Two runs that differ in their seed alone, and a sweep of two seeds with a program for each."""
    root = tmp_path_factory.mktemp("identity")
    for seed in (3, 4):
        train_run(tiny.replace(steps=10, seed=seed), root / str(seed), progress=False)
    trials = plan("grid", methods="xreg", seeds=2, steps=10, grid=["mask_seed=3"], base=tiny)
    asked = {"name": "grid", "methods": "xreg", "seeds": 2, "grid": ["mask_seed=3"], "config": to_dict(tiny)}
    asked |= {"steps": 10}
    run_sweep(trials, root / "sweep", progress=False, asked=asked, workers=Workers(most_replicas=1))
    return root


@pytest.fixture
def copies(made, tmp_path) -> Path:
    shutil.copytree(made, tmp_path / "made")
    return tmp_path / "made"


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def test_a_model_of_another_run_is_refused(copies):
    shutil.copy(copies / "4" / MODEL, copies / "3")
    with pytest.raises(InputError, match="is corrupted"):
        load_run(copies / "3")
    vouch(copies / "3", MODEL)  # somebody enters it there as well
    with pytest.raises(InputError, match=r"model\.npz: belongs to other settings or data"):
        load_run(copies / "3")
    (copies / "3" / MANIFEST).unlink()
    with pytest.raises(InputError, match=r"manifest\.json: is missing, so the files of the folder cannot be verified"):
        load_run(copies / "3")


def test_a_run_without_its_manifest_is_trained_again(copies, made, tiny, capsys):
    """And not taken as it is, as one of an older version would be."""
    folder = copies / "3"
    (folder / MANIFEST).unlink()
    (folder / "metrics.json").write_text("{}")
    train_run(tiny.replace(steps=10, seed=3), folder, progress=False)
    assert "is missing, so the files of the folder cannot be verified; what cannot be checked is made again" in (
        capsys.readouterr().err
    )
    assert (folder / "metrics.json").read_bytes() == (made / "3" / "metrics.json").read_bytes()


def test_test_fields_of_another_run_are_refused(copies, capsys):
    own = load_run_fields(copies / "3")
    shutil.copy(copies / "4" / FIELDS, copies / "3")
    with pytest.raises(InputError, match=r"test_fields\.npz: is corrupted"):
        load_run_fields(copies / "3")
    assert main(["figures", str(copies / "3"), "--quiet"]) == 0
    assert "maps are left out: " in capsys.readouterr().err
    vouch(copies / "3", FIELDS)
    with pytest.raises(InputError, match="holds the predictions of another model"):
        load_run_fields(copies / "3")
    # Removed, they are made again, and are then in the manifest.
    (copies / "3" / FIELDS).unlink()
    again = load_run_fields(copies / "3")
    np.testing.assert_array_equal(load_run_fields(copies / "3").truth, own.truth)
    np.testing.assert_allclose(again.error, own.error, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["npz", "json"])
@pytest.mark.parametrize("manifest", ["kept", "made again"])
def test_trained_files_of_a_sweep_swapped_between_seeds_are_refused(kind, manifest, copies, tiny, capsys):
    sweep = copies / "sweep"
    programs = read_programs(sweep)
    assert len(programs) == 2
    paths = [sweep / "trained" / f"{program.name}.{kind}" for program in programs]
    swap(*paths)
    if manifest == "made again":
        vouch(sweep, *(path.relative_to(sweep).as_posix() for path in paths))
    [first], [second] = (list(program.trainings) for program in programs)
    for key in (first, second):
        with pytest.raises(InputError, match=r"is corrupted|belongs to other settings or data"):
            Archive(sweep).model(key, 2, (20,))
    command = ["extract", str(sweep), "--out", str(copies / "out"), "--method", "xreg", "--seed", "0", "--quiet"]
    assert main(command) == 2
    assert not (copies / "out").exists()


def test_test_fields_of_a_sweep_are_known_by_their_row(copies):
    sweep = copies / "sweep"
    rows = read_rows(sweep)
    [(key, own)] = load_sweep_fields(sweep, rows[:1]).by_key.items()
    [(other, fields)] = load_sweep_fields(sweep, rows[1:]).by_key.items()
    assert key != other
    assert not np.array_equal(own.error, fields.error)
    swap(*(sweep / "test_fields" / f"{name}.npz" for name in (key, other)))
    np.testing.assert_allclose(load_sweep_fields(sweep, rows[:1]).by_key[key].error, own.error, rtol=2e-3, atol=1e-5)


def test_rows_without_their_digest_are_refused_where_others_have_one(copies):
    path = copies / "sweep" / "rows.jsonl"
    for name in (MANIFEST, *(p.relative_to(copies / "sweep").as_posix() for p in copies.glob("sweep/trained/*.npz"))):
        (copies / "sweep" / name).unlink()
    first, second = path.read_text().splitlines()
    row = {name: value for name, value in json.loads(first).items() if name != "sha256"}
    row["test"]["nll"] = -9.0
    path.write_text(json.dumps(row) + "\n" + second + "\n")
    with pytest.raises(InputError, match="line 1 is corrupted"):
        read_rows(copies / "sweep")
