"""Small made-up fields for processes of their own, in one or two dimensions."""

import numpy as np

from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories, digest

HORIZON, TEST_HORIZON, CHANNELS = 3, 5, 2


def waves(num_samples: int, horizon: int, seed: int, space: tuple[int, ...]) -> np.ndarray:
    """Travelling waves of random phase and speed, (sample, time + 1, channel, *space)."""
    rng = np.random.default_rng(seed)
    lead = (num_samples, 1, CHANNELS, *(1,) * len(space))
    phase, speed = rng.uniform(0, 2 * np.pi, lead), rng.uniform(0.1, 0.5, lead)
    time = np.arange(horizon + 1).reshape(1, -1, *(1,) * (1 + len(space)))
    along = sum(rng.integers(1, 4, lead) * 2 * np.pi * x for x in np.meshgrid(*map(_grid, space), indexing="ij"))
    return np.sin(along + phase + speed * time).astype(np.float32)


def _grid(points: int) -> np.ndarray:
    return np.arange(points) / points


def made_trajectories(*space: int) -> Trajectories:
    train, test = waves(POOL_SIZE, HORIZON, 0, space), waves(len(TEST_POOL), TEST_HORIZON, 1, space)
    return Trajectories(train, test, {"source": "travelling waves"}, digest(train, test))
