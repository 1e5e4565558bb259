"""Deep ensembles: members that differ in their seed alone, pooled as one equal-weight mixture."""

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
    """The mixture of all samples of all members. One member alone predicts what it would without an ensemble.

    Members that draw noise share the samples: an ensemble costs what one model costs.
    """

    members: tuple[SurrogatePredictor, ...]

    def __init__(self, models: list[Surrogate], num_samples: int):
        each = -(-num_samples // len(models))
        self.members = tuple(SurrogatePredictor(model, each) for model in models)

    def __call__(self, batch: Batch, keys: Key[Array, " batch"]) -> Mixture | InUnits:
        parts = []
        for number, member in enumerate(self.members):
            own = keys if number == 0 else jax.vmap(lambda key, n=number: jax.random.fold_in(key, n))(keys)
            parts.append(member(batch, own))
        components = (standardized_as(part, parts[0]) for part in parts)  # members may have units of their own
        return with_standard(parts[0], jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *components))
