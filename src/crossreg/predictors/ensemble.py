"""Deep ensembles: members that differ in their seeds alone, pooled as one equally weighted mixture."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from crossreg.data.pairs import Batch
from crossreg.errors import InputError
from crossreg.nn.surrogate import Surrogate, Trained, surrogate_in
from crossreg.predictive.in_units import InUnits, standardized_as, with_standard
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.predictor import SurrogatePredictor


class EnsemblePredictor(eqx.Module):
    """The mixture of all samples of all members.

    Members that draw noise share the samples, so that an ensemble predicts at the cost of one model. An ensemble of one
    predicts exactly as its member does.

    Args:
        models: Surrogates, or a `Fit` or a `Run` each, for the same fields; each may have units of its own.
        num_samples: Samples of all members together, at least one of each.

    Example:
        ```python
        ensemble = xr.methods.EnsemblePredictor([xr.fit(data, seed=seed, steps=5_000) for seed in range(3)])
        xr.evaluate(ensemble, data.test)["crps"]
        ```
    """

    members: tuple[SurrogatePredictor, ...]

    def __init__(self, models: Sequence[Surrogate | Trained], num_samples: int = 30):
        if not models:
            raise InputError("ensemble: has no model; expected at least one")
        each = -(-num_samples // len(models))
        self.members = tuple(SurrogatePredictor(surrogate_in(model), each) for model in models)

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture | InUnits:
        parts = []
        for number, member in enumerate(self.members):
            parts.append(member(batch, member_keys(number, keys)))
        return pooled(parts)


def member_keys(number: int, keys: Key[Array, " batch"]) -> Key[Array, " batch"]:
    """Return the keys that a member draws its samples with; those of the first are the ensemble's own."""
    return keys if number == 0 else jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)


def pooled(parts: Sequence[Mixture | InUnits]) -> Mixture | InUnits:
    """Return the mixture of all components of several mixtures, in the units of the first; each may have its own.

    Where a mixture has means under generalization noise alone, those of one without predictive noise are its means.
    """
    mixtures = [standardized_as(part, parts[0]) for part in parts]
    if any(mixture.instance_means is not None for mixture in mixtures):
        mixtures = [dataclasses.replace(mixture, instance_means=_instances(mixture)) for mixture in mixtures]
    return with_standard(parts[0], jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *mixtures))


def _instances(mixture: Mixture) -> Float[Array, "sample *shape"]:
    """Return as many means under generalization noise alone as there are components, so that it keeps its share."""
    own, number = mixture.instance_means, mixture.num_samples
    return mixture.means if own is None else own[np.arange(number) * own.shape[0] // number]
