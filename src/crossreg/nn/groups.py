r"""The three parameter groups θ, ψ and ρ, marked by type.

The group of an array follows from the module that owns it. A module that inherits from [`Psi`][] holds predictive-noise
parameters ψ, learned on train; one that inherits from [`Rho`][] holds generalization-noise parameters ρ, learned on reg
only. Every other array belongs to the backbone θ.
"""

from typing import Literal

import equinox as eqx
import jax
from jaxtyping import PyTree

Group = Literal["theta", "psi", "rho"]


class Psi(eqx.Module):
    """A base class for modules whose arrays are predictive-noise parameters ψ, learned on train.

    Example:
        ```python
        class LearnedSigma(xr.nn.Psi):
            log_sigma: jax.Array
        ```
    """


class Rho(eqx.Module):
    """A base class for modules whose arrays are generalization-noise parameters ρ, learned on reg only.

    Example:
        ```python
        class LearnedSigma(xr.nn.Rho):
            log_sigma: jax.Array
        ```
    """


def _is_marked(node) -> bool:
    return isinstance(node, Psi | Rho)


def _group_of(node) -> Group:
    if isinstance(node, Psi):
        return "psi"
    return "rho" if isinstance(node, Rho) else "theta"


def groups(model: PyTree) -> PyTree:
    """Return the group of every array of a model.

    Args:
        model: A model, or any pytree.

    Returns:
        A pytree of the same structure with `"theta"`, `"psi"` or `"rho"` for each floating-point array, and `None` for
        every other leaf.

    Raises:
        TypeError: If a `Psi` is inside a `Rho`, or the reverse: its arrays would have two owners.
    """

    def label(node):
        group = _group_of(node)
        for child in jax.tree.leaves(node, is_leaf=lambda n: n is not node and _is_marked(n)):
            if _is_marked(child) and _group_of(child) != group:
                raise TypeError(
                    f"{type(child).__name__} inside {type(node).__name__}: its arrays would have two owners"
                )
        return jax.tree.map(lambda leaf: group if eqx.is_inexact_array(leaf) else None, node)

    return jax.tree.map(label, model, is_leaf=_is_marked)
