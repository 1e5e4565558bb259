"""The folder of a sweep: what was asked for, and the rows that are finished.

sweep.json     what was asked for last, and every start that had something to do, with its versions and device
rows.jsonl     one line per finished trial, whoever asked for it, each with its own SHA-256: the file grows
trained/       the programs, finished or not (`runs/programs.py`)
snapshots/     what programs in training resume from (`runs/safeguards/snapshots.py`)
jobs/          what workers are given and return (`studies/launchers/`)
manifest.json  the SHA-256 of the files that do not grow (`runs/safeguards/manifest.py`)
lock           keeps a second process out (`runs/safeguards/locks.py`)
"""

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from crossreg.config import changed_fields, default_settings, from_dict
from crossreg.designs.grids import Trial, plan
from crossreg.errors import InputError
from crossreg.files.sealed import BYTES, is_sealed, read_sealed
from crossreg.files.whole import (
    check_is_folder,
    check_not_file,
    is_temporary,
    make_folder,
    read_json,
    read_stored,
    replacing,
    writing_to,
)
from crossreg.runs.file_names import JOBS, LOCK, MANIFEST, PLAN, ROWS, SNAPSHOTS, TRAINED
from crossreg.runs.older_names import with_current_names
from crossreg.runs.programs import FORMAT, digest_of, program_in
from crossreg.runs.safeguards.locks import locked
from crossreg.runs.safeguards.manifest import adopt, check_files, is_sound, read_manifest, record_json, recorded
from crossreg.runs.safeguards.saving import USUAL, Saving
from crossreg.runs.safeguards.versions import check_numerics, describe_machine


def trial_key(trial: Trial, digest: str) -> str:
    """Return the identity of a row, on data of this digest."""
    configs = [changed_fields(config) for config in trial.configs] or [changed_fields(trial.config)]
    return digest_of([FORMAT, digest, configs, trial.method.members, trial.method.name])


@contextlib.contextmanager
def open_sweep(
    folder: Path,
    asked: dict[str, Any],
    *,
    keys: Iterable[str] = (),
    saving: Saving = USUAL,
    machine: dict[str, str] | None = None,
) -> Iterator[set[str]]:
    """Make the folder of a sweep, or open that of an earlier one, and keep other processes out of it.

    Args:
        folder: The folder.
        asked: The content of `sweep.json`: the trials that the command asks for.
        keys: The keys of the rows that are wanted.
        saving: Whether to resume under other conditions than before.
        machine: The conditions that the numbers depend on, by default those of this machine.

    Yields:
        The names of finished programs that were corrupted.
    """
    machine = machine or describe_machine()
    check_not_file(folder)
    foreign = {p.name for p in folder.iterdir() if not is_temporary(p)} if folder.exists() else set()
    if PLAN not in foreign and foreign - {LOCK, TRAINED, MANIFEST, SNAPSHOTS, ROWS}:
        raise InputError(f"out {folder}: holds something other than a sweep; choose a new or empty folder")
    with locked(folder, "sweep", inside=[TRAINED, SNAPSHOTS, JOBS]):
        with writing_to(f"out {folder}"):
            make_folder(folder / TRAINED)
            corrupted = _mend(folder, asked.get("data", ""))
            earlier = _read_plan(folder) if is_sound(folder, PLAN) else {}
            rows, before = _good_rows(folder), earlier.get("starts", [])
            starts = before
            if corrupted or not starts or not set(keys) <= rows.keys():
                if starts:
                    check_numerics(starts[-1], machine, str(folder), force=saving.force)
                starts = [*starts, machine]
            if earlier and _called(earlier) != _called(asked):
                print(f"crossreg: {folder} held {_called(earlier)}; its tables now show this sweep", file=sys.stderr)
            record_json(folder, PLAN, asked | {"starts": starts})
            # A line that a kill cut short would spoil the one after it.
            with replacing(folder / ROWS) as file:
                file.write("".join(map(sealed_row, rows.values())).encode())
        made = _made(folder)
        try:
            yield corrupted
        except InputError:
            # A start that was refused before it made anything, as for a snapshot of another machine, does not count:
            # the next one would be compared with it.
            if before and _made(folder) == made:
                record_json(folder, PLAN, asked | {"starts": before})
            raise


def _made(folder: Path) -> tuple[set[str], set[str]]:
    """Return the rows and finished programs of a folder, those of workers that never reported among them."""
    return set(_good_rows(folder)), {path.stem for part in (TRAINED, JOBS) for path in (folder / part).glob("*.npz")}


def _mend(folder: Path, digest: str) -> set[str]:
    """Check what an earlier process has left, report what is corrupted, and restore what can be restored.

    Returns:
        The names of the programs that must be trained again.
    """
    stored = [path for path in (folder / TRAINED).iterdir() if path.suffix in (".json", ".npz", ".jsonl")]
    names = {path: path.relative_to(folder).as_posix() for path in stored}

    def sealed() -> Iterator[str]:
        good = (p for p in stored if is_sealed(p, p.stem) or (p.suffix == ".json" and _is_plan(p, digest)))
        return map(names.__getitem__, good)

    adopt(folder, [*names.values(), *([PLAN] if (folder / PLAN).exists() else [])], sealed, empty=True)
    if (folder / PLAN).exists() and not is_sound(folder, PLAN):
        print(f"crossreg: {folder / PLAN}: is corrupted; written again", file=sys.stderr)
    corrupted = set()
    for path in stored:
        ended = path.with_suffix(".npz")
        if is_sound(folder, names[path]) or (path.suffix == ".jsonl" and not ended.exists()):
            continue
        if path.suffix == ".json":
            print(f"crossreg: {path}: is corrupted; planned again", file=sys.stderr)
            path.unlink()
        elif path.suffix == ".npz":
            corrupted.add(path.stem)
        elif is_sealed(ended, path.stem):
            print(f"crossreg: {path}: is corrupted; written again", file=sys.stderr)
            history = read_sealed(ended, {"history": BYTES}, "program")["history"]
            with recorded(folder, names[path]) as file:
                file.write(history.tobytes())
    return corrupted


