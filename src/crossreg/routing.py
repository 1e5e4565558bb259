r"""Which gradient reaches which parameter.

$$ (\theta, \psi) \leftarrow (\theta, \psi) - \eta\, \nabla_{(\theta,\psi)} \mathcal L_{train}, \qquad
   \rho \leftarrow \rho - \eta_\rho\, \nabla_\rho \mathcal L_{reg} $$

A model comes apart into what train updates may change and what reg updates may change; each
gradient is taken with respect to its own part only, so the other part's is not computed.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import PyTree

from crossreg.config import TrainConfig
from crossreg.nn.groups import groups
from crossreg.nn.noise import AbstractNoiseScale


class Routed(NamedTuple):
    """A model in three parts, each with `None` in place of the others' leaves."""

    theta_psi: PyTree
    rho: PyTree
    static: PyTree


def route(model: PyTree) -> Routed:
    """Splits a model by who may change it: train updates, reg updates, nobody."""
    labels = groups(model)
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    rho, theta_psi = eqx.partition(arrays, jax.tree.map(lambda label: label == "rho", labels))
    return Routed(theta_psi, rho, static)


def merge(parts: Routed) -> Any:
    """The model again."""
    return eqx.combine(*parts)


def learning_rates(parameters: PyTree, config: TrainConfig) -> PyTree:
    """Adam's rate of every array of a model, or of a part of one, by the module that owns it."""
    by_group = {
        "theta": config.learning_rate,
        "psi": config.learning_rate,
        "rho": config.generalization_head_learning_rate,
    }

    def is_scale(node) -> bool:
        return isinstance(node, AbstractNoiseScale)

    def rates(node, labels):
        if is_scale(node):
            return jax.tree.map(lambda _: config.site_learning_rate, labels)
        return None if labels is None else by_group[labels]

    labels = groups(parameters)
    return jax.tree.map(rates, parameters, labels, is_leaf=is_scale)
