"""The driver by itself: workers that answer twice, or whose files are not what they should be."""

from pathlib import Path
from typing import ClassVar

import pytest
from tiny_sweep import MOST, OFTEN, check_whole, workers

from crossreg.designs.grids import plan
from crossreg.runs.programs import read_programs
from crossreg.studies.launchers.base import Job, Launcher, Outcome
from crossreg.studies.launchers.settings import Workers
from crossreg.studies.launchers.work import work
from crossreg.studies.sweep import run as sweep
from crossreg.studies.sweep.run import run_sweep


class Here(Launcher):
    """Does jobs in this process, one at each look."""

    def __init__(self, _, folder: Path):
        super().__init__()
        self.folder, self.queue = folder, self._queue

    def memory(self) -> int:
        return 2**30

    def room(self) -> int:
        return 2

    def _hand_out(self) -> None:
        pass

    def ended(self, seconds: float) -> list[tuple[Job, Outcome]]:
        job = self.queue.popleft()
        return [(job, work(job))]

    def cancel(self) -> None:
        self.queue.clear()


class Refusing(Here):
    """Ends every job with an error, and trains nothing."""

    again = False
    taken: ClassVar[list[str]] = []

    def ended(self, seconds):
        job = self.queue.popleft()
        self.taken.append(job.name)
        return [(job, Outcome(error="cannot be", again=self.again))]


@pytest.mark.parametrize("again", [False, True])
def test_what_no_other_try_would_mend_is_not_tried_again(again, trials, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sweep, "open_launcher", Refusing)
    monkeypatch.setattr(Refusing, "again", again)
    monkeypatch.setattr(Refusing, "taken", taken := [])
    rows = run_sweep(trials, tmp_path / "s", progress=False, workers=workers("local"))
    # Three programs and the rows of persistence, which needs none; nothing that has failed is a row.
    assert rows == []
    tries = {name: taken.count(name) for name in taken}
    assert list(tries.values()) == [1 + again] * 4
    said = capfd.readouterr().err
    assert said.count("given up") == 4
    assert said.count("tried again") == 4 * again
    assert "4 of 4 jobs failed" in said


def test_the_longest_jobs_go_out_first(small, trials, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "open_launcher", Refusing)
    monkeypatch.setattr(Refusing, "taken", taken := [])
    asked = [
        trial
        for steps in (40, 400, 160)
        for trial in plan("grid", methods="unregularized", seeds=1, steps=steps, grid=["mask_seed=3"], base=small)
    ]
    run_sweep(asked, tmp_path / "s", progress=False, workers=workers("local"))
    steps = {program.name: program.config.train.steps for program in read_programs(tmp_path / "s")}
    assert [steps[name] for name in taken] == [400, 160, 40]


def test_a_trained_file_that_is_harmed_is_made_again(trials, wanted, tmp_path, monkeypatch, capfd):
    """Between the worker and the driver, by a disk that they share."""
    corrupted = []

    class Harming(Here):
        def ended(self, seconds):
            [(job, outcome)] = super().ended(seconds)
            if job.train and job.name not in corrupted and len(corrupted) < 2:
                file = self.folder / "jobs" / f"{job.name}.npz"
                if corrupted:
                    file.unlink()
                else:
                    file.write_bytes(file.read_bytes()[:-100] + b"?" * 100)
                corrupted.append(job.name)
            return [(job, outcome)]

    monkeypatch.setattr(sweep, "open_launcher", Harming)
    run_sweep(trials, tmp_path / "s", progress=False, saving=OFTEN, workers=workers("local"))
    said = capfd.readouterr().err
    assert said.count("not a readable program") >= 2
    assert said.count("tried again") == 2
    assert "given up" not in said
    check_whole(tmp_path / "s", wanted)


def test_a_job_that_is_tried_again_does_not_wait_for_shorter_ones(trials, wanted, tmp_path, monkeypatch):
    done = []

    class Losing(Here):
        def ended(self, seconds):
            if not done:
                done.append(self.queue[0].name)
                return [(self.queue.popleft(), Outcome(error="its worker was lost"))]
            done.append(self.queue[0].name)
            return super().ended(seconds)

    monkeypatch.setattr(sweep, "open_launcher", Losing)
    run_sweep(trials, tmp_path / "s", progress=False, workers=workers("local"))
    assert done[0] == done[1]
    assert len(done) == len(set(done)) + 1
    check_whole(tmp_path / "s", wanted)


def test_a_job_that_ends_twice_is_taken_once(trials, wanted, tmp_path, monkeypatch):
    """As where a worker that was thought lost answers after all."""

    class Repeating(Here):
        def ended(self, seconds):
            return 2 * super().ended(seconds)

    monkeypatch.setattr(sweep, "open_launcher", Repeating)
    run_sweep(trials, tmp_path / "s", progress=False, workers=workers("local"))
    check_whole(tmp_path / "s", wanted)


def test_one_process_ends_what_workers_have_begun(trials, wanted, tmp_path, monkeypatch):
    """A driver that is gone has left a trained file that it did not take in, and one that was half written."""

    class Leaving(Here):
        def ended(self, seconds):
            [(job, _)] = super().ended(seconds)
            if job.train:
                raise KeyboardInterrupt
            return []

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "open_launcher", Leaving)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(trials, tmp_path / "s", progress=False, workers=workers("local"))
    [left] = [file for file in (tmp_path / "s" / "jobs").glob("*.npz") if file.stem != "data"]
    left.with_name(f"{left.name}.1-00000000.crossreg.tmp").write_bytes(b"PK")
    run_sweep(trials, tmp_path / "s", progress=False, workers=Workers(most_replicas=MOST))
    check_whole(tmp_path / "s", wanted)


# As a user might call them, beside what the package does: a program's name has 20 hexadecimal digits.
THEIRS = ("notes.txt", "plan.lock", "worker-notes.log", "more/token", "slurm/read me.txt", "0123456789abcdef.npz")
OURS = ("data.npz", "token", "worker-11.log", "0123456789abcdef0123.lock", "a.npz.7-0123abcd.crossreg.tmp")
OURS += ("slurm/12_submission.sh", "slurm/12_3_submitted.pkl", "slurm/12_3_0_result.pkl", "slurm/12_3_0_log.err")
OURS += ("slurm/0123456789abcdef0123456789abcdef.pkl",)


def _put(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"in {name}")


@pytest.mark.parametrize("by_workers", [True, False])
def test_files_of_a_user_among_the_jobs_stay(by_workers, small, trials, tmp_path, monkeypatch):
    """Whoever ends the sweep: workers, or one process that finds what workers have left."""
    monkeypatch.setattr(sweep, "open_launcher", Here)
    folder, asked = tmp_path / "s", plan("grid", methods="persistence", grid=["mask_seed=3"], base=small)
    how = workers("local") if by_workers else Workers()
    run_sweep(asked, folder, progress=False, workers=how)
    assert not (folder / "jobs").exists()
    _put(folder / "jobs", OURS)
    run_sweep(asked, folder, progress=False, workers=how)
    assert not (folder / "jobs").exists()
    _put(folder / "jobs", (*THEIRS, *OURS))
    run_sweep(asked, folder, progress=False, workers=how)
    left = {path.relative_to(folder / "jobs").as_posix(): path for path in (folder / "jobs").rglob("*")}
    assert {name: path.read_text() for name, path in left.items() if path.is_file()} == {n: f"in {n}" for n in THEIRS}
    assert {name for name, path in left.items() if path.is_dir()} == {"more", "slurm"}
