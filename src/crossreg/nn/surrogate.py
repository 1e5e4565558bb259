r"""A surrogate: a row of stages, noise sites among them, and the heads.

Everything before the first stage that draws noise is the same for all S samples, so a
surrogate comes apart there: `prefix` runs once per input, `sample` once per sample.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from crossreg.nn.heads import Heads, Moments
from crossreg.nn.noise import is_stochastic
from crossreg.predictive import Mixture


class Surrogate(eqx.Module):
    """One step of a field, with its uncertainty: unbatched, random only through `key`.

    `stages` are applied in order, from the input to the features that the heads read; one that
    holds a noise site is called with `key=`, every other without. With `predict_increment` the
    mean head gives the change from the input.
    """

    stages: tuple[Callable, ...]
    heads: Heads
    predict_increment: bool = eqx.field(static=True, default=False)

    @property
    def _first_stochastic(self) -> int:
        flags = [is_stochastic(stage) for stage in self.stages]
        return flags.index(True) if True in flags else len(flags)

    @property
    def is_stochastic(self) -> bool:
        """Whether two samples of it differ; if not, one sample is the whole mixture."""
        return is_stochastic(self.stages)

    def prefix(self, x: Float[Array, "in *space"]) -> Float[Array, "width *space"]:
        """The part that no noise reaches."""
        h = x
        for stage in self.stages[: self._first_stochastic]:
            h = stage(h)
        return h

    def sample(self, h: Float[Array, "width *space"], *, key: PRNGKeyArray) -> Moments:
        """One model instance ω: the rest of the network with its own noise, and the heads."""
        rest = self.stages[self._first_stochastic :]
        for stage, stage_key in zip(rest, jax.random.split(key, max(len(rest), 1)), strict=False):
            h = stage(h, key=stage_key) if is_stochastic(stage) else stage(h)
        return self.heads(h)

    def __call__(self, x: Float[Array, "in *space"], *, key: PRNGKeyArray) -> Moments:
        """One sampled Gaussian at every point."""
        moments = self.sample(self.prefix(x), key=key)
        if not self.predict_increment:
            return moments
        return eqx.tree_at(lambda m: m.mean, moments, _increment(x, moments.mean))


def _increment(x, change):
    """The field after `change`; the input's further channels (a mask) are not part of it."""
    return x[: change.shape[0]] + change


def predict(
    model: Surrogate, x: Float[Array, "batch in *space"], *, key: PRNGKeyArray, num_samples: int = 10
) -> Mixture:
    """The predictive mixture (sample, batch, channel, *space) of a batch of inputs.

    The only place where samples and batch meet: both are folded into one axis, each pair with
    its own noise. That axis stands second, behind the channels, so that a vmapped pointwise
    layer stays one 2-D matrix product with nothing transposed.
    """
    if not model.is_stochastic:
        num_samples = 1
    batch = x.shape[0]
    x_folded = jnp.moveaxis(x, 0, 1)
    h = jax.vmap(model.prefix, in_axes=1, out_axes=1)(x_folded)
    h = jnp.broadcast_to(h[:, None], (h.shape[0], num_samples, *h.shape[1:]))
    h = h.reshape(h.shape[0], num_samples * batch, *h.shape[3:])
    keys = jax.random.split(key, num_samples * batch)
    moments = jax.vmap(lambda h, key: model.sample(h, key=key), in_axes=(1, 0), out_axes=1)(h, keys)

    def unfold(field):
        field = field.reshape(field.shape[0], num_samples, batch, *field.shape[2:])
        return jnp.moveaxis(field, 0, 2)

    means = unfold(moments.mean)
    if model.predict_increment:
        means = x[:, : means.shape[2]] + means
    gen = moments.log_sigma_gen
    return Mixture(
        means,
        jnp.exp(2 * unfold(moments.log_sigma_pred)),
        jnp.zeros_like(means) if gen is None else jnp.exp(2 * unfold(gen)),
    )
