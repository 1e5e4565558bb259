"""Run by `test_batches.py` with four virtual devices: a 2-D model whose batches several devices share.

    python batches.py FOLDER memory-1 file-2 …

trains on FOLDER/waves.npy, one after the other, on so many devices, with data in memory or in files, and writes what it
finds as FOLDER/memory-1.npz and so on.
"""

import sys
from pathlib import Path

import numpy as np

from crossreg.config import Config
from crossreg.data.load import load_config
from crossreg.machine.devices import use_devices
from crossreg.runs.safeguards.snapshots import HistoryLines, Resumable
from crossreg.training.checkpoint import named_arrays
from crossreg.training.cohort import start_cohort
from crossreg.training.parallel import over_batches


def config_of(folder: Path, *, in_memory: bool) -> Config:
    """Batches of 5, which neither 2 nor 4 devices divide; masks that are drawn at every step."""
    own = {"train_size": 6, "reg_size": 4, "test_size": 2, "train_horizon": None, "test_horizon": None}
    model = {"width": 4, "num_blocks": 1, "num_modes": 3}
    train = {"steps": 9, "evaluate_every": 4, "k_reg": 3, "settle": 0.3, "batch_size": 5, "num_samples": 3}
    return Config().replace(
        data=str(folder / "waves.npy"),
        in_memory_gib=1.0 if in_memory else 0.0,
        observed_fraction=0.6,
        mask_per="step",
        score_on="observed",
        evaluation_samples=4,
        **own,
        **model,
        **train,
    )


def train(folder: Path, name: str, *, in_memory: bool) -> None:
    config = config_of(folder, in_memory=in_memory)
    started = start_cohort([config], [load_config(config.data)])
    training = Resumable(*started, HistoryLines(None, lambda record: []), layout=over_batches())
    records = [report.record for report in training.reports() if report.record is not None]
    found = {name: np.asarray(array) for name, array in named_arrays(training.snapshot).items()}
    for field in ("train_loss", "reg_loss", "reg_nll", "reg_ece"):
        found[field] = np.stack([getattr(record, field) for record in records])
    np.savez(folder / name, allow_pickle=False, **found)


if __name__ == "__main__":
    for argument in sys.argv[2:]:
        kind, devices = argument.split("-")
        use_devices(int(devices))
        train(Path(sys.argv[1]), f"{argument}.npz", in_memory=kind == "memory")
