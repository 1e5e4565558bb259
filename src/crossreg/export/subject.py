"""A surrogate in memory, and the pairs or fields it is for, in the form of a run to export."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from crossreg.config import Config
from crossreg.data.pairs import AbstractPairs, GridPairs
from crossreg.errors import InputError
from crossreg.nn.surrogate import Surrogate
from crossreg.runs.run_folder import Run

Fields = Float[Array, "batch channel *space"] | Float[np.ndarray, "batch channel *space"]


def run_of(model: Surrogate, pairs: AbstractPairs | Fields, num_samples: int) -> Run:
    """Return the model as a run for `crossreg predict`. Its config does not describe the network."""
    if not isinstance(model, Surrogate):
        raise InputError(
            f"export_model: takes a surrogate, such as `cross_regularize` makes, or the result of `fit`, not a"
            f" {type(model).__name__}"
        )
    if isinstance(pairs, GridPairs):
        (channels, *space), inside, mask = pairs.field_shape, pairs.in_channels, pairs.run_mask
    elif isinstance(pairs, AbstractPairs):
        raise InputError(f"export_model: takes pairs of fields on a grid, not {type(pairs).__name__}")
    else:
        if np.ndim(pairs) < 3 or not np.size(pairs):
            raise InputError(f"export_model: has fields of shape {np.shape(pairs)}; expected (batch, channel, *space)")
        channels, *space = np.shape(pairs)[1:]
        inside, mask = channels, np.ones(space, bool)
    _check_shapes(model, (inside, *space), (channels, *space))
    config = Config().replace(
        mask_channel=inside > channels, mask_per="pair" if mask is None else "run", evaluation_samples=num_samples
    )
    return Run(config, model, channels, tuple(space), None if mask is None else np.asarray(mask), digest="")


def _check_shapes(model: Surrogate, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    """Raise InputError unless the model maps fields of the shape `inside` to the shape `outside`."""
    like = jax.ShapeDtypeStruct(inside, jnp.float32)
    try:
        found = jax.eval_shape(lambda x: model(x, key=jax.random.key(0)).mean, like).shape
    except (TypeError, ValueError, IndexError) as error:
        reason = (str(error).splitlines() or ["it fails"])[0]
        raise InputError(f"export_model: the model does not take fields of shape {inside} ({reason})") from error
    if found != outside:
        raise InputError(f"export_model: the model gives fields of shape {found}, not those of the pairs, {outside}")


def examples_of(pairs: AbstractPairs | Fields, count: int) -> dict[str, np.ndarray]:
    """Return `count` evenly spaced fields and their observation masks."""
    if not isinstance(pairs, AbstractPairs):
        chosen = np.asarray(pairs, np.float32)[np.linspace(0, len(pairs) - 1, count).astype(int)]
        return {"fields": chosen, "mask": np.ones((count, *chosen.shape[2:]), bool)}
    index = np.linspace(0, int(pairs.num_pairs) - 1, count).astype(int)
    batch = pairs.hold(index).gather(jnp.asarray(index))
    return {"fields": np.asarray(batch.x[:, : pairs.field_shape[0]]), "mask": np.asarray(batch.mask[:, 0])}


def described(model: Surrogate) -> dict[str, Any]:
    """Return the description of a network that no config describes."""
    parts = [getattr(stage, "module", stage) for stage in model.stages]
    names = [f"{type(part).__module__}.{type(part).__qualname__}" for part in parts]
    return {"stages": names, "predict_increment": model.predict_increment}