def _is_plan(path: Path, digest: str) -> bool:
    """Return whether a file describes the program of its name, with trainings that fit their keys."""
    try:
        program = program_in(path)
    except InputError:
        return False
    fits = all(training.key(digest) == key for key, training in program.trainings.items())
    return fits and digest_of(list(program.trainings)) == path.stem


def _called(asked: dict[str, Any]) -> str:
    """Return what a command asked for, in a few words."""
    parts = [f"a sweep {asked.get('name', '')}".strip()]
    parts += [
        f"--{k.replace('_', '-')} {asked[k]}" for k in ("methods", "seeds", "first_seed", "steps") if asked.get(k)
    ]
    parts += [f"--grid {item}" for item in asked.get("grid", [])]
    # Fields that a later version has added are at their defaults.
    settings = changed_fields(from_dict(asked.get("config", {})))
    return " ".join([*parts, *(f"--{k.replace('_', '-')} {v}" for k, v in settings.items() if k != "steps")])


def sealed_row(row: dict[str, Any]) -> str:
    """Return the line of a row, with its digest."""
    digest = hashlib.sha256(json.dumps(row, allow_nan=False).encode()).hexdigest()
    return json.dumps(row | {"sha256": digest}, allow_nan=False) + "\n"


def _rows_of(folder: Path) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield each line's place, for messages, and its row, or None if it is corrupted.

    A line that a kill has cut short is left out.
    """
    path = folder / ROWS
    text = read_stored(path).decode(errors="replace") if path.exists() else ""
    sealed = read_manifest(folder) is not None or '"sha256": "' in text  # older versions wrote no digests
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        row = None
        try:
            row = json.loads(line)
            digest = row.pop("sha256", None)
            is_good = line + "\n" == sealed_row(row) if sealed or digest else "key" in row
        except (ValueError, TypeError, AttributeError, RecursionError):
            is_good = False
        yield f"{path}: line {number}", row if is_good else None


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Read all finished trials of a folder, each once.

    Raises:
        InputError: If a line is corrupted.
    """
    rows: dict[str, dict[str, Any]] = {}
    for where, row in _rows_of(folder):
        if row is None:
            raise InputError(f"{where} is corrupted; run the same `crossreg sweep` to score it again")
        rows[row["key"]] = with_current_names(row)
    return list(rows.values())


def _good_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the rows as they were written, by their keys; corrupted ones are reported, and scored again."""
    rows: dict[str, dict[str, Any]] = {}
    for where, row in _rows_of(folder):
        if row is None:
            print(f"crossreg: {where} is corrupted; scored again", file=sys.stderr)
        else:
            rows[row["key"]] = row
    return rows


def _read_plan(folder: Path) -> dict[str, Any]:
    if not (folder / PLAN).exists():
        raise InputError(f"{folder}: holds no sweep ({PLAN} is missing)")
    check_files(folder, [PLAN])
    asked = read_json(folder / PLAN, "what `crossreg sweep` writes")
    starts, grid = (asked.get("starts", []), asked.get("grid", [])) if isinstance(asked, dict) else (None, None)
    if not isinstance(starts, list) or not isinstance(grid, list) or not all(isinstance(s, dict) for s in starts):
        raise InputError(f"{folder / PLAN}: expected an object with lists of starts and of the grid")
    return asked


def data_digest(folder: Path) -> str:
    """Return the digest of the trajectories of a sweep, on which the keys of its rows depend."""
    return str(_read_plan(folder).get("data", ""))


def load_trials(folder: Path) -> list[Trial]:
    """Return the trials that a sweep was asked for last."""
    return trials_of(_read_plan(folder), str(folder / PLAN))


def trials_of(asked: dict[str, Any], where: str) -> list[Trial]:
    """Return the trials of the content of a `sweep.json`; `where` names the file in errors."""
    try:
        base = from_dict(asked["config"], where=where)
        if not isinstance(asked["data"], str):  # the keys of rows need it
            raise TypeError("data")
        fields = ("methods", "seeds", "first_seed", "steps", "grid")
        return plan(asked["name"], **{k: asked[k] for k in fields if k in asked}, base=base)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: {error!r} is missing or wrong") from error


def all_rows(folder: Path) -> list[dict[str, Any]]:
    """Return every finished row of a folder, whichever command asked for it; `changes` are all settings it changes."""
    check_is_folder(folder)
    _read_plan(folder)
    defaults = default_settings()
    return [
        row | {"changes": {k: v for k, v in row.get("settings", {}).items() if v != defaults[k]}}
        for row in read_rows(folder)
    ]


def asked_rows(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the finished rows among the trials asked for last, and how many were asked for."""
    check_is_folder(folder)
    trials = load_trials(folder)
    rows = {row["key"]: row for row in read_rows(folder)}
    asked = join(trials, rows, _read_plan(folder)["data"])
    if rows and not asked:
        raise InputError(f"{folder}: its {len(rows)} rows are of earlier sweeps, none of the one asked for last")
    return asked, len(trials)


def join(trials: Sequence[Trial], rows: dict[str, dict[str, Any]], digest: str) -> list[dict[str, Any]]:
    """Return the finished rows in the order of the trials, with the changes as these trials have them."""
    keys = [trial_key(trial, digest) for trial in trials]
    return [rows[k] | {"changes": dict(p.changes)} for k, p in zip(keys, trials, strict=True) if k in rows]
