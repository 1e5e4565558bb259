"""APEBench scenarios by name, made once and kept in the cache. `apebench` is imported only to make or list them."""

import contextlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossreg.config import DataConfig
from crossreg.data.cache import load_or_generate
from crossreg.data.checks import check_trajectories
from crossreg.data.split import POOL_SIZE, REG_POOL, TEST_POOL, TRAIN_POOL, Split
from crossreg.data.trajectories import Trajectories, digest
from crossreg.errors import InputError, did_you_mean
from crossreg.files.cache_folder import cache_folder
from crossreg.files.memory import check_room

# Copies of the trajectories in memory while they are generated, sorted and handed over.
_COPIES = 3
_POOLS = Split(TRAIN_POOL, REG_POOL, TEST_POOL)


def cached_file(config: DataConfig) -> Path:
    """Return the file in the cache that a scenario's trajectories are stored in once they are generated."""
    parts = [
        "apebench",
        config.scenario,
        f"{POOL_SIZE}x{_pool_steps(config)}",
        f"{len(TEST_POOL)}x{config.test_horizon}",
    ]
    if config.num_spatial_dims is not None:
        parts.append(f"{config.num_spatial_dims}d")
    if config.num_points is not None:
        parts.append(f"{config.num_points}points")
    if not config.scenario.isidentifier():
        raise InputError(f"scenario is {config.scenario}: not the name of an APEBench scenario")
    return cache_folder() / f"{'-'.join(parts)}.npz"


def _pool_steps(config: DataConfig) -> int:
    """Return the steps of the trajectories that train and reg are the first steps of."""
    return max(config.horizons[0], config.reg_pairs_per_row)


def load_trajectories(config: DataConfig) -> Trajectories:
    """Return the trajectories of a scenario: 150 of its train seed and 30 of its test set.

    They are read from the cache; if they are not there, APEBench generates them.

    Args:
        config: The scenario, its grid and its horizons.

    Returns:
        The trajectories.

    Raises:
        InputError: If there is no such scenario, or it is not in the cache and APEBench is not installed.

    Example:
        ```python
        config = xr.DataConfig(scenario="diff_ks", train_horizon=10, test_horizon=200)
        trajectories = xr.data.load_trajectories(config)
        ```
    """
    path = cached_file(config)
    found = load_or_generate(path.stem, lambda: generate(config))
    # The cached file may have been copied here from anywhere, under any name.
    found = check_trajectories(found, _POOLS, f"scenario is {config.scenario}")
    _check_named(path, found, config)
    return found


def _check_named(path: Path, found: Trajectories, config: DataConfig) -> None:
    """Raise InputError if a cached file holds the trajectories of another scenario, grid or number of steps."""
    steps, space = (found.train.shape[1] - 1, found.test.shape[1] - 1), found.train.shape[3:]
    asked = config.num_points, config.num_spatial_dims
    fits = all(value in (None, own) for value, own in zip(asked, (space[0], len(space)), strict=True))
    source = str(dict(found.origin).get("source", ""))
    is_named = source == f"apebench {config.scenario}" or not source.startswith("apebench ")
    if not (is_named and fits and steps == (_pool_steps(config), config.horizons[1])):
        raise InputError(
            f"{path}: holds {source or 'trajectories'} on {space} points, with {steps[0]} steps to learn from and"
            f" {steps[1]} to test, and is named for others; remove or rename it"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep APEBench's progress bars out of the log."""
    before = os.environ.get("TQDM_DISABLE")
    os.environ["TQDM_DISABLE"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TQDM_DISABLE"]
        else:
            os.environ["TQDM_DISABLE"] = before


def scenario_names() -> tuple[str, ...]:
    """Return the names of APEBench's scenarios; none if it is not installed."""
    try:
        with _quiet():
            import apebench
    except ImportError:
        return ()
    return tuple(apebench.scenarios.scenario_dict)


def generate(config: DataConfig) -> Trajectories:
    """Run the scenario's reference stepper, on the CPU so that machines with different accelerators agree."""
    try:
        with _quiet():
            import apebench
    except ImportError as error:
        raise InputError(
            f"scenario is {config.scenario}: no cached data in CROSSREG_CACHE and apebench is not installed"
            " (install it, or copy the cached file from a machine that has it)"
        ) from error
    import importlib.metadata

    import jax
    import numpy as np

    scenarios = apebench.scenarios.scenario_dict
    if config.scenario not in scenarios:
        hint = did_you_mean(config.scenario, scenarios, f"; there are {', '.join(scenarios)}", most=3)
        raise InputError(f"scenario is {config.scenario}: not one of APEBench's {len(scenarios)} scenarios{hint}")
    options = {
        "num_train_samples": POOL_SIZE,
        "train_temporal_horizon": _pool_steps(config),
        "num_test_samples": len(TEST_POOL),
        "test_temporal_horizon": config.test_horizon,
    }
    if config.num_spatial_dims is not None:
        options["num_spatial_dims"] = config.num_spatial_dims
    if config.num_points is not None:
        options["num_points"] = config.num_points
    print(f"generating {config.scenario}, once for this machine …", file=sys.stderr, flush=True)
    with jax.default_device(jax.devices("cpu")[0]), _quiet():
        try:
            scenario = scenarios[config.scenario](**options)
            _check_size(config, scenario)
            train = np.asarray(scenario.get_train_data())
            test = np.asarray(scenario.get_test_data())
        except InputError:
            raise
        except (ValueError, TypeError) as error:
            raise InputError(f"scenario is {config.scenario}: APEBench refuses these settings ({error})") from error
    versions = {p: importlib.metadata.version(p) for p in ("apebench", "exponax", "jax", "jaxlib", "numpy")}
    origin = {"source": f"apebench {config.scenario}", "machine": platform.machine(), **versions}
    made = Trajectories(train, test, origin, digest(train, test))
    return check_trajectories(made, _POOLS, f"scenario is {config.scenario}")  # before anything is stored


def _check_size(config: DataConfig, scenario: Any) -> None:
    """Raise InputError if the trajectories do not fit into memory, before any is generated."""
    values = scenario.num_channels * scenario.num_points**scenario.num_spatial_dims
    pool_steps, test_horizon = _pool_steps(config), config.horizons[1]
    fields = POOL_SIZE * (pool_steps + 1) + len(TEST_POOL) * (test_horizon + 1)
    check_room(
        _COPIES * 4 * values * fields,
        f"scenario is {config.scenario}, num_points is {scenario.num_points}, train_horizon is {pool_steps}"
        f" and test_horizon is {config.test_horizon}: {fields} fields of {values} values",
    )
