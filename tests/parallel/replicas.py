"""Run by `test_replicas.py` with four virtual devices: three replicas on one, two and four of them.

    python replicas.py FOLDER

writes what it finds as FOLDER/results.npz.
"""

import sys
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from fields import made_trajectories

from crossreg.config import Config
from crossreg.data.load import make_data
from crossreg.errors import InputError
from crossreg.machine.devices import use_devices
from crossreg.runs.safeguards.saving import Saving
from crossreg.runs.safeguards.snapshots import HistoryLines, Resumable, SnapshotStore
from crossreg.training.checkpoint import named_arrays
from crossreg.training.cohort import start_cohort
from crossreg.training.loop import train_replicas

STEPS = {"steps": 12, "evaluate_every": 5, "k_reg": 3, "settle": 0.3, "batch_size": 5, "num_samples": 3}
SIZES = {"reg_size": 6, "test_size": 4, "train_horizon": 3, "test_horizon": 5, "evaluation_samples": 4}


def started():
    configs = [
        Config().replace(width=4, num_blocks=1, num_modes=3, seed=s, train_size=7 - s, **STEPS, **SIZES)
        for s in range(3)
    ]
    trajectories = made_trajectories(20)
    return start_cohort(configs, [make_data(trajectories, config.data) for config in configs])


def arrays(snapshot) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in named_arrays(snapshot).items()}


def resumable(folder: Path, *, force: bool = False) -> Resumable:
    kept = SnapshotStore(folder, "three", "three", Saving(every=0.0, force=force))
    return Resumable(*started(), HistoryLines(folder / "history.jsonl", lambda r: [r.of(i) for i in range(3)]), kept)


def main(folder: Path) -> None:
    found: dict[str, np.ndarray] = {}
    for devices in (1, 2, 4):
        use_devices(devices)
        training = Resumable(*started(), HistoryLines(None, lambda record: []))
        reports = list(training.reports())
        report, records = reports[-1], [report.record for report in reports if report.record is not None]
        found |= {f"{devices}/models/{k}": v for k, v in arrays(report.models).items() if v.dtype.kind == "f"}
        found |= {f"{devices}/snapshot/{k}": v for k, v in arrays(training.snapshot).items()}
        for name in ("train_loss", "reg_loss", "reg_nll", "reg_ece"):
            found[f"{devices}/record/{name}"] = np.stack([getattr(record, name) for record in records])
        found[f"{devices}/used"] = np.asarray(report.layout.num_devices)

    use_devices(2)
    # The last replica, which fills the second device up, is broken before its first step.
    models, tasks, config = started()
    broken = eqx.tree_at(lambda m: m.heads.mean.bias, models, models.heads.mean.bias.at[2].set(jnp.nan))
    *_, report = train_replicas(broken, tasks, config)
    assert report.record is not None
    found["diverged"] = np.asarray([*report.record.diverged_at, report.record.mean()["diverged"]])

    stopped = folder / "stopped"
    stopped.mkdir()
    for report in (training := resumable(stopped)).reports():
        if report.step >= 6:
            training.save()
            break
    use_devices(1)
    try:
        resumable(stopped)
    except InputError as error:
        found["refused"] = np.asarray(str(error))
    resumable(stopped, force=True)
    use_devices(2)
    again = resumable(stopped)
    found["begun_at"] = np.asarray(again.begun_at)
    list(again.reports())
    found |= {f"resumed/snapshot/{k}": v for k, v in arrays(again.snapshot).items()}
    try:
        use_devices(5)
    except InputError as error:
        found["too many"] = np.asarray(str(error))
    np.savez(folder / "results.npz", allow_pickle=False, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
