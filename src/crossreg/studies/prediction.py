"""A trained run applied to a user's own fields."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from crossreg.data.pairs import Data
from crossreg.errors import InputError
from crossreg.files import replacing
from crossreg.metrics.evaluation import evaluation_key
from crossreg.nn.spectral import check_modes
from crossreg.nn.surrogate import Surrogate, predict

_CHUNK = 256


def read_array(path: Path, what: str) -> np.ndarray:
    """An array from an NPY file."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not an NPY array"
        raise InputError(f"{what} {path}: {reason}") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{what} {path}: is an NPZ archive; expected a single NPY array")
    return array


def check_input(x: np.ndarray, channels: int, num_dims: int, name: str) -> Float[np.ndarray, "batch channel *space"]:
    """The input as float32, if it is a finite batch of fields with the run's channels."""
    wanted = f"(batch, {channels}, {', '.join('xyz'[:num_dims])})"
    if x.ndim != num_dims + 2 or x.shape[1] != channels:
        raise InputError(f"--input {name}: has shape {x.shape}; expected {wanted}")
    if x.size == 0:
        raise InputError(f"--input {name}: is empty (shape {x.shape})")
    if not np.issubdtype(x.dtype, np.floating) and not np.issubdtype(x.dtype, np.integer):
        raise InputError(f"--input {name}: has type {x.dtype}; expected real numbers")
    if not np.isfinite(x).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise InputError(f"--input {name}: is not finite at index {where}; expected finite numbers everywhere")
    return x.astype(np.float32)


def choose_mask(
    data: Data, space: tuple[int, ...], mask_file: Path | None, no_mask: bool
) -> Bool[np.ndarray, "*space"]:
    """The observation mask to apply: the run's own, a file's, or none."""
    if mask_file is not None and no_mask:
        raise InputError("--mask and --no-mask exclude each other")
    if no_mask:
        return np.ones(space, bool)
    if mask_file is not None:
        mask = read_array(mask_file, "--mask")
        if mask.shape != space:
            raise InputError(f"--mask {mask_file}: has shape {mask.shape}; the input's fields have {space}")
        if not np.isin(mask, (0, 1)).all():
            raise InputError(f"--mask {mask_file}: expected only 0 (hidden) and 1 (observed)")
        return mask.astype(bool)
    if data.run_mask is None:
        raise InputError(f"this run draws a mask per {data.train.mask_per}: give --mask FILE or --no-mask")
    mask = np.asarray(data.run_mask)
    if mask.shape != space:
        raise InputError(f"the run's mask has shape {mask.shape}, the input's fields have {space}: give --mask or --no-mask")
    return mask


@eqx.filter_jit
def _predict_chunk(model: Surrogate, x, key, levels, num_samples: int):
    with jax.default_matmul_precision("float32"):
        mixture = predict(model, x, key=key, num_samples=num_samples)
        return {
            "mean": mixture.mean,
            "std_total": mixture.std,
            "std_predictive": mixture.std_predictive,
            "std_generalization": mixture.std_generalization,
            "quantiles": jnp.stack([mixture.quantile(level) for level in levels]),
        }


def predict_fields(
    model: Surrogate,
    x: Float[np.ndarray, "batch channel *space"],
    mask: Bool[np.ndarray, "*space"],
    *,
    mask_channel: bool,
    levels: tuple[float, ...],
    num_samples: int,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Mean, standard deviations and quantiles of the next fields, as arrays.

    `mean`, `std_total`, `std_predictive` and `std_generalization` have the shape of x, `quantiles` a leading axis
    of levels. Equal arguments give equal numbers, at any batch size: each chunk draws its own noise.
    """
    for level in levels:
        if not 0 < level < 1:
            raise InputError(f"--levels {level}: must lie in (0, 1)")
    observed = np.where(mask, x, 0).astype(np.float32)
    if mask_channel:
        channel = np.broadcast_to(mask.astype(np.float32), (x.shape[0], 1, *mask.shape))
        observed = np.concatenate([observed, channel], axis=1)
    chunks = []
    for number, start in enumerate(range(0, x.shape[0], _CHUNK)):
        # Filled up with zeros, so that one program serves any batch and a field's noise depends on
        # its place alone.
        part = np.zeros((_CHUNK, *observed.shape[1:]), np.float32)
        size = min(_CHUNK, x.shape[0] - start)
        part[:size] = observed[start : start + size]
        key = jax.random.fold_in(evaluation_key(seed), number)
        out = _predict_chunk(model, jnp.asarray(part), key, levels, num_samples)
        chunks.append({k: np.asarray(v)[:, :size] if k == "quantiles" else np.asarray(v)[:size] for k, v in out.items()})
    return {
        name: np.concatenate([chunk[name] for chunk in chunks], axis=1 if name == "quantiles" else 0)
        for name in chunks[0]
    } | {"levels": np.asarray(levels)}


def check_grid(num_modes: int, space: tuple[int, ...], name: str) -> None:
    """Refuses a grid too coarse for the run's Fourier modes."""
    try:
        check_modes((num_modes,) * len(space), space)
    except ValueError as error:
        raise InputError(f"--input {name}: {error}") from error


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes an NPZ file in one move."""
    try:
        with replacing(path) as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    except OSError as error:
        raise InputError(f"--output {path}: cannot write here ({error.strerror})") from error
