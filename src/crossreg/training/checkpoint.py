"""Models and trainings on disk: their arrays by name in one sealed NPZ file (`files/sealed.py`), without pickle.

The file holds numbers only. The structure that they belong to is rebuilt from the run's config, and every name, shape
and type is checked against it before a number is read.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from crossreg.files.sealed import Kind, read_sealed, write_sealed
from crossreg.nn.surrogate import Surrogate

Tree = TypeVar("Tree")
Announce = Callable[[Path], None]


def named_arrays(tree: PyTree) -> dict[str, Any]:
    """Return the leaves of a pytree by the names that they are stored under."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves}


def save_model(path: Path, model: Surrogate, *, identity: str = "-", announce: Announce | None = None) -> None:
    """Write the parameters of a model, atomically."""
    save_arrays(path, eqx.filter(model, eqx.is_inexact_array), identity=identity, announce=announce)


def save_arrays(
    path: Path,
    tree: PyTree,
    *,
    identity: str = "-",
    announce: Announce | None = None,
    more: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write the arrays of a pytree, and `more` arrays beside them, atomically."""
    arrays = {name: np.asarray(array) for name, array in named_arrays(eqx.filter(tree, eqx.is_array)).items()}
    write_sealed(path, arrays | dict(more or {}), identity=identity, announce=announce)


def load_model(path: Path, like: Surrogate, *, identity: str | None = None) -> Surrogate:
    """Load the model stored at `path`; `like` has its structure (arrays or `ShapeDtypeStruct`s).

    With an `identity`, a model that was sealed with another one raises InputError.
    """
    return load_arrays(path, like, identity=identity)


def load_arrays(path: Path, like: Tree, *, replica: int | None = None, identity: str | None = None) -> Tree:
    """Load the pytree stored at `path`; `like` has its structure (arrays or `ShapeDtypeStruct`s).

    With `replica`, the file holds stacked arrays, and `like` is one of them.
    """
    return load_with(path, like, {}, replica=replica, identity=identity)[0]


def load_with(
    path: Path, like: Tree, more: dict[str, Kind], *, replica: int | None = None, identity: str | None = None
) -> tuple[Tree, dict[str, np.ndarray]]:
    """Load the pytree stored at `path`, and the arrays that were written beside it."""
    dynamic, static = eqx.partition(like, lambda leaf: hasattr(leaf, "dtype"))
    expected = named_arrays(dynamic)
    lead: tuple[None, ...] = () if replica is None else (None,)
    kinds = {name: Kind((*lead, *leaf.shape), np.dtype(leaf.dtype)) for name, leaf in expected.items()}
    stored = read_sealed(path, kinds | more, "checkpoint", identity=identity, pick=replica)
    leaves = [jnp.asarray(stored.pop(name)) for name in expected]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static), stored
