"""Shared by the fault tests: small data in a cache, for this process and for those that it starts."""

from pathlib import Path

import pytest

from crossreg.config import Config, to_yaml
from crossreg.data import cache
from crossreg.data.trajectories import Trajectories


@pytest.fixture(scope="module")
def waves(trajectories: Trajectories, tmp_path_factory):
    """A cache with made-up `diff_ks` data; gives the cached file."""
    folder = tmp_path_factory.mktemp("waves")
    sizes = "-".join(f"{len(part)}x{part.shape[1] - 1}" for part in (trajectories.train, trajectories.test))
    path = folder / f"apebench-diff_ks-{sizes}.npz"
    cache.write(path, trajectories)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSREG_CACHE", str(folder))
        yield path


@pytest.fixture(scope="module")
def config_file(tiny: Config, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("config") / "c.yaml"
    path.write_text(to_yaml(tiny.replace(evaluate_every=20)))
    return path
