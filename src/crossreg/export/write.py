"""`crossreg export` and `export_model`: write a trained model as files that need nothing of this package.

model.stablehlo      for JAX, on CPU, CUDA and TPU (`stablehlo.py`)
model.onnx           for onnxruntime and others (`onnx_graph.py`)
model.safetensors    the trained arrays by name, and the run's mask
config.json          inputs, outputs, seed, settings, names and shapes of the arrays (`tensors.py`)
README.md            a description of this export
serve_example.py     an HTTP server of 15 lines; serve_example_jax.py the same with JAX
"""

import importlib.metadata
import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from crossreg.config import TrainConfig, to_dict
from crossreg.data.pairs import AbstractPairs
from crossreg.errors import InputError
from crossreg.export.check import EXAMPLES, ONNX, STABLEHLO, check_artefacts, examples_of_run
from crossreg.export.program import Settings, make_program
from crossreg.export.readme import readme
from crossreg.export.subject import Fields, described, examples_of, run_of
from crossreg.files.whole import made_whole
from crossreg.nn.surrogate import Surrogate, Trained
from crossreg.runs.kinds import kind_of
from crossreg.runs.prediction import check_levels
from crossreg.runs.run_folder import Run, channel_names, load_run

_EXAMPLES = Path(__file__).parent / "examples"
LEVELS = (0.05, 0.5, 0.95)
_NEEDED = ("safetensors", "onnx", "flatbuffers")
_PACKAGES = ("crossreg", "jax", "jaxlib", "onnx", "safetensors")


