"""The arrays of a tree as one vector, so that an update of all of them is a few operations, not a few for each."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree


class Packed(eqx.Module):
    """A tree of arrays as one vector. If the vector has leading axes, so have the arrays of the tree."""

    vector: Float[Array, "*lead size"]
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @classmethod
    def of(cls, tree: PyTree) -> "Packed":
        """Pack the arrays of a tree, without leading axes."""
        leaves, structure = jax.tree.flatten(tree)
        vector = jnp.concatenate([jnp.ravel(leaf) for leaf in leaves]) if leaves else jnp.zeros((0,))
        return cls(vector, structure, tuple(leaf.shape for leaf in leaves))

    def tree(self) -> PyTree:
        """Return the tree."""
        lead = self.vector.shape[:-1]
        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        parts = jnp.split(self.vector, ends[:-1], axis=-1) if ends else []
        leaves = [part.reshape(*lead, *shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)

    def spread(self, tree: PyTree) -> Float[np.ndarray, " size"]:
        """Return a vector of one number per element, from a tree of one number per array."""
        numbers = jax.tree.leaves(tree)
        sizes = [math.prod(shape) for shape in self.shapes]
        return np.repeat(np.asarray(numbers, np.float32), sizes)
