"""Small made-up fields, in a module of its own: every folder has a `conftest`, and an import takes any of them."""

import numpy as np

from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories, digest

# Every axis has a size of its own.
POINTS, HORIZON, TEST_HORIZON, CHANNELS = 20, 3, 5, 2


def waves(num_samples: int, horizon: int, seed: int, points: int = POINTS, channels: int = CHANNELS) -> np.ndarray:
    """Travelling waves of random phase and speed, (sample, time + 1, channel, x)."""
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 2 * np.pi, (num_samples, 1, channels, 1))
    speed = rng.uniform(0.1, 0.5, (num_samples, 1, channels, 1))
    wave = rng.integers(1, 4, (num_samples, 1, channels, 1))
    time = np.arange(horizon + 1).reshape(1, -1, 1, 1)
    x = np.linspace(0, 2 * np.pi, points, endpoint=False)
    return np.sin(wave * x + phase + speed * time).astype(np.float32)


def make_trajectories(points: int = POINTS, channels: int = CHANNELS) -> Trajectories:
    """A pool of trajectories as long as a scenario's, and its test pool."""
    train = waves(POOL_SIZE, HORIZON, 0, points, channels)
    test = waves(len(TEST_POOL), TEST_HORIZON, 1, points, channels)
    return Trajectories(train, test, {"source": "travelling waves"}, digest(train, test))
