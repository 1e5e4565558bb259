"""The tiny sweep of these tests: its data, its trials, and what one process makes of it."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tiny_sweep import METHODS, MOST, STEPS, Made, made

from crossreg.config import Config
from crossreg.data import cache
from crossreg.data.trajectories import Trajectories
from crossreg.designs.grids import Trial, plan
from crossreg.studies.launchers.settings import Workers
from crossreg.studies.sweep.run import run_sweep


@pytest.fixture(scope="package")
def _environment(trajectories: Trajectories, tmp_path_factory) -> Iterator[None]:
    """Small data in a cache; workers compute with as many threads as this process, and share compiled programs."""
    folder = tmp_path_factory.mktemp("waves")
    sizes = "-".join(f"{len(part)}x{part.shape[1] - 1}" for part in (trajectories.train, trajectories.test))
    cache.write(folder / f"apebench-diff_ks-{sizes}.npz", trajectories)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSREG_CACHE", str(folder))
        patch.setenv("NPROC", str(len(os.sched_getaffinity(0))))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        yield


@pytest.fixture(scope="package")
def small(tiny: Config) -> Config:
    return tiny.replace(width=2, num_blocks=1, num_samples=2, evaluate_every=20, steps=STEPS)


@pytest.fixture(scope="package")
def trials(small: Config, _environment) -> list[Trial]:
    return plan("grid", methods=METHODS, seeds=2, steps=STEPS, grid=["mask_seed=3"], base=small)


@pytest.fixture(scope="package")
def wanted(trials: list[Trial], tmp_path_factory) -> Made:
    """What one process makes of the sweep, with the same packing."""
    folder = tmp_path_factory.mktemp("whole") / "s"
    run_sweep(trials, folder, progress=False, workers=Workers(most_replicas=MOST))
    return made(folder)


@pytest.fixture(scope="package")
def ray_cluster(_environment) -> Iterator[Any]:
    """Two nodes of one core each, as processes of this machine; this process is connected to them."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def name(request) -> str:
    """The engine of a test, ready to take jobs."""
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return request.param
