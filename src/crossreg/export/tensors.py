"""The trained arrays as safetensors, and beside them every setting that is needed to rebuild what they belong to."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from crossreg.config import from_dict, to_dict
from crossreg.errors import InputError
from crossreg.nn.build import model_like
from crossreg.nn.groups import groups
from crossreg.nn.surrogate import Surrogate
from crossreg.nn.units import Units
from crossreg.studies.run_folder import Run, write_json
from crossreg.training.checkpoint import named_arrays

TENSORS, CONFIG = "model.safetensors", "config.json"
_MASK = "mask"


def write_tensors(folder: Path, run: Run, about: dict[str, Any]) -> None:
    """Writes the arrays of a run, its mask among them, and a description, to which `about` adds."""
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
    write_json(folder / CONFIG, about | {"fields": fields, "settings": to_dict(run.config), "arrays": described})


def read_model(folder: Path | str) -> Surrogate:
    """The surrogate of an exported folder, rebuilt from its tensors and its description alone."""
    folder = Path(folder)
    try:
        about = json.loads((folder / CONFIG).read_text())
        channels, space = int(about["fields"]["channels"]), tuple(map(int, about["fields"]["space"]))
        config = from_dict(about["settings"], where=f"{folder / CONFIG}: settings")
        units = None
        if "scale" in about["fields"]:
            units = Units(*(tuple(map(float, about["fields"][name])) for name in ("offset", "scale")))
        arrays = load_file(folder / TENSORS)
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InputError(f"{folder}: not a readable export ({error})") from error
    like = model_like(config.model, channels + config.data.mask_channel, (channels, *space), units)
    dynamic, static = eqx.partition(like, lambda leaf: hasattr(leaf, "dtype"))
    expected = named_arrays(dynamic)
    for name, leaf in expected.items():
        if name not in arrays or arrays[name].shape != leaf.shape:
            raise InputError(f"{folder / TENSORS}: expected an array {name} of shape {leaf.shape}")
    leaves = [jnp.asarray(arrays[name], leaf.dtype) for name, leaf in expected.items()]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)
