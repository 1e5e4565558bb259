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
        """Return log σ at every point."""
        return bound(self.linear(features), self.bounds)


class PredictiveHead(AbstractSigmaHead, Psi):
    """The head of log σ_pred: in ψ, learned on train."""

    linear: PointwiseLinear
    bounds: Bounds = eqx.field(static=True)


class GeneralizationHead(AbstractSigmaHead, Rho):
    """The head of log σ_gen: in ρ, learned on reg only.

    The head passes gradients on to the features that it reads, so that noise sites before it get all of ∇_ρ L_reg. In
    the train objective, σ_gen is a constant (`objectives.train_objective`): θ cannot learn to shrink it on train.
    """

    linear: PointwiseLinear
    bounds: Bounds = eqx.field(static=True)


class Moments(eqx.Module):
    """One Gaussian at every point, the prediction of one sampled model instance."""

    mean: Float[Array, "channel *space"]
    log_sigma_pred: Float[Array, "channel *space"]
    log_sigma_gen: Float[Array, "channel *space"] | None

    def in_units(self, units: Units) -> "Moments":
        """Return the Gaussian in the fields' units: mean s·μ + o, and log σ + log s."""
        num_dims = self.mean.ndim - 1
        scale = units.scales(num_dims)
        gen = self.log_sigma_gen
        return Moments(
            self.mean * scale + units.offsets(num_dims),
            self.log_sigma_pred + jnp.log(scale),
            None if gen is None else gen + jnp.log(scale),
        )


class Heads(eqx.Module):
    """The output heads of a surrogate, linear in its features. Build them with [`make_heads`][].

    Attributes:
        mean: The head of μ, in θ.
        sigma_pred: The head of log σ_pred, in ψ.
        sigma_gen: The head of log σ_gen, in ρ, or None for a model without one.

    Example:
        ```python
        result.model.heads.sigma_gen is None  # whether the model has no log σ_gen head
        ```
    """

    mean: PointwiseLinear
    sigma_pred: PredictiveHead
    sigma_gen: GeneralizationHead | None

    def __call__(self, features: Float[Array, "width *space"]) -> Moments:
        """Return one Gaussian at every point."""
        gen = None if self.sigma_gen is None else self.sigma_gen(features)
        return Moments(self.mean(features), self.sigma_pred(features), gen)

    def reverse(self, features: Float[Array, "width *any_space"]) -> Moments:
        """Return the moments, to be differentiated in reverse mode only."""
        pred = bound_in_reverse(self.sigma_pred.linear.reverse(features), self.sigma_pred.bounds)
        gen = None
        if self.sigma_gen is not None:
            gen = bound_in_reverse(self.sigma_gen.linear.reverse(features), self.sigma_gen.bounds)
        return Moments(self.mean.reverse(features), pred, gen)

    def fused(self, waiting: Pending, *, weight_gradients: bool) -> Moments | None:
        """Return the moments by a kernel that also does the pending work, or None where there is none for these shapes.

        The kernel always has the gradients of the weights.
        """
        layers = [self.mean, self.sigma_pred.linear, *([] if self.sigma_gen is None else [self.sigma_gen.linear])]
        weight, bias = (jnp.concatenate([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
        out = waiting.through_heads(weight, bias)
        if out is None:
            return None
        mean, pred, *gen = jnp.split(out, len(layers))
        sigma_gen = None if self.sigma_gen is None else bound_in_reverse(gen[0], self.sigma_gen.bounds)
        return Moments(mean, bound_in_reverse(pred, self.sigma_pred.bounds), sigma_gen)


def _constant_linear(width: int, channels: int, value: Float[Array, "#channel"]) -> PointwiseLinear:
    """Return a pointwise linear map that starts as the constant `value`."""
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
    """Build heads; both log σ start as constants.

    Args:
        width: Features that the heads read.
        channels: Channels of the field that they predict.
        generalization: Whether there is a log σ_gen head.
        log_sigma_pred_start: Start of log σ_pred, for all channels or for each.
        log_sigma_gen_start: Start of log σ_gen.
        bounds: The interval that both log σ stay in.
        key: The key of the mean head's weights.

    Returns:
        The heads.

    Example:
        ```python
        heads = xr.nn.make_heads(8, 2, generalization=True, key=jax.random.key(0))
        heads(jnp.ones((8, 64))).mean.shape  # (2, 64)
        ```
    """
    starts = (log_sigma_pred_start, log_sigma_gen_start)
    pred, gen = (_constant_linear(width, channels, unbound(jnp.atleast_1d(start), bounds)) for start in starts)
    return Heads(
        mean=PointwiseLinear(width, channels, key=key),
        sigma_pred=PredictiveHead(pred, bounds),
        sigma_gen=GeneralizationHead(gen, bounds) if generalization else None,
    )
