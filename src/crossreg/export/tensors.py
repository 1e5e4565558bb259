"""The trained arrays as safetensors, with every setting that is needed to rebuild their model."""

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from crossreg.config import from_dict
from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.files.whole import write_json
from crossreg.nn.build import model_like
from crossreg.nn.groups import groups
from crossreg.nn.surrogate import Surrogate
from crossreg.runs.run_folder import Run, units_in
from crossreg.training.checkpoint import named_arrays

TENSORS, CONFIG = "model.safetensors", "config.json"
_MASK = "mask"


def write_tensors(folder: Path, run: Run, about: dict[str, Any]) -> None:
    """Write the arrays of a model with its mask, and their description added to `about`."""
    from safetensors.numpy import save

    parameters = eqx.filter(run.model, eqx.is_inexact_array)
    arrays = {name: np.asarray(array) for name, array in named_arrays(parameters).items()}
    owners = named_arrays(groups(run.model))
    described = {
        name: {"shape": list(array.shape), "dtype": str(array.dtype), "group": owners[name]}
        for name, array in arrays.items()
    }
    if run.mask is not None:
        arrays[_MASK] = run.mask
    (folder / TENSORS).write_bytes(save(arrays))
    fields: dict[str, Any] = {"channels": run.channels, "space": list(run.space)}
    if (units := run.model.units) is not None:
        fields |= {"offset": units.offset, "scale": units.scale}
    write_json(folder / CONFIG, about | {"fields": fields, "arrays": described})


def read_model(folder: Path | str, like: Surrogate | None = None) -> Surrogate:
    """Rebuild the surrogate of an exported folder from its tensors and its description.

    Args:
        folder: a folder written by `crossreg export` or [`export_model`][crossreg.export.export_model].
        like: for a module of your own, a surrogate made by `cross_regularize` in the same way; its values do not
            matter.

    Returns:
        The trained surrogate.

    Raises:
        InputError: if the folder is not a readable export, or `like` is missing or has other arrays.

    Example:
        ```python
        model = xr.export.read_model("exported")
        ```
    """
    if importlib.util.find_spec("safetensors") is None:
        raise InputError("read_model needs safetensors: pip install 'crossreg[export]'")
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    try:
        about = json.loads(read_regular(folder / CONFIG))
        channels, space = int(about["fields"]["channels"]), tuple(map(int, about["fields"]["space"]))
        settings, network = about.get("settings"), about.get("network", {})
        units = units_in(about["fields"], channels)
        arrays = load_file(folder / TENSORS)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InputError(f"{folder}: not a readable export ({error})") from error
    if like is not None:
        like = dataclasses.replace(like, units=units)
    elif settings is None:
        raise InputError(
            f"{folder}: holds a module of your own ({', '.join(network.get('stages', []))}): give `like`, a surrogate"
            " built in the same way, with any values"
        )
    else:
        config = from_dict(settings, where=f"{folder / CONFIG}: settings")
        like = model_like(config.model, channels + config.data.mask_channel, (channels, *space), units)
    dynamic, static = eqx.partition(like, _is_trained)
    expected = named_arrays(dynamic)
    for name, leaf in expected.items():
        if name not in arrays or arrays[name].shape != leaf.shape:
            raise InputError(f"{folder / TENSORS}: expected an array {name} of shape {leaf.shape}")
    leaves = [jnp.asarray(arrays[name], leaf.dtype) for name, leaf in expected.items()]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)


def _is_trained(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) or eqx.is_inexact_array(leaf)
