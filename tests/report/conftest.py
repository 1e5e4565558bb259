"""Shared by the tests of figures, of car runs, and those of `crossreg watch`."""

import dataclasses
import shutil
import threading
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from browsing import CHROMIUM
from made_car_run import NAMES, write_folder
from made_runs import write_run
from watch_folders import Client, write_all

from crossreg.cars.family.bodies import resolution
from crossreg.cars.family.make import draw_shapes, make_car
from crossreg.config import Config
from crossreg.data import cache
from crossreg.methods.names import config_of
from crossreg.report.figures import drawing as figures
from crossreg.report.figures import sweep as sweep_figures
from crossreg.report.figures import training as training_figures
from crossreg.report.watch import listing
from crossreg.report.watch.server import WatchServer
from crossreg.studies.train import train_run


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def runs(tmp_path):
    """Two methods in two regimes, three seeds of each, one of them two folders down."""
    root = tmp_path / "all runs"
    for method, offset in (("xreg", 0.0), ("dropout", 1.0)):
        for fraction in (0.5, 0.9):
            for seed in range(3):
                config = config_of(method, Config().replace(observed_fraction=fraction, seed=seed, steps=150))
                deeper = "more/" if seed == 2 else ""
                write_run(
                    root / f"{deeper}{method}-{fraction}-{seed}", config, offset + fraction + 0.1 * seed,
                    with_fields=seed == 0,
                )  # fmt: skip
    return root


@pytest.fixture
def kept(monkeypatch):
    """Figures stay open, so that a test can read what was drawn."""
    drawn = []
    for module in (figures, sweep_figures, training_figures):
        monkeypatch.setattr(module, "save", lambda figure, path: drawn.append(figure) or [path])
    yield drawn
    plt.close("all")


@pytest.fixture
def watched(tmp_path):
    """Runs of every kind, a secret beside them, and links to it."""
    return write_all(tmp_path)


@pytest.fixture
def client(watched, monkeypatch):
    """A client of a server over these runs, which looks at them anew for every request."""
    monkeypatch.setattr(listing, "_SECONDS_BETWEEN_LOOKS", 0.0)
    with WatchServer(watched, seconds=1.0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Client(server)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def cars():
    """Cars of two sizes, and one without faces."""
    shapes = draw_shapes(len(NAMES), seed=2)
    points = (430, 430, 714, 714, 430)
    made = [make_car(s, resolution(n), name) for s, n, name in zip(shapes, points, NAMES, strict=True)]
    return [*made[:-1], dataclasses.replace(made[-1], faces=None)]


@pytest.fixture
def car_folder(cars, tmp_path):
    """The folder of a car run."""
    return write_folder(tmp_path, cars)


@pytest.fixture(scope="session")
def trained(tmp_path_factory, trajectories, tiny):
    """The folder of a run that was trained and scored; its data are in the cache beside its parent."""
    root = tmp_path_factory.mktemp("trained")
    horizons = (trajectories.train.shape[1] - 1, trajectories.test.shape[1] - 1)
    sizes = f"{len(trajectories.train)}x{horizons[0]}-{len(trajectories.test)}x{horizons[1]}"
    cache.write(root / "cache" / f"apebench-diff_ks-{sizes}.npz", trajectories)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSREG_CACHE", str(root / "cache"))
        train_run(tiny, root / "runs" / "xreg", progress=False)
    return root / "runs" / "xreg"


@pytest.fixture
def run(trained, tmp_path):
    """A copy of that run, in a folder of runs of its own."""
    return Path(shutil.copytree(trained, tmp_path / "runs" / "xreg"))
