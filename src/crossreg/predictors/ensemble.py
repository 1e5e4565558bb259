"""Deep ensembles: members that differ in their seeds alone, pooled as one equally weighted mixture."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from crossreg.data.pairs import Batch
from crossreg.nn.surrogate import Surrogate
from crossreg.predictive.in_units import InUnits, standardized_as, with_standard
from crossreg.predictive.mixture import Mixture
from crossreg.predictors.predictor import SurrogatePredictor


class EnsemblePredictor(eqx.Module):
    """The mixture of all samples of all members.

    Members that draw noise share the samples, so that an ensemble predicts at the cost of one model. An ensemble of one
    predicts exactly as its member does.

    Args:
        models: Surrogates for the same fields; each may have units of its own.
        num_samples: Samples of all members together, at least one of each.

    Example:
        >>> ensemble = EnsemblePredictor([xr.fit(data, seed=seed).model for seed in range(3)])
        >>> evaluate(ensemble, data.test)["crps"]
    """

    members: tuple[SurrogatePredictor, ...]

    def __init__(self, models: Sequence[Surrogate], num_samples: int = 30):
        each = -(-num_samples // len(models))
        self.members = tuple(SurrogatePredictor(model, each) for model in models)

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture | InUnits:
        parts = []
        for number, member in enumerate(self.members):
            own = keys if number == 0 else jax.vmap(lambda key, n=number: jax.random.fold_in(key, n))(keys)
            parts.append(member(batch, own))
        components = (standardized_as(part, parts[0]) for part in parts)  # each member may have its own units
        return with_standard(parts[0], jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *components))
