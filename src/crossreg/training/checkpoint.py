"""A model on disk: its arrays by name in one NPZ file, no pickle.

The file holds numbers only. What they belong to is rebuilt from the run's config, and every
name, shape and type is checked against it before a number is used.
"""

from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from crossreg.array_files import open_npz
from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.nn.surrogate import Surrogate

Tree = TypeVar("Tree")


def _named_arrays(tree: PyTree) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves}


def save_model(path: Path, model: Surrogate) -> None:
    """Writes the parameters of a model in one move."""
    save_arrays(path, eqx.filter(model, eqx.is_inexact_array))


def save_arrays(path: Path, tree: PyTree) -> None:
    """Writes the arrays of a pytree in one move."""
    arrays = {name: np.asarray(array) for name, array in _named_arrays(eqx.filter(tree, eqx.is_array)).items()}
    with replacing(path) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def load_model(path: Path, like: Surrogate) -> Surrogate:
    """The model stored at `path`; `like` has its structure (arrays or `ShapeDtypeStruct`s)."""
    return load_arrays(path, like)


def load_arrays(path: Path, like: Tree, *, replica: int | None = None) -> Tree:
    """The pytree stored at `path`; `like` has its structure (arrays or `ShapeDtypeStruct`s).

    With `replica`, the file holds stacked arrays, and `like` is one of them.
    """
    dynamic, static = eqx.partition(like, lambda leaf: hasattr(leaf, "dtype"))
    expected = _named_arrays(dynamic)
    stored = {}
    with open_npz(path, f"{path}: not a readable checkpoint") as archive:
        for name, leaf in expected.items():
            if name not in archive.names:
                raise InputError(f"{path}: has no array {name}, which the run's config asks for")
            # The header first: what the config does not ask for is refused before memory is taken for it.
            header = archive.header(name)
            shape = header.shape if replica is None else header.shape[1:]
            if (shape, header.dtype) != (leaf.shape, leaf.dtype):
                raise InputError(f"{path}: {name} is {header.dtype}{shape}, not {leaf.dtype}{leaf.shape}")
            if replica is not None and not (header.shape and 0 <= replica < header.shape[0]):
                raise InputError(f"{path}: {name} has {header.shape[:1]} replicas; asked for number {replica}")
            stored[name] = archive.read(name) if replica is None else archive.read(name)[replica]
    leaves = [jnp.asarray(stored[name]) for name in expected]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)
