"""A trained run applied to new fields: `crossreg predict`."""

import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from crossreg.data.checks import check_mask, finite
from crossreg.data.keys import evaluation_key
from crossreg.errors import InputError
from crossreg.files.memory import check_room
from crossreg.files.whole import read_array, replacing, writing_to
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.predictive.in_units import Predictive
from crossreg.progress.display import CountDisplay
from crossreg.runs.input_range import check_hidden, check_range, check_seen
from crossreg.runs.run_folder import Run
from crossreg.training.cohort import prediction_bytes

# Points per compiled call: bounds memory and changes no number.
_POINTS_PER_CALL = 2**16
_MOST_LEVELS = 1000
# Besides the levels: the input as given and as observed, the mean and three standard deviations, in parts and joined.
_FIELDS_KEPT = 10


def check_input(
    x: np.ndarray, channels: int, num_dims: int, name: str, *, gaps: bool = False
) -> Float[np.ndarray, "batch channel *space"]:
    """Return an input as float32, if it is a batch of fields with the run's channels.

    Args:
        x: The array.
        channels: The number of channels of a field.
        num_dims: The number of axes in space.
        name: The name of the file, for errors.
        gaps: Whether NaN is allowed, as a value that is missing.
    """
    wanted = f"(batch, {channels}, {', '.join('xyz'[:num_dims])})"
    if x.ndim != num_dims + 2 or x.shape[1] != channels:
        raise InputError(f"input {name}: has shape {x.shape}; expected {wanted}")
    if x.size == 0:
        raise InputError(f"input {name}: is empty (shape {x.shape})")
    return finite(x, f"input {name}:", gaps=gaps)


def choose_mask(run: Run, space: tuple[int, ...], mask_file: Path | None, no_mask: bool) -> Bool[np.ndarray, "*space"]:
    """Return the observation mask to apply: that of the run, that of a file, or one that hides nothing."""
    if mask_file is not None and no_mask:
        raise InputError("`mask` and `no_mask` exclude each other")
    if no_mask:
        return np.ones(space, bool)
    if mask_file is not None:
        return check_mask(read_array(mask_file, "mask"), space, f"mask {mask_file}", "the input's fields")
    if run.mask is None:
        raise InputError(f"this run draws a mask per {run.config.data.mask_per}: give `mask=FILE` or `no_mask`")
    return run.mask


def check_levels(levels: tuple[float, ...]) -> None:
    """Raise InputError for levels outside (0, 1), and for too many of them."""
    if not 1 <= len(levels) <= _MOST_LEVELS:
        raise InputError(f"`levels`: has {len(levels)} values; expected 1 to {_MOST_LEVELS}, each in (0, 1)")
    for level in levels:
        if not 0 < level < 1:
            raise InputError(f"levels is {level}: must lie in (0, 1)")


def observe(run: Run, x, mask, xp=np):
    """Return fields as the run's model reads them: values that are hidden or not finite are replaced.

    Args:
        run: The run.
        x: The fields, of shape (batch, channel, *space).
        mask: Where they are observed, of shape (*space,).
        xp: NumPy, or JAX where this is part of a program.

    Returns:
        float32 of shape (batch, channel, *space), with one more channel where the model sees the mask.
    """
    units, seen = run.model.units, xp.isfinite(x)
    hidden = 0.0 if units is None else np.reshape(units.offset, (-1, *(1,) * len(run.space)))
    observed = xp.where(mask & seen, x, hidden).astype(np.float32)
    if not run.config.data.mask_channel:
        return observed
    return xp.concatenate([observed, (mask & seen.all(axis=1, keepdims=True)).astype(np.float32)], axis=1)


def summarize(mixture: Predictive, levels: tuple[float, ...]) -> dict[str, Float[Array, "batch *shape"]]:
    """Return the mean, the standard deviations and the quantiles of a prediction.

    Quantiles have the shape (batch, level, *shape).
    """
    return {
        "mean": mixture.mean,
        "std": mixture.std,
        "std_predictive": mixture.std_predictive,
        "std_generalization": mixture.std_generalization,
        "quantiles": jnp.stack([mixture.quantile(level) for level in levels], axis=1),
    }


@eqx.filter_jit
def _predict_chunk(model: Surrogate, x, keys, levels: tuple[float, ...], num_samples: int):
    return summarize(predict(model, x, key=keys, num_samples=num_samples), levels)


