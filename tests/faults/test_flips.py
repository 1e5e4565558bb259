"""500 flipped bits and cut ends over checkpoints, manifests, rows and caches: none is taken for what it is not."""

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from harness import flip

from crossreg.config import to_dict
from crossreg.data import cache
from crossreg.designs.grids import plan
from crossreg.errors import InputError
from crossreg.files.sealed import BYTES, Kind, check_seal, read_sealed, write_sealed
from crossreg.runs.archive import Archive
from crossreg.runs.fields.stored_fields import read_stored_fields
from crossreg.runs.programs import read_programs
from crossreg.runs.run_folder import check_scored, load_run, read_metrics
from crossreg.runs.sweep_folder import load_trials, open_sweep, read_rows
from crossreg.studies.sweep.run import run_sweep
from crossreg.studies.train import train_run
from crossreg.training.checkpoint import load_with
from crossreg.training.replicas import first_snapshot, stack

EACH = 32


@pytest.fixture(scope="module")
def folders(waves, tiny, tmp_path_factory):
    """A run and a sweep, both finished."""
    root = tmp_path_factory.mktemp("flips")
    train_run(tiny.replace(steps=10), root / "run", progress=False)
    trials = plan("grid", methods="xreg", seeds=2, steps=10, grid=["mask_seed=3"], base=tiny)
    asked = {"name": "grid", "methods": "xreg", "seeds": 2, "grid": ["mask_seed=3"], "config": to_dict(tiny)}
    run_sweep(trials, root / "sweep", progress=False, asked=asked)
    shutil.copy(waves, root / "cache.npz")
    return root


def read_snapshot(folder: Path):
    run = load_run(folder)
    [path] = (folder / "snapshots").iterdir()
    return load_with(path, first_snapshot(stack([run.model])), {"history": BYTES})


def read_archive(folder: Path):
    [program] = read_programs(folder)
    archive = Archive(folder)
    for key in program.trainings:
        archive.history(key)
        archive.model(key, 2, (20,))


class Case(NamedTuple):
    """A file, and the reading that must not take it corrupted."""

    file: str
    read: Callable[[Path], object]


CASES = [
    *(Case(f"run/{name}", lambda root: load_run(root / "run")) for name in ("config.yaml", "model.npz", "fields.json")),
    *(Case(f"run/{name}", lambda root: load_run(root / "run")) for name in ("mask.npy", "manifest.json")),
    Case("run/metrics.json", lambda root: read_metrics(root / "run")),
    *(Case(f"run/{name}", lambda root: check_scored(root / "run")) for name in ("metrics.jsonl", "versions.json")),
    Case("run/test_fields.npz", lambda root: read_stored_fields(root / "run" / "test_fields.npz")),
    Case("run/snapshots/*.npz", lambda root: read_snapshot(root / "run")),
    Case("sweep/sweep.json", lambda root: load_trials(root / "sweep")),
    Case("sweep/manifest.json", lambda root: load_trials(root / "sweep")),
    *(Case(f"sweep/trained/*.{end}", lambda root: read_archive(root / "sweep")) for end in ("json", "npz", "jsonl")),
    Case("cache.npz", lambda root: cache.read(root / "cache.npz")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_harm_is_never_silent(case, folders):
    [path] = folders.glob(case.file)
    case.read(folders)  # it is good before
    good, rng = path.read_bytes(), np.random.default_rng(len(case.file))
    for _ in range(EACH):
        how = flip(path, rng)
        try:
            with pytest.raises(InputError) as refusal:
                case.read(folders)
        except BaseException as error:
            raise AssertionError(how) from error
        finally:
            path.write_bytes(good)
        assert "\n" not in str(refusal.value), how
    case.read(folders)


def test_a_row_is_as_it_was_written_or_not_there(folders):
    """A cut may take whole rows away, which the table then says are missing; none is ever changed."""
    path = folders / "sweep" / "rows.jsonl"
    rows, good, rng = read_rows(folders / "sweep"), path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(EACH):
        how = flip(path, rng)
        try:
            found = read_rows(folders / "sweep")
            assert len(found) < len(rows), how
            assert all(row in rows for row in found), how
        except InputError:
            refused += 1
        finally:
            path.write_bytes(good)
    assert refused > EACH / 2


@pytest.mark.parametrize("text", ["[]", "5", '{"starts": [5]}', '{"starts": 5}', '{"grid": 5}', "[" * 100_000])
def test_a_plan_that_nobody_vouches_for_is_refused_in_a_line(text, tmp_path):
    """As an older version may have left it, without a manifest: whatever it holds."""
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(InputError, match=r"sweep\.json: "):
        load_trials(tmp_path)
    with pytest.raises(InputError, match=r"sweep\.json: "), open_sweep(tmp_path, {}):
        pass


def test_there_are_as_many_as_are_promised():
    assert EACH * (len(CASES) + 1) >= 500


def test_sizes_and_shapes_are_checked_before_anything_is_allocated(tmp_path):
    """A header that promises 8 EiB, in a file whose seal is right."""
    path = tmp_path / "a.npz"
    write_sealed(path, {"a": np.arange(6, dtype=np.float32), "b": np.zeros(3, np.int32)}, identity="me")
    assert check_seal(path) == "me"
    float32 = np.dtype(np.float32)
    np.testing.assert_array_equal(read_sealed(path, {"a": Kind((6,), float32)}, "x")["a"], np.arange(6))
    for kind, message in (
        ({"a": Kind((7,), float32)}, r"a is float32\(6,\), not float32\(7,\)"),
        ({"b": Kind((3,), float32)}, "b is int32"),
        ({"c": Kind((3,), float32)}, "has no array c"),
    ):
        with pytest.raises(InputError, match=message):
            read_sealed(path, kind, "x")
    with pytest.raises(InputError, match="other settings or data"):
        read_sealed(path, {}, "x", identity="another")
    shape = (2**31, 2**30)
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with zipfile.ZipFile(path, "w") as archive:
        member = io.BytesIO()
        np.lib.format.write_array_header_1_0(member, header)
        archive.writestr("a.npy", member.getvalue() + b"\0" * 8)
    with pytest.raises(InputError, match="but holds 8 bytes"):
        read_sealed(path, {"a": Kind(shape, float32)}, "x")
    np.savez(path, a=np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="not a readable x"):
        read_sealed(path, {"a": Kind((1,), np.dtype(object))}, "x")
