r"""Many samples at once: fields of shape (channel, sample, *space), and stages that take them as they are.

A stage is a function of one unbatched field. `BatchedStage` is for those that treat any axes between channel and space
alike, so that no vmap is needed; they may also have faster ways to the same values and gradients.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from crossreg.nn.kernels.gelu import by_channel
from crossreg.nn.noise import GaussianNoise

# How the samples are computed. `plain` is JAX throughout and can be differentiated in any way; the others are for
# gradients in reverse mode: written out where JAX's own are slow, or in kernels for a GPU, of all parameters or of the
# noise alone, which leaves the weights' out.
ComputePath = Literal["plain", "reverse", "kernels", "noise kernels"]
# Of matrix products while training: a GPU rounds their factors to 10 bits, as its kernels do, a CPU does not. What is
# predicted and scored has full float32.
TRAINING_PRECISION = "tensorfloat32"


_LARGE = 2**20  # elements of fields that a CPU's caches do not hold


class Pending(NamedTuple):
    r"""Fields with pointwise work that is not yet done: $f_2 \odot GELU(f_1 \odot a)$, parts of which may be absent."""

    field: Float[Array, "channel sample *space"]
    first: Float[Array, "channel sample"] | None = None
    gelu: bool = False
    second: Float[Array, "channel sample"] | None = None

    def then(self, stage: Callable, keys) -> "Pending | None":
        """With one stage more, if it is a GELU or noise that is the same at all points of a channel."""
        if stage is jax.nn.gelu and not self.gelu:
            return self._replace(gelu=True)
        if not isinstance(stage, GaussianNoise) or stage.epsilon_per != "channel":
            return None
        if stage.scale.raw.size != stage.scale.raw.shape[0]:  # a σ for every place
            return None
        shape = (self.field.shape[0], *self.field.shape[2:])
        factor = jax.vmap(lambda key: stage.factor(shape, key=key, dtype=self.field.dtype), out_axes=1)(keys)
        factor = factor.reshape(self.field.shape[:2])
        if not self.gelu:
            return self._replace(first=factor if self.first is None else self.first * factor)
        return self._replace(second=factor if self.second is None else self.second * factor)

    @property
    def factors(self) -> tuple[Float[Array, "channel sample"], Float[Array, "channel sample"]]:
        """Both factors, 1 where there is none."""
        ones = jnp.ones(self.field.shape[:2], self.field.dtype)
        return ones if self.first is None else self.first, ones if self.second is None else self.second

    def done(self, path: ComputePath = "plain") -> Float[Array, "channel sample *space"]:
        """The fields, with the work done."""
        waits = self.gelu or self.first is not None or self.second is not None
        if path != "plain" and waits and jax.default_backend() == "cpu" and self.field.size >= _LARGE:
            return jnp.asarray(by_channel(self.field, *self.factors, self.gelu))
        scale = _scaled if path == "plain" else _scaled_in_reverse
        h = self.field if self.first is None else scale(self.field, self.first)
        h = jax.nn.gelu(h) if self.gelu else h
        return h if self.second is None else scale(h, self.second)


def _scaled(h: Float[Array, "channel sample *space"], factor: Float[Array, "channel sample"]):
    return h * factor.reshape(*factor.shape, *(1,) * (h.ndim - 2))


@jax.custom_vjp
def _scaled_in_reverse(h, factor):
    """`_scaled`, with the gradient of the factor as a matrix product: XLA's sums over points take ten times as long."""
    return _scaled(h, factor)


def _scale_forward(h, factor):
    return _scaled(h, factor), (h, factor)


def _scale_backward(kept, grad):
    h, factor = kept
    products = (h * grad).reshape(*factor.shape, -1)
    return _scaled(grad, factor), jnp.matmul(products, jnp.ones(products.shape[-1:], h.dtype), precision="float32")


_scaled_in_reverse.defvjp(_scale_forward, _scale_backward)


class BatchedStage(eqx.Module):
    """A stage for fields with further axes between channel and space."""

    @abstractmethod
    def __call__(self, h: Float[Array, "in *any_space"]) -> Float[Array, "out *any_space"]:
        """All fields."""

    def reverse(self, h: Float[Array, "in *any_space"]) -> Float[Array, "out *any_space"]:
        """The same, to be differentiated in reverse mode only."""
        return self(h)

    def fused(self, waiting: Pending, *, weight_gradients: bool) -> Float[Array, "out sample *space"] | None:
        """The same with the work that waits before it, in kernels, or None where there are none for these shapes."""
        return None
