"""`export_model`: modules that the package does not own, as files that give what the model gives."""

import dataclasses
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pdequinox as pdeqx
import pytest
from jax import export
from safetensors.numpy import load_file

import crossreg
from crossreg.config import DataConfig, ModelConfig, TrainConfig
from crossreg.data.keys import evaluation_key
from crossreg.data.load import make_data
from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.data.trajectories import Trajectories, digest
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.export.write import export_model
from crossreg.fitting import Fit
from crossreg.nn.backbone import cross_regularize
from crossreg.nn.surrogate import predict
from foreign_modules import FOREIGN, WIDTH

SEED, SAMPLES, LEVELS = 4, 5, (0.1, 0.9)
CONFIG = ModelConfig(log_sigma_gen_start=-1.5)


def _unet_2d(in_channels, points, *, key):
    return pdeqx.arch.ClassicUNet(2, in_channels, WIDTH, hidden_channels=4, num_levels=1, key=key)


MODULES: dict[str, Any] = {name: (make, where, (2, 16)) for name, (make, where, _) in FOREIGN.items()}
MODULES["unet in two dimensions"] = (_unet_2d, FOREIGN["unet"][1], (1, 8, 6))


def _data(field_shape, **fields):
    rng = np.random.default_rng(6)
    train, test = (rng.normal(size=(n, 2, *field_shape)).astype(np.float32) for n in (POOL_SIZE, len(TEST_POOL)))
    config = DataConfig(train_size=6, reg_size=2, test_size=5, train_horizon=1, test_horizon=1)
    return make_data(Trajectories(train, test, {}, digest(train, test)), dataclasses.replace(config, **fields))


def _moved(model):
    """The model with no array at its start."""
    rng = np.random.default_rng(3)
    leaves, structure = jax.tree.flatten(model)
    moved = [x + 0.1 * rng.normal(size=x.shape).astype(np.float32) if eqx.is_inexact_array(x) else x for x in leaves]
    return jax.tree.unflatten(structure, moved)


def _model(name, data):
    make, where, _ = MODULES[name]

    @eqx.filter_jit  # one program, not fifty
    def build(key):
        module = make(data.train.in_channels, data.train.field_shape[1], key=key)
        return cross_regularize(module, where, data.train, config=CONFIG, key=key)

    return _moved(build(jax.random.key(1)))


@eqx.filter_jit
def _wanted(model, x) -> dict[str, jax.Array]:
    """`xr.predict` of each field alone, with the draws that the files are promised to have."""
    key = jax.random.fold_in(evaluation_key(SEED), 0)
    mixture = predict(model, x, key=jnp.stack([key] * len(x)), num_samples=SAMPLES)
    return {
        "mean": mixture.mean,
        "std": mixture.std,
        "std_predictive": mixture.std_predictive,
        "std_generalization": mixture.std_generalization,
        "quantiles": jnp.stack([mixture.quantile(level) for level in LEVELS], axis=1),
    }


def _assert_close(found, wanted):
    scale = np.sqrt(np.mean(wanted["mean"] ** 2 + wanted["std"] ** 2))
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name] / scale, array / scale, rtol=0, atol=1e-5, err_msg=name)


def _run_stablehlo(folder, *inputs):
    return export.deserialize(bytearray((folder / "model.stablehlo").read_bytes())).call(*inputs)


def _run_onnx(folder, **inputs):
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    return {name: np.asarray(array) for name, array in zip(names, session.run(names, inputs), strict=True)}


@pytest.mark.parametrize("name", MODULES)
def test_what_is_written_gives_what_the_model_gives(name, tmp_path):
    shape = MODULES[name][2]
    data = _data(shape, mask_channel=len(shape) == 2)
    model = _model(name, data)
    about = export_model(model, data.test, tmp_path / "out", seed=SEED, num_samples=SAMPLES, levels=LEVELS)
    batch = data.test.gather(jnp.arange(3))
    wanted = _wanted(model, batch.x)
    assert wanted["std_generalization"].min() > 0
    _assert_close(_run_onnx(tmp_path / "out", fields=np.asarray(batch.x[:, : shape[0]])), wanted)
    # Of both files, on other fields, one after the other.
    assert list(about["largest_difference"]) == ["model.stablehlo", "model.onnx"]
    for apart in about["largest_difference"].values():
        assert max(apart.values()) < 1e-5

    about = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "settings" not in about
    assert [stage.rsplit(".", 1)[1] for stage in about["network"]["stages"]] == [_network(model)]
    assert {described["group"] for described in about["arrays"].values()} == {"theta", "psi", "rho"}
    assert set(load_file(tmp_path / "out" / "model.safetensors")) == {*about["arrays"], "mask"}
    assert "what the network is" in (tmp_path / "out" / "README.md").read_text()
    if name == "deeponet":
        _assert_it_comes_back(tmp_path / "out", model, data)


