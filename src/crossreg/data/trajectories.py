"""Trajectories in memory: a train set and a test set of one system, and their origin."""

import hashlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Trajectories(NamedTuple):
    """Two sets of trajectories of one system.

    Attributes:
        train: the pool that train and reg trajectories are taken from.
        test: trajectories that are only scored.
        origin: what generated them.
        digest: SHA-256 of both arrays.
    """

    train: Float[np.ndarray, "sample time channel *space"]
    test: Float[np.ndarray, "test_sample test_time channel *space"]
    origin: dict[str, str]
    digest: str


def digest(*arrays: np.ndarray) -> str:
    """Return the SHA-256 of the shapes, types and bytes of arrays."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(f"{array.dtype.str}{array.shape}".encode())
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()
