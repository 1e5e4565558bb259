"""A trained run as one deterministic function of its fields, which needs nothing of this package to run."""

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
    """What the outputs depend on besides the run."""

    seed: int
    num_samples: int
    levels: tuple[float, ...]
    mask_input: bool


class ExportedFunction(NamedTuple):
    """A function of arrays with a leading batch axis, and the names of its inputs; it gives a dictionary of arrays.

    `inputs` are without the batch axis. Every field of a batch has the same noise draws, those that `crossreg predict`
    gives the first field of a file: what comes out for a field does not depend on what else is in its batch.
    """

    function: Callable[..., dict[str, Float[Array, "batch *shape"]]]
    inputs: dict[str, jax.ShapeDtypeStruct]

    def batched(self, batch) -> list[jax.ShapeDtypeStruct]:
        """The inputs' shapes with a batch axis of this size, which may be a symbol."""
        return [jax.ShapeDtypeStruct((batch, *like.shape), like.dtype) for like in self.inputs.values()]


def make_program(run: Run, settings: Settings) -> ExportedFunction:
    """The function of a run, with the noise draws and all else that no input reaches as constants."""
    model = _by_matmul(run.model)
    key = jax.random.fold_in(evaluation_key(settings.seed), 0)

    def one(field: Float[Array, "channel *space"], mask: Bool[Array, "*space"] | Bool[np.ndarray, "*space"]):
        observed = observe(run, field[None], jnp.asarray(mask), jnp)
        mixture = predict(model, observed, key=key[None], num_samples=settings.num_samples)
        return jax.tree.map(lambda array: array[0], summarize(mixture, settings.levels))

    inputs = {"fields": jax.ShapeDtypeStruct((run.channels, *run.space), jnp.float32)}
    own = run.mask
    if settings.mask_input or own is None:
        inputs["mask"] = jax.ShapeDtypeStruct(run.space, jnp.bool_)
        alone = folded(one, *inputs.values())
    else:
        alone = folded(lambda field: one(field, own), *inputs.values())
    return ExportedFunction(jax.vmap(alone), inputs)


def _by_matmul(model: Surrogate) -> Surrogate:
    """The same surrogate with every Fourier transform as matrix products: an FFT is not the same in all runtimes."""

    def is_spectral(node) -> bool:
        return isinstance(node, SpectralConv)

    def change(node):
        if not is_spectral(node):
            return node
        out, width = node.weight_real.shape[-2:]
        same = SpectralConv(width, out, node.num_modes, noise=node.noise, transform="matmul", key=jax.random.key(0))
        weights = (node.weight_real, node.weight_imag)
        return eqx.tree_at(lambda layer: (layer.weight_real, layer.weight_imag), same, weights)

    return jax.tree.map(change, model, is_leaf=is_spectral)