def _network(model) -> str:
    return type(model.stages[0].module).__name__


def _assert_it_comes_back(folder, model, data):
    with pytest.raises(InputError, match=r"module of your own \(.*DeepONet\): give `like`"):
        crossreg.export.read_model(folder)
    make, where, _ = MODULES["deeponet"]
    module, key = make(3, 16, key=jax.random.key(8)), jax.random.key(9)
    again = crossreg.export.read_model(folder, like=cross_regularize(module, where, data.train, config=CONFIG, key=key))
    assert jax.tree.structure(again) == jax.tree.structure(model)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(a, b) if eqx.is_array(a) else None
    other = cross_regularize(module, lambda m: m.branch.layers[1], data.train, key=key)
    with pytest.raises(InputError, match="expected an array"):
        crossreg.export.read_model(folder, like=other)


def test_masks_of_their_own_and_units(tmp_path):
    """A mask for each pair is an input; fields are in their own units, and what is hidden is not read."""
    data = _data((2, 16), mask_per="pair", mask_channel=True)
    units = Units((10.0, -2.0), (5.0, 0.1))
    offset, scale = (np.asarray(part, np.float32)[:, None] for part in units)
    model = dataclasses.replace(_model("mlp", data), units=units)
    fields = np.asarray(data.test.trajectories[:4, 0]) * scale + offset
    masks = np.random.default_rng(2).random((4, 16)) < 0.7
    fitted = Fit(model, [], data, TrainConfig())  # stands for its model
    export_model(fitted, data.test, tmp_path / "out", seed=SEED, num_samples=SAMPLES, levels=LEVELS)
    x = np.concatenate([np.where(masks[:, None], fields, offset), masks[:, None]], axis=1)
    wanted = _wanted(model, jnp.asarray(x, jnp.float32))
    hidden = np.where(masks[:, None], fields, np.nan).astype(np.float32)
    for found in (
        _run_stablehlo(tmp_path / "out", hidden, masks),
        _run_onnx(tmp_path / "out", fields=hidden, mask=masks),
    ):
        for name in wanted:
            np.testing.assert_allclose(found[name] / scale, wanted[name] / scale, rtol=1e-5, atol=1e-5, err_msg=name)
    assert crossreg.export.read_model(tmp_path / "out", like=_model("mlp", data)).units == units


class Spectrum(eqx.Module):
    """A module with an operation that has no rule."""

    linear: eqx.nn.Conv1d

    def __call__(self, x):
        return self.linear(jnp.abs(jnp.fft.fft(x, axis=1)))


def test_an_operation_without_a_rule_is_named_and_the_rest_is_written(tmp_path):
    data = _data((2, 16), observed_fraction=1.0)
    module = Spectrum(eqx.nn.Conv1d(2, WIDTH, 1, key=jax.random.key(1)))
    model = _moved(cross_regularize(module, lambda m: m.linear, data.train, config=CONFIG, key=jax.random.key(2)))
    fields = np.asarray(data.test.trajectories[:3, 0])
    out = tmp_path / "out"
    files = "model.stablehlo, model.safetensors and config.json, but no model.onnx"
    said = rf"no rule for the operation 'fft' .*; .* has {files}"
    with pytest.raises(InputError, match=said):  # example fields in place of pairs
        export_model(model, fields, out, seed=SEED, num_samples=SAMPLES, levels=LEVELS)
    written = {"model.stablehlo", "model.safetensors", "config.json", "README.md", "serve_example_jax.py"}
    assert {path.name for path in out.iterdir()} == written
    assert "onnx" not in (out / "README.md").read_text()
    _assert_close(_run_stablehlo(out, fields), _wanted(model, jnp.asarray(fields)))


def test_what_cannot_be_is_told_in_one_line(tmp_path):
    data = _data((2, 16))
    model = _model("mlp", data)

    def refused(said, pairs, **fields):
        with pytest.raises(InputError, match=said) as error:
            export_model(model, pairs, tmp_path / "out", **fields)
        assert "\n" not in str(error.value)
        assert not (tmp_path / "out").exists()

    refused("does not take fields", _data((2, 16), mask_channel=True).test)
    refused("does not take fields", np.ones((3, 2, 17), np.float32))
    refused(r"fields have shape \(2, 16\); expected \(batch", np.ones((2, 16), np.float32))
    refused("levels is 1.0", data.test, levels=(1.0,))
    refused("seed is -1", data.test, seed=-1)
