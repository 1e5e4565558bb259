"""Sweeps whose rows have scores of forecasts, stopped while ρ learns from rollouts and while they are scored."""

import shutil

import pytest

from crossreg.designs.grids import plan
from crossreg.runs.sweep_folder import read_rows
from crossreg.studies.sweep import run as module
from crossreg.studies.sweep import scoring
from crossreg.studies.sweep.run import run_sweep
from crossreg.training import loop

STEPS = 8
# ρ learns from single steps after steps 2 and 4, and from rollouts after each that follows.
SETTINGS = {"num_blocks": 1, "k_reg": 2, "settle": 0.5, "rollout_particles": 3, "rollout_steps": 4, "evaluate_every": 4}


@pytest.fixture
def trials(cached_waves, tiny):
    """Two rows, whose trainings are one program."""
    base = tiny.replace(**SETTINGS)
    return plan("grid", methods="xreg-rollout", seeds=2, steps=STEPS, grid=["reg_horizon=3"], base=base)


def test_a_sweep_stopped_while_it_learns_from_rollouts_ends_in_the_same_rows(trials, tmp_path, monkeypatch):
    """Stopped before the first update of ρ from rollouts and after two; and killed before the third is saved."""
    monkeypatch.setattr(loop, "_CHUNK_SECONDS", 1e-9)  # a look after few steps
    whole, stopped, killed = (tmp_path / name for name in ("whole", "stopped", "killed"))
    run_sweep(trials, whole, progress=False)
    stops, steps = [4, 5, 6], []

    class Stopping(module.SweepDisplay):
        def update(self, report):
            super().update(report)
            steps.append(report.step)
            if stops and report.step == stops[0]:
                if report.step == 6:
                    shutil.copytree(stopped, killed)  # as a kill leaves it
                raise KeyboardInterrupt

    monkeypatch.setattr(module, "SweepDisplay", Stopping)
    while stops:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(trials, stopped, progress=False)
        del stops[0]
    for folder, begins in ((stopped, 7), (killed, 6)):
        steps.clear()
        run_sweep(trials, folder, progress=False)
        assert (steps[0], steps[-1]) == (begins, STEPS)
        assert all(len(row["rollouts"]["crps"]) == 4 for row in read_rows(folder))
        assert (folder / "rows.jsonl").read_bytes() == (whole / "rows.jsonl").read_bytes()


def test_a_sweep_killed_between_training_and_forecasts_ends_in_the_same_rows(trials, tmp_path, monkeypatch):
    """Folders as a kill leaves them before the forecasts of each row; nothing is trained again."""
    real, killed = scoring.rollout_scores, []

    def killing(*arguments, **how):
        killed.append(tmp_path / f"killed {len(killed)}")
        shutil.copytree(tmp_path / "whole", killed[-1])
        return real(*arguments, **how)

    with monkeypatch.context() as patch:
        patch.setattr(scoring, "rollout_scores", killing)
        run_sweep(trials, tmp_path / "whole", progress=False)
    monkeypatch.setattr(loop, "train_replicas", None)
    for number, folder in enumerate(killed):
        assert len(read_rows(folder)) == number
        run_sweep(trials, folder, progress=False)
        assert (folder / "rows.jsonl").read_bytes() == (tmp_path / "whole" / "rows.jsonl").read_bytes()
    assert len(killed) == 2
