"""Shared by all tests: the environment, and fixtures of small made-up fields."""

import environment  # noqa: F401, I001 before JAX is imported
import quick_checks  # noqa: F401 before the package is imported

import gc
from pathlib import Path

import pytest

from car_files import REAL_CARS, write_stand_ins
from crossreg.config import Config, DataConfig
from crossreg.data import cache
from crossreg.data.dataset import Data
from crossreg.data.load import make_data
from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories
from crossreg.machine.memory_maps import release_programs
from long_tests import skip_long
from travelling_waves import HORIZON, TEST_HORIZON, make_trajectories


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_long(items)


def pytest_collection_finish() -> None:
    """What was imported stays: it is not looked through for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="module", autouse=True)
def _room_for_programs():
    """A file of tests may take a third of the memory maps that a process can have; without any left, XLA crashes."""
    yield
    release_programs(share=0.2)


@pytest.fixture(scope="session", params=["stand-ins", *(["real"] if REAL_CARS.is_dir() else [])])
def released_cars(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four cars as neuraloperator released them: made-up ones, and the real ones where they are on disk."""
    if request.param == "real":
        return REAL_CARS.parent
    folder = tmp_path_factory.mktemp("cars")
    write_stand_ins(folder)
    return folder


@pytest.fixture(scope="session")
def trajectories() -> Trajectories:
    return make_trajectories()


@pytest.fixture(scope="session")
def data(trajectories: Trajectories) -> Data:
    return make_data(trajectories, DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.7))


@pytest.fixture(scope="session")
def tiny() -> Config:
    """A config of small shapes that trains in a second."""
    return Config().replace(
        train_size=7,
        reg_size=6,
        test_size=4,
        train_horizon=HORIZON,
        test_horizon=TEST_HORIZON,
        width=4,
        num_blocks=3,
        num_modes=5,
        steps=30,
        evaluate_every=10,
        batch_size=6,
        num_samples=4,
        evaluation_samples=5,
    )


@pytest.fixture
def cached_waves(tmp_path, monkeypatch) -> Trajectories:
    """A cache that holds made-up `diff_ks` data, as if copied from another machine."""
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path / "cache"))
    made = make_trajectories()
    name = f"apebench-diff_ks-{POOL_SIZE}x{HORIZON}-{len(TEST_POOL)}x{TEST_HORIZON}"
    cache.write(tmp_path / "cache" / f"{name}.npz", made)
    return made
