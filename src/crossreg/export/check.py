"""Run exported programs from their bytes, and compare them with `crossreg predict`."""

import importlib.util
from pathlib import Path

import numpy as np
from jax import export

from crossreg.errors import InputError
from crossreg.export.program import Settings
from crossreg.runs.fields.test_fields import load_run_fields
from crossreg.runs.prediction import predict_fields
from crossreg.runs.run_folder import Run

# A larger difference is an error and not only rounding. 1e-6 is usual; where a model amplifies rounding, as quantiles
# far out do, two compilations of the same model differ as much.
_WRONG = 1e-4
_BATCHES = (3, 1)
# An offset adds its rounding to the input and to a mean or quantile, in both programs.
_ROUNDINGS = 4
EXAMPLES = sum(_BATCHES)
STABLEHLO, ONNX = "model.stablehlo", "model.onnx"


def check_artefacts(
    run: Run, inputs: dict[str, np.ndarray], settings: Settings, files: dict[str, bytes]
) -> dict[str, dict[str, float] | None]:
    """Return the largest difference of each output from `crossreg predict`, over batches of two sizes.

    Outputs are compared in the network's units. A difference is relative to the size of the prediction: the root mean
    square of the channel, spread included, plus the absolute value itself. A mean or quantile may exceed the limit by
    the rounding of the units' offset in float32; the returned differences include that.

    Args:
        run: the run that was exported.
        inputs: example inputs by name, `EXAMPLES` of each.
        settings: the settings of the export.
        files: the programs by file name.

    Returns:
        The differences by output, for each file; None for ONNX if onnxruntime is not installed.

    Raises:
        InputError: if a difference is larger than rounding.
    """
    units = run.model.units
    offset, scale = (
        np.reshape(np.asarray(part, np.float64), (-1, *(1,) * len(run.space)))
        for part in (([0.0], [1.0]) if units is None else units)
    )

    def standard(name: str, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, np.float64) / scale - (0.0 if name.startswith("std") else offset / scale)

    want = {name: standard(name, values) for name, values in _predicted(run, settings, inputs).items()}
    # E y² = (E y)² + Var y.
    squares = np.square(want["mean"]) + np.square(want["std"])
    usual = np.sqrt(np.mean(squares, axis=(0, *range(2, squares.ndim)), keepdims=True))[0]
    rounding = _ROUNDINGS * np.finfo(np.float32).eps * np.abs(offset / scale)
    found: dict[str, dict[str, float] | None] = dict.fromkeys(files)
    for file, content in files.items():
        call = _onnx_runner(content) if file == ONNX else export.deserialize(bytearray(content)).call
        if call is None:
            continue
        parts, start = [], 0
        for size in _BATCHES:
            parts.append(call(*(array[start : start + size] for array in inputs.values())))
            start += size
        apart = {}
        for name, values in want.items():
            got = standard(name, np.concatenate([part[name] for part in parts]))
            difference, size = np.abs(got - values), usual + np.abs(values)
            apart[name] = largest = float(np.max(difference / size))
            allowed = _WRONG * size + (0.0 if name.startswith("std") else rounding)
            if not (difference <= allowed).all():
                raise InputError(
                    f"{file}: {name} differs from the model's own by {largest:.1e} of the size of the fields;"
                    f" expected at most {_WRONG:g}, so nothing was written"
                )
        found[file] = apart
    return found


def examples_of_run(run: Run, folder: Path) -> dict[str, np.ndarray]:
    """Return test fields of the run if its folder has them, else random ones of their size, with random masks."""
    rng = np.random.default_rng(0)
    fields, ones = rng.normal(size=(EXAMPLES, run.channels, *run.space)), (-1, *(1,) * len(run.space))
    if (units := run.model.units) is not None:
        fields = fields * np.reshape(units.scale, ones) + np.reshape(units.offset, ones)
    try:
        truth = load_run_fields(folder, compute=False).truth
        if units is None:
            fields *= np.sqrt(np.mean(np.square(truth, dtype=np.float64), axis=(0, 1, 3))).reshape(ones)
        every = truth.reshape(-1, *truth.shape[2:])
        if every.shape[1:] == fields.shape[1:]:
            fields = every[np.linspace(0, len(every) - 1, EXAMPLES).astype(int)]
    except InputError:
        pass  # not every folder has them
    mask = rng.random((EXAMPLES, *run.space)) < run.config.data.observed_fraction
    return {"fields": np.asarray(fields, np.float32), "mask": mask}


def _predicted(run: Run, settings: Settings, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the predictions of `crossreg predict` for each field alone."""
    run = run._replace(config=run.config.replace(evaluation_samples=settings.num_samples))
    fields = inputs["fields"]
    masks = inputs["mask"] if "mask" in inputs else np.broadcast_to(np.asarray(run.mask), (len(fields), *run.space))
    each = []
    for field, mask in zip(fields, masks, strict=True):
        arrays = predict_fields(run, field[None], mask, levels=settings.levels, seed=settings.seed)
        arrays["quantiles"] = np.moveaxis(arrays["quantiles"], 0, 1)
        each.append(arrays)
    return {name: np.concatenate([arrays[name] for arrays in each]) for name in each[0] if name != "levels"}


def _onnx_runner(model: bytes):
    """Return a function of the inputs in order; None if onnxruntime is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(model)
    names = [output.name for output in session.get_outputs()]

    def call(*inputs):
        given = dict(zip([value.name for value in session.get_inputs()], inputs, strict=True))
        return dict(zip(names, session.run(names, given), strict=True))

    return call
