"""A model on disk: its arrays by name in one NPZ file, no pickle.

The file holds numbers only. What they belong to is rebuilt from the run's config, and every
name, shape and type is checked against it before a number is used.
"""

from pathlib import Path
from zipfile import BadZipFile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.nn.surrogate import Surrogate


def _named_arrays(model) -> dict[str, jax.Array]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(model, eqx.is_inexact_array))
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves}


def save_model(path: Path, model: Surrogate) -> None:
    """Writes the arrays of a model in one move."""
    with replacing(path) as file:
        np.savez(file, **{name: np.asarray(array) for name, array in _named_arrays(model).items()})  # pyright: ignore[reportArgumentType]


def load_model(path: Path, like: Surrogate) -> Surrogate:
    """The model stored at `path`; `like` has its structure (arrays or `ShapeDtypeStruct`s)."""
    dynamic, static = eqx.partition(like, lambda leaf: hasattr(leaf, "dtype"))
    expected = {
        jax.tree_util.keystr(p).lstrip("."): leaf for p, leaf in jax.tree_util.tree_flatten_with_path(dynamic)[0]
    }
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = {name: file[name] for name in file.files}
    except (OSError, ValueError, BadZipFile, EOFError) as error:
        raise InputError(f"{path}: not a readable checkpoint ({error})") from error
    for name, leaf in expected.items():
        if name not in stored:
            raise InputError(f"{path}: has no array {name}, which the run's config asks for")
        if (stored[name].shape, stored[name].dtype) != (leaf.shape, leaf.dtype):
            raise InputError(
                f"{path}: {name} is {stored[name].dtype}{stored[name].shape}, not {leaf.dtype}{leaf.shape}"
            )
    leaves = [jnp.asarray(stored[name]) for name in expected]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)
