r"""The output heads, linear in the features: μ (θ), log σ_pred (ψ) and log σ_gen (ρ)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from crossreg.data.units import Units
from crossreg.nn.bounds import Bounds, bound, bound_in_reverse, unbound
from crossreg.nn.groups import Psi, Rho
from crossreg.nn.kernels import Pending
from crossreg.nn.pointwise import PointwiseLinear


class AbstractSigmaHead(eqx.Module):
    """A pointwise linear map to a smoothly bounded log σ."""

    linear: eqx.AbstractVar[PointwiseLinear]
    bounds: eqx.AbstractVar[Bounds]

    def __call__(self, features: Float[Array, "width *space"]) -> Float[Array, "channel *space"]:
        """log σ at every point."""
        return bound(self.linear(features), self.bounds)


class PredictiveHead(AbstractSigmaHead, Psi):
    """log σ_pred: in ψ, learned on train."""

    linear: PointwiseLinear
    bounds: Bounds = eqx.field(static=True)


class GeneralizationHead(AbstractSigmaHead, Rho):
    """log σ_gen: in ρ, learned on reg only.

    The head passes gradients on to the features that it reads, so that noise sites before it get all of ∇_ρ L_reg. In
    the train objective σ_gen is a constant (`objectives.train_objective`): θ cannot learn to shrink it on train.
    """

    linear: PointwiseLinear
    bounds: Bounds = eqx.field(static=True)


class Moments(eqx.Module):
    """What one sampled model instance says at every point: one Gaussian."""

    mean: Float[Array, "channel *space"]
    log_sigma_pred: Float[Array, "channel *space"]
    log_sigma_gen: Float[Array, "channel *space"] | None

    def in_units(self, units: Units) -> "Moments":
        """The same Gaussian in the fields' own units: mean s·μ + o, and log σ + log s."""
        num_dims = self.mean.ndim - 1
        scale = units.scales(num_dims)
        gen = self.log_sigma_gen
        return Moments(
            self.mean * scale + units.offsets(num_dims),
            self.log_sigma_pred + jnp.log(scale),
            None if gen is None else gen + jnp.log(scale),
        )


class Heads(eqx.Module):
    """The heads of a surrogate. `sigma_gen` is `None` where the regime has no such head."""

    mean: PointwiseLinear
    sigma_pred: PredictiveHead
    sigma_gen: GeneralizationHead | None

    def __call__(self, features: Float[Array, "width *space"]) -> Moments:
        gen = None if self.sigma_gen is None else self.sigma_gen(features)
        return Moments(self.mean(features), self.sigma_pred(features), gen)

    def reverse(self, features: Float[Array, "width *any_space"]) -> Moments:
        """The same, to be differentiated in reverse mode only."""
        pred = bound_in_reverse(self.sigma_pred.linear.reverse(features), self.sigma_pred.bounds)
        gen = None
        if self.sigma_gen is not None:
            gen = bound_in_reverse(self.sigma_gen.linear.reverse(features), self.sigma_gen.bounds)
        return Moments(self.mean.reverse(features), pred, gen)

    def fused(self, waiting: Pending, *, weight_gradients: bool) -> Moments | None:
        """The same with the work that waits before it, in kernels, or None where there are none for these shapes."""
        layers = [self.mean, self.sigma_pred.linear, *([] if self.sigma_gen is None else [self.sigma_gen.linear])]
        weight, bias = (jnp.concatenate([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
        out = waiting.through_heads(weight, bias)
        if out is None:
            return None
        mean, pred, *gen = jnp.split(out, len(layers))
        sigma_gen = None if self.sigma_gen is None else bound_in_reverse(gen[0], self.sigma_gen.bounds)
        return Moments(mean, bound_in_reverse(pred, self.sigma_pred.bounds), sigma_gen)


def _constant_linear(width: int, channels: int, value: Float[Array, "#channel"]) -> PointwiseLinear:
    """A pointwise linear map that starts as the constant `value`."""
    linear = PointwiseLinear(width, channels, key=jax.random.key(0))
    values = (jnp.zeros_like(linear.weight), jnp.broadcast_to(value, linear.bias.shape))
    return eqx.tree_at(lambda layer: (layer.weight, layer.bias), linear, values)


def make_heads(
    width: int,
    channels: int,
    *,
    generalization: bool = False,
    log_sigma_pred_start: float | Float[Array, " channel"] = -2.0,
    log_sigma_gen_start: float = -5.0,
    bounds: Bounds = (-12.0, 3.0),
    key: PRNGKeyArray,
) -> Heads:
    """Heads on `width` features for `channels` outputs; both log σ start constant."""
    starts = (log_sigma_pred_start, log_sigma_gen_start)
    pred, gen = (_constant_linear(width, channels, unbound(jnp.atleast_1d(start), bounds)) for start in starts)
    return Heads(
        mean=PointwiseLinear(width, channels, key=key),
        sigma_pred=PredictiveHead(pred, bounds),
        sigma_gen=GeneralizationHead(gen, bounds) if generalization else None,
    )