def export_run(
    folder: Path | str,
    output: Path | str,
    *,
    seed: int = 0,
    num_samples: int | None = None,
    levels: tuple[float, ...] = LEVELS,
    mask_input: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Export a run folder, as `crossreg export` does.

    Args:
        folder: The run folder.
        output: A new or empty folder.
        seed: Seed of the noise draws, which become constants.
        num_samples: Number of noise draws; by default the number that the run predicts with.
        levels: Levels of the quantiles.
        mask_input: Whether the mask is an input, rather than a constant.
        progress: Report progress on stderr.

    Returns:
        The contents of `config.json`.

    Raises:
        InputError: If `folder` holds no finished run, or as [`export_model`][crossreg.export.export_model] does.

    Example:
        ```python
        xr.export.export_run("runs/first", "exported")
        ```
    """
    folder, output = Path(folder), Path(output)
    _check_asked(output, seed, num_samples, levels)
    run = _load(folder)
    settings = Settings(seed, num_samples or run.config.train.evaluation_samples, tuple(levels), mask_input)
    about: dict[str, Any] = {"settings": _settings(run)}
    if names := channel_names(folder):
        about["channels"] = list(names)
    return _export(run, examples_of_run(run, folder), settings, about, output, progress=progress)


def _settings(run: Run) -> dict[str, Any]:
    """Return the settings of a run, without the path of the user's data, of which only the file name is exported."""
    settings = to_dict(run.config)
    path = settings["data"]["data"]
    return settings | {"data": settings["data"] | {"data": path and Path(path).name}}


def export_model(
    model: Surrogate | Trained,
    pairs: AbstractPairs | Fields,
    output: Path | str,
    *,
    seed: int = 0,
    num_samples: int = TrainConfig.evaluation_samples,
    levels: tuple[float, ...] = LEVELS,
    mask_input: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Export a model in memory, as `crossreg export` exports a run folder; see [`cross_regularize`][] for your modules.

    The folder is written completely or not at all. If the model has an operation without an ONNX rule, everything but
    `model.onnx` is written, and the error names the operation.

    Args:
        model: a trained surrogate, or a `Fit` or a `Run` that holds it.
        pairs: a split of its data, such as `data.test`, which gives the inputs and the mask, and on which the files are
            checked. Or example fields (batch, channel, *space), for a model that sees every point.
        output: a new or empty folder.
        seed: seed of the noise draws, which become constants.
        num_samples: number of noise draws.
        levels: levels of the quantiles.
        mask_input: make the mask an input, rather than a constant.
        progress: report progress on stderr.

    Returns:
        The contents of `config.json`.

    Raises:
        InputError: if an argument is out of range, `output` is not empty, the model does not fit the pairs, a file
            differs from the model by more than rounding, or the model has no ONNX rule for an operation.

    Example:
        ```python
        xr.export.export_model(result, data.test, "exported", levels=(0.05, 0.5, 0.95))
        ```
    """
    output = Path(output)
    surrogate: Any = getattr(model, "model", model)
    _check_asked(output, seed, num_samples, levels)
    run = run_of(surrogate, pairs, num_samples)
    settings = Settings(seed, num_samples, tuple(levels), mask_input)
    about = {"network": described(surrogate)}
    return _export(run, examples_of(pairs, EXAMPLES), settings, about, output, progress=progress)


def _check_asked(output: Path, seed: int, num_samples: int | None, levels: tuple[float, ...]) -> None:
    """Raise InputError if an argument is out of range, before anything is read."""
    if not 0 <= seed < 2**31:
        raise InputError(f"seed is {seed}: must lie in 0 … 2147483647")
    if num_samples is not None and num_samples < 1:
        raise InputError(f"num_samples is {num_samples}: must be at least 1")
    check_levels(levels)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"output {output}: exists already; choose a new or empty folder")
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"export needs {', '.join(missing)}: pip install 'crossreg[export]'")


def _load(folder: Path) -> Run:
    """Return the run of a folder; raise InputError for folders that cannot be exported."""
    if (kind := kind_of(folder)) == "sweep":
        raise InputError(f"{folder}: is a sweep; `crossreg extract` makes a run of one of its models, to export")
    if kind == "cars":
        raise InputError(f"{folder}: is a car experiment, whose model is bound to a map for each car; expected a run")
    return load_run(folder)


def _export(
    run: Run,
    examples: dict[str, np.ndarray],
    settings: Settings,
    about: dict[str, Any],
    output: Path,
    *,
    progress: bool,
) -> dict[str, Any]:
    """Make the files, check them on examples, and write all of them or none; return the contents of config.json."""
    from crossreg.export.onnx_graph import OPSET, to_onnx
    from crossreg.export.onnx_rules import NoRuleError
    from crossreg.export.stablehlo import PLATFORMS, to_stablehlo
    from crossreg.export.tensors import write_tensors

    _tell(f"making {STABLEHLO} and {ONNX} …", progress)
    program = make_program(run, settings)
    files = {STABLEHLO: bytes(to_stablehlo(program))}
    onnx: dict[str, Any] = {"opset": OPSET}
    try:
        made = to_onnx(program, "mean, standard deviations and quantiles of the next fields")
        files[ONNX] = made.SerializeToString()
    except NoRuleError as error:
        onnx = {"no_onnx": str(error)}
    _tell("checking them against the model …", progress)
    checked = check_artefacts(run, {name: examples[name] for name in program.inputs}, settings, files)
    outputs = jax.eval_shape(program.function, *program.batched(1))
    about = {
        "format": 1,
        "inputs": {name: _described(like.shape, like.dtype) for name, like in program.inputs.items()},
        "outputs": {name: _described(like.shape[1:], like.dtype) for name, like in outputs.items()},
        "levels": list(settings.levels),
        "noise": {"seed": settings.seed, "samples": settings.num_samples if run.model.is_stochastic else 1},
        "mask": "an input" if "mask" in program.inputs else "the run's own, part of the model",
        "platforms": list(PLATFORMS),
        **onnx,
        "largest_difference": checked,
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        **about,
    }
    with made_whole(output, "output") as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        write_tensors(folder, run, about)
        (folder / "README.md").write_text(readme(about))
        for example in sorted(_EXAMPLES.glob("*.py")):
            if ONNX in files or example.name != "serve_example.py":
                shutil.copyfile(example, folder / example.name)
    if reason := about.get("no_onnx"):
        raise InputError(
            f"{reason}; {output} has model.stablehlo, model.safetensors and config.json, but no model.onnx"
        )
    return about


def _described(shape: tuple[int, ...], dtype: Any) -> dict[str, Any]:
    return {"shape": ["batch", *shape], "dtype": str(dtype)}


def _tell(message: str, progress: bool) -> None:
    if progress:
        print(message, file=sys.stderr, flush=True)
