"""From any source of trajectories, an APEBench scenario, files or arrays, to the pairs of train, reg and test."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from crossreg.config import DataConfig
from crossreg.data.apebench import cached_file, load_trajectories, scenario_names
from crossreg.data.checks import check_trajectories
from crossreg.data.dataset import Data
from crossreg.data.files.load import load_files, load_source, own_config, resolved
from crossreg.data.files.pool import pool_of, pool_trajectories, shared_data
from crossreg.data.formats.numpy_files import open_arrays
from crossreg.data.formats.open import open_files
from crossreg.data.pairs import Pairs, make_pairs
from crossreg.data.split import Split, split_trajectories
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError, did_you_mean

# What the settings of a run call data that were arrays in memory.
ARRAYS = "arrays in memory"
_FIELDS = {known.name for known in dataclasses.fields(DataConfig)} - {"data", "scenario"}


def load(source: Any = "diff_ks", **fields: Any) -> Data:
    """Return the train, reg and test pairs of an APEBench scenario, of files, or of arrays.

    Args:
        source: one of

            - the name of an APEBench scenario;
            - the path of a file (NPY, NPZ, HDF5, NetCDF, Zarr) or of a folder of such files, or a list of paths of
              files with trajectories of one shape;
            - an array (NumPy or JAX) of trajectories of shape (trajectory, time, channel, *space), which is divided
              like a file, or a dictionary with an array each for `train`, `reg` and `test`.
        fields: settings, the fields of [`DataConfig`][]: how trajectories are divided and observed. Files and arrays
            are by default used whole (70% train, 10% reg, 20% test) and fully observed.

    Returns:
        The three splits.

    Raises:
        InputError: if `source` is neither a scenario nor a file, or what it holds cannot be used with these settings.

    Example:
        ```python
        data = xr.load("diff_ks", train_size=20, observed_fraction=0.4)
        data = xr.load("flow.npz", field="u,v", axes="btxy")
        data = xr.load(np.load("flow.npy"), split="time")
        ```
    """
    for name in ("data", "scenario"):
        if name in fields:
            raise InputError(f"{name}: is given by `source`; write load({fields[name]!r}, …)")
    if unknown := [name for name in fields if name not in _FIELDS]:
        hint = did_you_mean(unknown[0], _FIELDS, f"; there are {', '.join(sorted(_FIELDS))}")
        raise InputError(f"{unknown[0]}: no such setting of data{hint}")
    if isinstance(source, str | os.PathLike):
        if isinstance(source, str) and _names_a_scenario(source):
            config = resolved(DataConfig(scenario=source, **fields))
            names = () if cached_file(config).exists() else scenario_names()
            if names and source not in names:
                raise _unknown(source)
            return dataclasses.replace(load_config(config), config=config)
        if not Path(source).exists():
            raise _unknown(str(source))
        config = resolved(own_config(str(source), fields))
        return dataclasses.replace(load_config(config), config=config)
    if isinstance(source, Mapping | np.ndarray | jax.Array):
        config = own_config(ARRAYS, fields)
        if config.field is not None:
            raise InputError(f"field is {config.field}: names an array of a file, and `source` is an array")
        return _described(load_source(open_arrays(source, config.axes), config), config)
    if isinstance(source, Sequence) and source and all(isinstance(path, str | os.PathLike) for path in source):
        paths = [Path(path) for path in source]
        config = own_config(", ".join(str(path.resolve()) for path in paths), fields)
        return _described(load_source(open_files(paths, field=config.field, axes=config.axes), config), config)
    raise InputError(
        "source: expected the name of a scenario, the path of a file, a list of paths, an array, or a dictionary of"
        f" arrays, not a {type(source).__name__}"
    )


def _described(data: Data, config: DataConfig) -> Data:
    """Return data that know the settings they were loaded with, with the sizes that their arrays or files have."""
    splits = {"train": data.train, "reg": data.reg, "test": data.test}
    by_time = config.split == "time"
    sizes = {
        f"{n}_size": pairs.pairs_per_row * (int(pairs.num_rows) > 0) if by_time else int(pairs.num_rows)
        for n, pairs in splits.items()
    }
    horizons = {} if by_time else {f"{n}_horizon": splits[n].pairs_per_row for n in ("train", "test")}
    scenario = config.data if config.data == ARRAYS else ", ".join(Path(p).name for p in str(config.data).split(", "))
    return dataclasses.replace(data, config=dataclasses.replace(config, scenario=scenario, **sizes, **horizons))


def _names_a_scenario(source: str) -> bool:
    """Return whether a source means a scenario: a name is a file only if there is one and no scenario is called so."""
    return source.isidentifier() and (not Path(source).exists() or source in scenario_names())


def _unknown(source: str) -> InputError:
    folder = Path(source).parent
    files = [str(path) for path in folder.iterdir()] if folder.is_dir() else []
    hint = did_you_mean(source, [*scenario_names(), *files], most=3)
    return InputError(f"{source}: neither one of APEBench's scenarios nor a file or folder{hint}")


def load_config(config: DataConfig, stored: Sequence[int] | None = None) -> Data:
    """Return the pairs that a config describes, of its files or of its scenario, generated if they are not cached.

    `stored` is the shape (channel, *space) of a stored run's fields, if the data are loaded for one.
    """
    if config.data == ARRAYS:
        raise InputError(
            "data: were arrays in memory, which a run does not store; write them to a file, and give it as `data=PATH`"
        )
    if config.data is not None:
        return load_files(config, stored)
    check_split(config)  # before data are generated for it
    return make_data(load_trajectories(config), config, check=False)


def check_split(config: DataConfig) -> Split:
    """Return the trajectories of each split.

    Raises:
        InputError: if the files, or the scenario's pools, do not have as many.
    """
    if config.data is not None:
        parts = pool_of(config).parts(config)
        return Split(**{name: range(len(part.samples)) for name, part in parts.items()})
    return split_trajectories(*config.sizes, one_pool=config.one_pool)


def trajectories_of(config: DataConfig, *others: DataConfig) -> Trajectories:
    """Return what the runs of a sweep share, for `make_data`: trajectories of a scenario or of files.

    `others` are the configs of further runs: the digest of files covers all that these runs read.
    """
    return load_trajectories(config) if config.data is None else pool_trajectories(config, *others)


def make_data(trajectories: Trajectories, config: DataConfig, *, check: bool = True) -> Data[Pairs]:
    """Split, observe and pair trajectories that are already in memory.

    Args:
        trajectories: The trajectories. Those of files are divided by `data/files/pool.py`, which reads the same files.
        config: Sizes of the splits, and how inputs are observed.
        check: Whether to check the trajectories first: finite fields on one grid that vary, and splits without a field
            in common.

    Returns:
        The three splits.

    Raises:
        InputError: If a check fails, there are too few trajectories, or files have changed since they were read.

    Example:
        ```python
        config = xr.DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.4)
        data = xr.data.make_data(trajectories, config)
        ```
    """
    if config.data is not None:
        return shared_data(trajectories, config)
    split = check_split(config)
    if check:
        trajectories = check_trajectories(trajectories, split)
    pool, test = jnp.asarray(trajectories.train), jnp.asarray(trajectories.test)
    for name, rows, array in (("train", split.train, pool), ("reg", split.reg, pool), ("test", split.test, test)):
        if rows and rows[-1] >= array.shape[0]:
            raise InputError(
                f"{name}_size is {len(rows)}: needs trajectories up to number {rows[-1]}, but the data"
                f" have only {array.shape[0]}"
            )
    train = reg = pool
    if config.reg_steps is not None:  # otherwise train and reg are as long as the trajectories
        train, reg = pool[:, : config.horizons[0] + 1], pool[:, : config.reg_steps + 1]
    return Data(
        make_pairs(train, split.train, 0, config),
        make_pairs(reg, split.reg, 1, config),
        make_pairs(test, split.test, 2, config),
        trajectories.digest,
    )
