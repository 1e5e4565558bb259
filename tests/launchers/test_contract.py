"""What every engine keeps: the rows of one process, a second try for a lost worker, and an end where a job fails."""

from pathlib import Path

import pytest
from tiny_sweep import ENGINES, METHODS, MOST, OFTEN, STEPS, Killer, check_whole, engine, workers

from crossreg.cli.main import main
from crossreg.config import to_yaml
from crossreg.studies.sweep.run import run_sweep
from long_tests import long

pytestmark = pytest.mark.filterwarnings("ignore:os.fork")  # Ray's children only start other programs
every_engine = pytest.mark.parametrize("name", [engine(name) for name in ENGINES], indirect=True)
# The others start more processes than a quick suite has time for.
local_at_once = pytest.mark.parametrize(
    "name", [engine(name, *([] if name == "local" else [long])) for name in ENGINES], indirect=True
)


@long  # the kill below holds every engine to the same rows
@every_engine
def test_a_sweep_by_workers_is_the_same(name, trials, wanted, tmp_path):
    rows = run_sweep(trials, tmp_path / "s", progress=False, workers=workers(name))
    assert [row["method"] for row in rows] == [trial.method.name for trial in trials]
    check_whole(tmp_path / "s", wanted)


@every_engine
def test_the_job_of_a_killed_worker_is_done_by_another(name, trials, wanted, tmp_path, capfd):
    with Killer(tmp_path / "s") as killer:
        run_sweep(trials, tmp_path / "s", progress=False, saving=OFTEN, workers=workers(name))
    [(job, _)] = killer.killed
    assert f"job {job}" in (said := capfd.readouterr().err)
    assert "tried again" in said
    assert "given up" not in said
    check_whole(tmp_path / "s", wanted)


@local_at_once
def test_a_job_that_always_fails_is_said_and_the_others_end(name, small, wanted, tmp_path, capfd):
    bad = min(Path(file).stem for file in wanted.files)
    folder = tmp_path / "s"
    (tmp_path / "c.yaml").write_text(to_yaml(small))
    command = ["sweep", "grid", "--grid", "mask_seed=3", "--seeds", "2", "--steps", str(STEPS), "--quiet"]
    command += ["--config", str(tmp_path / "c.yaml"), "--out", str(folder), "--most-replicas", str(MOST), "--methods"]
    assert main([*command, "persistence"]) == 0
    (in_the_way := folder / "jobs" / f"{bad}.lock").mkdir(parents=True)
    command.append(METHODS)
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in ENGINES[name].items()]
    assert main([*command, *flags]) == 5
    said = capfd.readouterr().err
    assert said.count("tried again") == said.count("given up") == 1
    assert f"job {bad}" in said
    assert "Is a directory" in said
    missing = [row for row in wanted.rows if row not in made_rows(folder)]
    assert missing
    assert made_rows(folder) == [row for row in wanted.rows if row not in missing]
    assert f"{len(missing)} of {len(wanted.rows)} runs are not finished" in (folder / "table.md").read_text()

    # Out of the way, the same command does what is missing, and nothing else.
    in_the_way.rmdir()
    assert main([*command, *flags]) == 0
    check_whole(folder, wanted)


def made_rows(folder: Path) -> list[str]:
    return sorted((folder / "rows.jsonl").read_text().splitlines())
