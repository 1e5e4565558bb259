"""A model on disk: its arrays by name in one NPZ file, no pickle.

The file holds numbers only. What they belong to is rebuilt from the run's config, and every
name, shape and type is checked against it before a number is used.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.nn.surrogate import Surrogate

Tree = TypeVar("Tree")


def named_arrays(tree: PyTree) -> dict[str, Any]:
    """The leaves of a pytree by the names that they are stored under."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves}


def save_model(path: Path, model: Surrogate) -> None:
    """Writes the parameters of a model in one move."""
    save_arrays(path, eqx.filter(model, eqx.is_inexact_array))


def save_arrays(path: Path, tree: PyTree) -> None:
    """Writes the arrays of a pytree in one move."""
    arrays = {name: np.asarray(array) for name, array in named_arrays(eqx.filter(tree, eqx.is_array)).items()}
    with replacing(path) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def load_model(path: Path, like: Surrogate) -> Surrogate:
    """The model stored at `path`; `like` has its structure (arrays or `ShapeDtypeStruct`s)."""
    return load_arrays(path, like)


def load_arrays(path: Path, like: Tree, *, replica: int | None = None) -> Tree:
    """The pytree stored at `path`; `like` has its structure (arrays or `ShapeDtypeStruct`s).

    With `replica`, the file holds stacked arrays, and `like` is one of them.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = {name: file[name] for name in file.files}
            if replica is not None:
                stored = {name: array[replica] for name, array in stored.items()}
    except (OSError, ValueError, IndexError, BadZipFile, EOFError) as error:
        raise InputError(f"{path}: not a readable checkpoint ({error})") from error
    return assemble(stored, like, path)


def assemble(stored: Mapping[str, np.ndarray], like: Tree, path: Path) -> Tree:
    """The pytree of the structure of `like` whose arrays are stored by name; `path` is where, to say what is wrong."""
    dynamic, static = eqx.partition(like, lambda leaf: hasattr(leaf, "dtype"))
    expected = named_arrays(dynamic)
    for name, leaf in expected.items():
        if name not in stored:
            raise InputError(f"{path}: has no array {name}, which the run's config asks for")
        if (stored[name].shape, stored[name].dtype) != (leaf.shape, leaf.dtype):
            raise InputError(
                f"{path}: {name} is {stored[name].dtype}{stored[name].shape}, not {leaf.dtype}{leaf.shape}"
            )
    leaves = [jnp.asarray(stored[name]) for name in expected]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)
