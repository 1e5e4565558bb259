r"""Many samples at once: fields of shape (channel, sample, *space), and stages that read them without a vmap."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from crossreg.nn.kernels.gelu import by_channel
from crossreg.nn.kernels.paths import ComputePath

_LARGE = 2**20  # elements of a field that a CPU's caches do not hold


class Pending(NamedTuple):
    r"""Fields with pointwise work still to be done: $f_2 \odot GELU(f_1 \odot a)$, parts of which may be absent.

    The work waits for the next stage: a fused kernel does it while it reads the fields.
    """

    field: Float[Array, "channel sample *space"]
    first: Float[Array, "channel sample"] | None = None
    gelu: bool = False
    second: Float[Array, "channel sample"] | None = None

    def times(self, factor: Float[Array, "channel sample"]) -> "Pending":
        """Add a factor: after the GELU if there is one, else before it."""
        place = "second" if self.gelu else "first"
        earlier = getattr(self, place)
        return self._replace(**{place: factor if earlier is None else earlier * factor})

    @property
    def factors(self) -> tuple[Float[Array, "channel sample"], Float[Array, "channel sample"]]:
        """Both factors, 1 where there is none."""
        ones = jnp.ones(self.field.shape[:2], self.field.dtype)
        return ones if self.first is None else self.first, ones if self.second is None else self.second

    def done(self, path: ComputePath = "plain") -> Float[Array, "channel sample *space"]:
        """Return the fields with the work done."""
        waits = self.gelu or self.first is not None or self.second is not None
        if path != "plain" and waits and jax.default_backend() == "cpu" and self.field.size >= _LARGE:
            return jnp.asarray(by_channel(self.field, *self.factors, self.gelu))
        scale = _scaled if path == "plain" else _scaled_in_reverse
        h = self.field if self.first is None else scale(self.field, self.first)
        h = jax.nn.gelu(h) if self.gelu else h
        return h if self.second is None else scale(h, self.second)

    def through_block(
        self,
        real: Float[Array, "*modes out in"],
        imag: Float[Array, "*modes out in"],
        pointwise: Float[Array, "out in"],
        bias: Float[Array, " out"],
        *,
        weight_gradients: bool,
    ) -> Float[Array, "out sample *space"] | None:
        r"""Return $F^{-1}[W F[h]] + P h + b$ of the finished fields h by fused kernels.

        Args:
            real: Re W, the weights of the Fourier modes.
            imag: Im W.
            pointwise: P, the weights of the pointwise linear map.
            bias: b.
            weight_gradients: Whether the backward pass computes the gradients of W, P and b; if not, they are zero.

        Returns:
            The next fields, or None where the kernels do not take these shapes.
        """
        from crossreg.nn.kernels.fused import Weights, can_fuse, fused_block  # Pallas takes long to import

        *modes, out, width = real.shape
        if self.field.dtype != jnp.float32 or not can_fuse((out, width), tuple(modes), self.field.shape[1:]):
            return None
        return fused_block(self.field, *self.factors, Weights(real, imag, pointwise, bias), self.gelu, weight_gradients)

    def through_heads(
        self, weight: Float[Array, "head width"], bias: Float[Array, " head"]
    ) -> Float[Array, "head sample *space"] | None:
        """Return V h + c of the finished fields h for all heads, by a fused kernel, or None where it cannot.

        Args:
            weight: V.
            bias: c.
        """
        from crossreg.nn.kernels.fused import can_read, fused_read

        heads, width = weight.shape
        if self.field.dtype != jnp.float32 or not can_read(width, heads, self.field.shape[1:]):
            return None
        return jnp.asarray(fused_read(self.field, *self.factors, weight, bias, self.gelu))


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
    """A stage that treats any axes between channel and space alike, so that many samples need no vmap."""

    @abstractmethod
    def __call__(self, h: Float[Array, "in *any_space"]) -> Float[Array, "out *any_space"]:
        """Return the next fields."""

    def reverse(self, h: Float[Array, "in *any_space"]) -> Float[Array, "out *any_space"]:
        """Return the next fields, to be differentiated in reverse mode only."""
        return self(h)

    def fused(self, waiting: Pending, *, weight_gradients: bool) -> Float[Array, "out sample *space"] | None:
        """Return the next fields by kernels that also do the pending work, or None where there are none."""
        return None
