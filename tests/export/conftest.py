"""Run folders with made-up numbers in place of trained ones."""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from crossreg.config import Config
from crossreg.data.load import make_data
from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories, digest
from crossreg.nn.build import build_model
from crossreg.runs.file_names import MODEL
from crossreg.runs.run_writer import open_run
from crossreg.runs.safeguards.manifest import vouch
from crossreg.training.checkpoint import save_model


@pytest.fixture(scope="session")
def make_run_folder() -> Callable[[Path, Config, tuple[int, ...]], Path]:
    return _make_run_folder


def _make_run_folder(folder: Path, config: Config, field_shape: tuple[int, ...]) -> Path:
    """A finished run on fields of this shape (channel, *space). No array of its model is at its start."""
    rng = np.random.default_rng(3)
    assert config.data.train_horizon is not None
    assert config.data.test_horizon is not None
    sizes = ((POOL_SIZE, config.data.train_horizon + 1), (len(TEST_POOL), config.data.test_horizon + 1))
    train, test = (rng.normal(size=(*size, *field_shape)).astype(np.float32) for size in sizes)
    data = make_data(Trajectories(train, test, {"source": "normal numbers"}, digest(train, test)), config.data)
    model = build_model(config.model, data.train, key=jax.random.key(5))
    leaves, structure = jax.tree.flatten(model)
    moved = [
        leaf + 0.1 * rng.normal(size=leaf.shape).astype(np.float32) if hasattr(leaf, "shape") else leaf
        for leaf in leaves
    ]
    open_run(folder, config, data)
    save_model(folder / MODEL, jax.tree.unflatten(structure, moved))
    vouch(folder, MODEL)
    return folder
