"""Trajectories in memory: a train set and a test set of one system, and their origin."""

import hashlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Trajectories(NamedTuple):
    """Two sets of trajectories of one system.

    Attributes:
        train: The pool that train and reg trajectories are taken from, (trajectory, time, channel, *space).
        test: Trajectories that are only scored.
        origin: What generated them.
        digest: The SHA-256 of both arrays.

    Example:
        ```python
        u = np.load("flow.npy")  # (trajectory, time, channel, x)
        trajectories = xr.data.Trajectories(u[:10], u[10:], {"source": "flow.npy"}, digest="flow")
        ```
    """

    train: Float[np.ndarray, "trajectory time channel *space"]
    test: Float[np.ndarray, "test_trajectory test_time channel *space"]
    origin: dict[str, str]
    digest: str


def digest(*arrays: np.ndarray) -> str:
    """Return the SHA-256 of the shapes, types and bytes of arrays."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(f"{array.dtype.str}{array.shape}".encode())
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()
