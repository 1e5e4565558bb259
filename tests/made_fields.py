"""Made-up trajectories in known layouts, every axis of a size of its own."""

import numpy as np

SAMPLES, TIMES, CHANNELS = 11, 6, 2
SPACE = {1: (20,), 2: (12, 9), 3: (6, 5, 4)}


def fields(dims: int = 1, channels: int = CHANNELS, samples: int = SAMPLES, times: int = TIMES, seed: int = 0):
    """Waves that travel along a diagonal, (sample, time, channel, *space)."""
    rng = np.random.default_rng(seed)
    space = SPACE[dims]
    phase, speed = (rng.uniform(0.2, 3, (samples, 1, channels, *(1,) * dims)) for _ in range(2))
    time = np.arange(times).reshape(1, -1, 1, *(1,) * dims)
    grids = np.meshgrid(*(np.arange(n) / n for n in space), indexing="ij")
    return np.sin(2 * np.pi * sum(grids) + phase + 0.3 * speed * time).astype(np.float32)


def read_all(source) -> np.ndarray:
    """All of a source."""
    return np.stack([source.frames(sample, slice(None)) for sample in range(source.samples)])
