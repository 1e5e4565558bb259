r"""Which gradient reaches which parameter. ρ is routed here: `route` splits it off, and only reg updates change it.

$$ (\theta, \psi) \leftarrow (\theta, \psi) - \eta\, \nabla_{(\theta,\psi)} \mathcal L_{train}, \qquad
   \rho \leftarrow \rho - \eta_\rho\, \nabla_\rho \mathcal L_{reg} $$

`route` splits a model into the part that train updates change, (θ, ψ), the part that reg updates change, ρ, and the
rest, which no update changes; `merge` puts them together. The types of the modules decide (`nn/groups.py`). Each step
(`training/step.py`) differentiates with respect to its own part only: the gradient of the other part is not computed.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import PyTree

from crossreg.config import TrainConfig
from crossreg.nn.groups import groups
from crossreg.nn.growth import LeadGrowth
from crossreg.nn.noise import AbstractNoiseScale


class Routed(NamedTuple):
    """A model in three parts, each with `None` in place of the leaves of the others."""

    theta_psi: PyTree
    rho: PyTree
    static: PyTree


def route(model: PyTree) -> Routed:
    """Split a model by who may change it.

    Args:
        model: A surrogate, or any pytree.

    Returns:
        The arrays that train updates change, those that reg updates change, and everything else.

    Example:
        ```python
        parts = route(model)
        gradient = jax.grad(lambda rho: reg_loss(merge(parts._replace(rho=rho))))(parts.rho)
        ```
    """
    labels = groups(model)
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    rho, theta_psi = eqx.partition(arrays, jax.tree.map(lambda label: label == "rho", labels))
    return Routed(theta_psi, rho, static)


def merge(parts: Routed) -> Any:
    """Put the parts of a model together."""
    return eqx.combine(*parts)


def learning_rates(parameters: PyTree, config: TrainConfig) -> PyTree:
    """Return Adam's rate for every array of a model, or of a part of one, by the module that owns it."""
    by_group = {
        "theta": config.learning_rate,
        "psi": config.learning_rate,
        "rho": config.generalization_head_learning_rate,
    }

    def is_scale(node) -> bool:
        return isinstance(node, AbstractNoiseScale | LeadGrowth)

    def rates(node, labels):
        if is_scale(node):
            return jax.tree.map(lambda _: config.site_learning_rate, labels)
        return None if labels is None else by_group[labels]

    labels = groups(parameters)
    return jax.tree.map(rates, parameters, labels, is_leaf=is_scale)