def predict_fields(
    run: Run,
    x: Float[np.ndarray, "batch channel *space"],
    mask: Bool[np.ndarray, "*space"],
    *,
    levels: tuple[float, ...],
    seed: int = 0,
    progress: bool = False,
) -> dict[str, np.ndarray]:
    """Predict the next fields.

    A field's noise depends on the seed and on its place in the batch alone, so equal arguments give equal numbers.

    Args:
        run: The trained run.
        x: The fields to predict from.
        mask: Where they are observed.
        levels: The levels of the quantiles.
        seed: The seed of the noise.
        progress: Whether to show how many fields are predicted.

    Returns:
        `mean`, `std`, `std_predictive` and `std_generalization` of the shape of x; `quantiles` with a leading axis of
        levels; `levels`.

    Example:
        ```python
        run = load_run("runs/first")
        arrays = predict_fields(run, x, run.mask, levels=(0.05, 0.95))
        ```
    """
    check_levels(levels)
    check_room(
        4 * x.size * (_FIELDS_KEPT + 2 * len(levels)) + prediction_bytes(run.config, x[0].size),
        f"a prediction of {x.shape[0]} fields of {x[0].size} values with {len(levels)} levels",
    )
    observed = observe(run, x, mask)
    key = evaluation_key(seed)
    chunk = max(1, min(_POINTS_PER_CALL // x[0].size, x.shape[0]))
    chunks, samples = [], run.config.train.evaluation_samples
    with CountDisplay("fields predicted", enabled=progress) as display:
        for start in range(0, x.shape[0], chunk):
            # The last chunk is padded with the last field, so that one program serves all.
            index = np.minimum(np.arange(start, start + chunk), x.shape[0] - 1)
            keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.asarray(index))
            out = _predict_chunk(run.model, jnp.asarray(observed[index]), keys, levels, samples)
            size = min(chunk, x.shape[0] - start)
            chunks.append({name: np.asarray(array)[:size] for name, array in out.items()})
            display.update(start + size, x.shape[0])
    arrays = {name: np.concatenate([part[name] for part in chunks]) for name in chunks[0]}
    arrays["quantiles"] = np.moveaxis(arrays["quantiles"], 1, 0)
    return arrays | {"levels": np.asarray(levels)}


def check_grid(space: tuple[int, ...], own: tuple[int, ...], name: str) -> None:
    """Raise InputError for fields on another grid than `own`, on which the run was trained.

    A network gives numbers on other grids too, but with the spacing, the axes and the error bars of its own grid.
    """
    if space == own:
        return
    expected = ", ".join(f"{letter} {size}" for letter, size in zip("xyz", own, strict=False))
    order = f"; its axes may be in another order: expected (batch, channel, {', '.join('xyz'[: len(own)])})"
    raise InputError(
        f"input {name}: has fields of {' × '.join(map(str, space))} points; the run was trained on"
        f" {' × '.join(map(str, own))} ({expected}){order if sorted(space) == sorted(own) else ''}"
    )


def predict_file(
    run: Run,
    source: Path,
    target: Path,
    *,
    levels: tuple[float, ...],
    mask_file: Path | None,
    no_mask: bool,
    progress: bool = False,
) -> dict[str, np.ndarray]:
    """Predict from the fields of an NPY file, and write an NPZ file.

    Args:
        run: The trained run.
        source: The file of the fields, of shape (batch, channel, *space).
        target: The file to write, which must not exist.
        levels: The levels of the quantiles.
        mask_file: An NPY file that says where the fields are observed, in place of the run's mask.
        no_mask: Whether all points are observed.
        progress: Whether to show how many fields are predicted.

    Returns:
        The arrays of `predict_fields`.

    Raises:
        InputError: If the fields do not fit the run, or lie far outside the range that it was trained on.
    """
    if target.exists():
        raise InputError(f"output {target}: exists already; name another file, or remove it")
    x, mask, warnings = read_fields(run, source, mask_file, no_mask)
    arrays = predict_fields(run, x, mask, levels=levels, progress=progress)
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise InputError(
                f"input {source}: the predicted {name} is not finite; these fields are far from those that the run was"
                " trained on"
            )
    write_arrays(target, arrays)
    for warning in warnings:
        print(f"crossreg: {warning}", file=sys.stderr)
    return arrays


def read_fields(
    run: Run, source: Path, mask_file: Path | None, no_mask: bool
) -> tuple[Float[np.ndarray, "batch channel *space"], Bool[np.ndarray, "*space"], list[str]]:
    """Read the fields of an NPY file, where they fit the run.

    Args:
        run: The trained run.
        source: The file.
        mask_file: An NPY file that says where the fields are observed, in place of the run's mask.
        no_mask: Whether all points are observed.

    Returns:
        The fields, the mask, and warnings of fields at the edge of what the run was trained on.

    Raises:
        InputError: If the fields do not fit the run, or lie far outside the range that it was trained on.
    """
    # In data from files a missing value is NaN, and hidden.
    gaps = run.config.data.data is not None
    x = check_input(read_array(source, "input"), run.channels, len(run.space), str(source), gaps=gaps)
    check_grid(x.shape[2:], run.space, str(source))
    wanted, own = "xyz"[: len(run.space)], "".join(letter for letter in run.axes if letter in "xyz")
    if own not in ("", wanted):  # on a square grid, the wrong order has the right shape
        print(
            f"crossreg: the run's file has the axes {run.axes}; the input is read as (batch, channel,"
            f" {', '.join(wanted)}), not in the order {', '.join(own)}",
            file=sys.stderr,
        )
    mask = choose_mask(run, x.shape[2:], mask_file, no_mask)
    warnings = check_seen(x, mask, f"input {source}")
    if run.input_range is not None:
        warnings += check_hidden(x, mask, run.input_range, f"input {source}")
        warnings += check_range(x, mask, run.input_range, f"input {source}")
    return x, mask, warnings


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an NPZ file in one move."""
    with writing_to(f"output {path}"), replacing(path) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
