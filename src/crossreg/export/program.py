"""A trained run as one deterministic function of its fields, which runs without this package."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from crossreg.data.keys import evaluation_key
from crossreg.export.folding import folded
from crossreg.nn.spectral import SpectralConv
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.runs.prediction import observe, summarize
from crossreg.runs.run_folder import Run


class Settings(NamedTuple):
    """Settings of an export: seed and number of the noise draws, quantile levels, and whether the mask is an input."""

    seed: int
    num_samples: int
    levels: tuple[float, ...]
    mask_input: bool


class ExportedFunction(NamedTuple):
    """A function of arrays with a leading batch axis, which returns a dictionary of arrays; and its inputs by name.

    The shapes of `inputs` are without the batch axis. Every field of a batch has the same noise draws, those of the
    first field of a file in `crossreg predict`, so the result for a field does not depend on the rest of its batch.
    """

    function: Callable[..., dict[str, Float[Array, "batch *shape"]]]
    inputs: dict[str, jax.ShapeDtypeStruct]

    def batched(self, batch) -> list[jax.ShapeDtypeStruct]:
        """Return the inputs' shapes with a batch axis of this size, which may be symbolic."""
        return [jax.ShapeDtypeStruct((batch, *like.shape), like.dtype) for like in self.inputs.values()]


def make_program(run: Run, settings: Settings) -> ExportedFunction:
    """Return the function of a run, with the noise draws and all else independent of the inputs as constants."""
    model = _by_matmul(run.model)
    key = jax.random.fold_in(evaluation_key(settings.seed), 0)

    def one(field: Float[Array, "channel *space"], mask: Bool[Array, "*space"] | Bool[np.ndarray, "*space"]):
        observed = observe(run, field[None], jnp.asarray(mask), jnp)
        mixture = predict(model, observed, key=key[None], num_samples=settings.num_samples)
        return jax.tree.map(lambda array: array[0], summarize(mixture, settings.levels))

    inputs = {"fields": jax.ShapeDtypeStruct((run.channels, *run.space), jnp.float32)}
    function = one
    if settings.mask_input or run.mask is None:
        inputs["mask"] = jax.ShapeDtypeStruct(run.space, jnp.bool_)
    else:
        function = functools.partial(one, mask=run.mask)
    return ExportedFunction(jax.vmap(folded(function, *inputs.values())), inputs)


def _by_matmul(model: Surrogate) -> Surrogate:
    """Replace every Fourier transform by matrix products: FFTs differ between runtimes."""

    def change(node):
        if not isinstance(node, SpectralConv):
            return node
        out, width = node.weight_real.shape[-2:]
        same = SpectralConv(width, out, node.num_modes, noise=node.noise, transform="matmul", key=jax.random.key(0))
        weights = (node.weight_real, node.weight_imag)
        return eqx.tree_at(lambda layer: (layer.weight_real, layer.weight_imag), same, weights)

    return jax.tree.map(change, model, is_leaf=lambda node: isinstance(node, SpectralConv))
