"""`crossreg export`: what is written equals `crossreg predict`, and runs where crossreg cannot be imported."""

import dataclasses
import importlib.util
import io
import json
import re
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from jax import export
from safetensors.numpy import load_file

import crossreg
from crossreg.cli.main import main
from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.export.check import check_artefacts, examples_of_run
from crossreg.export.onnx_graph import to_onnx
from crossreg.export.program import ExportedFunction, Settings, make_program
from crossreg.export.stablehlo import to_stablehlo
from crossreg.export.tensors import read_model
from crossreg.export.write import export_run
from crossreg.runs.prediction import predict_fields
from crossreg.runs.run_folder import load_run

CHANNELS, POINTS, LEVELS, SEED, SAMPLES = 2, 20, (0.001, 0.3, 0.999), 4, 7
LOCATIONS = "jax_traceback_in_locations_limit"
OUTPUTS = ("mean", "quantiles", "std_generalization", "std_predictive", "std")
# Without site, the editable install is not on the path.
ELSEWHERE = [sys.executable, "-I", "-S", "-c"]
PREAMBLE = f"""
import sys
sys.path.append({sysconfig.get_path("purelib")!r})
try:
    import crossreg
except ImportError:
    pass
else:
    sys.exit("crossreg is there")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny, make_run_folder) -> Path:
    config = tiny.replace(feature_noise="both", predict_increment=True, log_sigma_gen_start=-2.0)
    return make_run_folder(tmp_path_factory.mktemp("run") / "a", config, (CHANNELS, POINTS))


@pytest.fixture(scope="module")
def exported(folder) -> Path:
    """One export by the command line."""
    output = folder.parent / "out"
    levels = [str(level) for level in LEVELS]
    flags = ["--seed", str(SEED), "--samples", str(SAMPLES), "--levels", *levels, "--quiet"]
    assert main(["export", str(folder), "--output", str(output), *flags]) == 0
    return output


@pytest.fixture(scope="module")
def fields() -> np.ndarray:
    return np.random.default_rng(8).normal(size=(5, CHANNELS, POINTS)).astype(np.float32)


@pytest.fixture(scope="module")
def wanted(folder, fields) -> dict[str, np.ndarray]:
    """`crossreg predict` of each field alone."""
    run = load_run(folder)
    return _predict_each(run._replace(config=run.config.replace(evaluation_samples=SAMPLES)), fields, run.mask)


def _predict_each(run, fields, masks, levels=LEVELS, seed=SEED) -> dict[str, np.ndarray]:
    masks = np.broadcast_to(masks, (len(fields), *run.space))
    each = [predict_fields(run, x[None], m, levels=levels, seed=seed) for x, m in zip(fields, masks, strict=True)]
    stacked = {name: np.concatenate([part[name] for part in each], axis=int(name == "quantiles")) for name in OUTPUTS}
    return stacked | {"quantiles": np.moveaxis(stacked["quantiles"], 0, 1)}


def _assert_close(found, wanted):
    """To 1e-5 of the scale of the predicted fields."""
    assert sorted(found) == sorted(OUTPUTS)
    scale = np.sqrt(np.mean(wanted["mean"] ** 2 + wanted["std"] ** 2))
    for name in OUTPUTS:
        assert found[name].shape == wanted[name].shape
        np.testing.assert_allclose(found[name] / scale, wanted[name] / scale, rtol=0, atol=1e-5, err_msg=name)


def _run_onnx(folder: Path, **inputs) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    names, arrays = [o.name for o in session.get_outputs()], session.run(None, inputs)
    return {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}


def _run_stablehlo(folder: Path, *inputs) -> Any:
    return export.deserialize(bytearray((folder / "model.stablehlo").read_bytes())).call(*inputs)


def test_both_programs_give_what_predict_gives_each_field_alone(exported, fields, wanted):
    assert wanted["std_predictive"].min() > 0
    assert wanted["std_generalization"].min() > 0
    _assert_close(_run_stablehlo(exported, fields), wanted)
    _assert_close(_run_onnx(exported, fields=fields), wanted)


def test_a_field_does_not_depend_on_its_batch(exported, fields, wanted):
    alone = {name: array[3:4] for name, array in wanted.items()}
    _assert_close(_run_stablehlo(exported, fields[3:4]), alone)
    _assert_close(_run_onnx(exported, fields=fields[3:4]), alone)
    turned = _run_onnx(exported, fields=fields[::-1].copy())
    _assert_close({name: array[::-1] for name, array in turned.items()}, wanted)


def test_what_is_hidden_is_not_read(exported, folder, fields, wanted):
    changed = np.where(np.asarray(load_run(folder).mask), fields, np.nan).astype(np.float32)
    _assert_close(_run_stablehlo(exported, changed), wanted)
    _assert_close(_run_onnx(exported, fields=changed), wanted)


def test_the_artefact_is_for_any_batch_and_three_platforms(exported):
    model = export.deserialize(bytearray((exported / "model.stablehlo").read_bytes()))
    assert model.platforms == ("cpu", "cuda", "tpu")
    assert str(model.in_avals[0].shape) == f"(batch, {CHANNELS}, {POINTS})"
    opset = onnx.load(exported / "model.onnx").opset_import[0].version
    assert opset >= 17


def test_no_file_says_where_the_machine_that_made_it_has_its_packages(exported, folder):
    for path in exported.iterdir():
        content = path.read_bytes()
        for place in (Path(crossreg.__file__).parent, Path(jax.__file__).parent, folder, Path(__file__)):
            assert str(place).encode() not in content, path.name
    assert not re.search(rb"[\w./-]+\.py\b", (exported / "model.stablehlo").read_bytes())
    assert getattr(jax.config, LOCATIONS) != 0  # as before the export


def test_everything_runs_where_crossreg_cannot_be_imported(exported, fields, wanted, tmp_path):
    np.save(tmp_path / "fields.npy", fields)
    script = f"""{PREAMBLE}
import numpy as np
fields = np.load({str(tmp_path / "fields.npy")!r})
import onnxruntime
session = onnxruntime.InferenceSession({str(exported / "model.onnx")!r})
names = [o.name for o in session.get_outputs()]
np.savez({str(tmp_path / "onnx.npz")!r}, **dict(zip(names, session.run(names, {{"fields": fields}}))))
from jax import export
model = export.deserialize(bytearray(open({str(exported / "model.stablehlo")!r}, "rb").read()))
np.savez({str(tmp_path / "stablehlo.npz")!r}, **model.call(fields))
from safetensors.numpy import load_file
assert len(load_file({str(exported / "model.safetensors")!r})) > 10
assert "crossreg" not in sys.modules and "equinox" not in sys.modules
"""
    done = subprocess.run([*ELSEWHERE, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("onnx", "stablehlo"):
        with np.load(tmp_path / f"{name}.npz") as found:
            _assert_close(dict(found), wanted)


@pytest.mark.parametrize("name", ["serve_example.py", "serve_example_jax.py"])
def test_the_examples_serve_it_without_crossreg(name, exported, fields, wanted):
    text = (exported / name).read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith('"""')]
    assert len(lines) <= 15
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = PREAMBLE + text.replace("8000", str(port))
    server = subprocess.Popen([*ELSEWHERE, script], cwd=exported, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        body = io.BytesIO()
        np.savez(body, fields=fields)
        answer = _post(f"http://127.0.0.1:{port}", body.getvalue(), server)
        with socket.create_connection(("127.0.0.1", port)) as slow:  # it keeps nobody waiting
            slow.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf")
            assert _post(f"http://127.0.0.1:{port}", body.getvalue(), server, timeout=30) == answer
            slow.settimeout(30)
            assert slow.recv(1) == b""  # and is not waited for
    finally:
        server.kill()
        server.wait()
    with np.load(io.BytesIO(answer)) as found:
        _assert_close(dict(found), wanted)


def _post(address: str, body: bytes, server: subprocess.Popen, timeout: float = 120) -> bytes:
    for _ in range(600):
        assert server.poll() is None, server.stdout and server.stdout.read()
        try:
            with urllib.request.urlopen(urllib.request.Request(address, data=body), timeout=timeout) as answer:
                return answer.read()
        except urllib.error.URLError:  # not yet listening
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


def test_the_model_is_rebuilt_from_tensors_and_config_alone(exported, folder):
    run, rebuilt = load_run(folder), read_model(exported)
    assert jax.tree.structure(rebuilt) == jax.tree.structure(run.model)
    for a, b in zip(jax.tree.leaves(rebuilt), jax.tree.leaves(run.model), strict=True):
        np.testing.assert_array_equal(a, b) if hasattr(a, "shape") else None
    stored, about = load_file(exported / "model.safetensors"), json.loads((exported / "config.json").read_text())
    np.testing.assert_array_equal(stored.pop("mask"), run.mask)
    assert {name: list(array.shape) for name, array in stored.items()} == {
        name: described["shape"] for name, described in about["arrays"].items()
    }
    assert {described["group"] for described in about["arrays"].values()} == {"theta", "psi", "rho"}
    assert about["arrays"]["heads.sigma_gen.linear.weight"]["group"] == "rho"


def test_a_corrupted_export_is_refused_in_one_line(exported, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((exported / name).read_bytes()[:-200])
    with pytest.raises(InputError, match="not a readable export"):
        read_model(tmp_path)
    (tmp_path / "config.json").write_bytes((exported / "config.json").read_bytes())
    with pytest.raises(InputError, match="not a readable export"):
        read_model(tmp_path)


def test_the_description_says_what_was_asked_for(exported):
    about = json.loads((exported / "config.json").read_text())
    assert about["noise"] == {"seed": SEED, "samples": SAMPLES}
    assert about["levels"] == list(LEVELS)
    assert about["outputs"]["quantiles"]["shape"] == ["batch", len(LEVELS), CHANNELS, POINTS]
    for apart in about["largest_difference"].values():
        assert sorted(apart) == sorted(OUTPUTS)
        assert 0 < max(apart.values()) < 1e-5
    text = (exported / "README.md").read_text()
    assert f"`fields` | (batch, {CHANNELS}, {POINTS}) | float32" in text
    assert f"{SAMPLES} noise draws come from the seed {SEED}" in text
    assert (exported / "serve_example.py").read_text().strip() in text


def test_in_two_dimensions_with_a_mask_for_each_field(tmp_path, tiny, make_run_folder):
    config = tiny.replace(mask_per="trajectory", mask_channel=True, feature_noise="dropout", num_modes=3, num_blocks=2)
    folder = make_run_folder(tmp_path / "run", config, (3, 8, 6))
    about = export_run(folder, tmp_path / "out", levels=(0.2,))
    assert about["inputs"]["mask"] == {"shape": ["batch", 8, 6], "dtype": "bool"}
    rng = np.random.default_rng(4)
    fields, masks = rng.normal(size=(2, 3, 8, 6)).astype(np.float32), rng.random((2, 8, 6)) < 0.6
    wanted = _predict_each(load_run(folder), fields, masks, levels=(0.2,), seed=0)
    _assert_close(_run_stablehlo(tmp_path / "out", fields, masks), wanted)
    _assert_close(_run_onnx(tmp_path / "out", fields=fields, mask=masks), wanted)


def test_fields_in_units_of_their_own_with_gaps(folder, fields):
    """What is not finite counts as hidden, and stands at the offset of its channel."""
    run = load_run(folder)
    run = run._replace(model=dataclasses.replace(run.model, units=Units((1e3, -2.0), (50.0, 0.1))))
    x = np.asarray(1e3, np.float32) + 50 * fields[:2]
    x[:, 1] = -2 + 0.1 * fields[:2, 1]
    x[1, 0, 3:7] = np.nan
    program = make_program(run, Settings(SEED, run.config.train.evaluation_samples, (0.3,), mask_input=False))
    session = onnxruntime.InferenceSession(to_onnx(program, "").SerializeToString())
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(names, {"fields": x}), strict=True))
    _assert_close(found, _predict_each(run, x, run.mask, levels=(0.3,)))


def test_a_program_that_differs_is_refused(folder, exported):
    run = load_run(folder)
    settings = Settings(SEED, SAMPLES, LEVELS, mask_input=False)
    corrupted = onnx.load(exported / "model.onnx")
    largest = max(corrupted.graph.initializer, key=lambda constant: len(constant.raw_data))
    values = onnx.numpy_helper.to_array(largest).copy()
    values.flat[0] += 0.01
    largest.CopyFrom(onnx.numpy_helper.from_array(values, largest.name))
    inputs = {"fields": examples_of_run(run, folder)["fields"]}
    with pytest.raises(InputError, match=r"model\.onnx: .* expected at most 0.0001"):
        check_artefacts(run, inputs, settings, {"model.onnx": corrupted.SerializeToString()})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--seed", "-1"], "--seed -1: must lie in"),
        (["--samples", "0"], "--samples 0: must be at least 1"),
        (["--levels", "0.5", "1"], "--levels 1.0: must lie in (0, 1)"),
    ],
)
def test_bad_flags_are_told_in_one_line(flags, said, folder, tmp_path, capsys):
    assert main(["export", str(folder), "--output", str(tmp_path / "out"), *flags]) == 2
    _assert_one_line(capsys, said)
    assert not (tmp_path / "out").exists()


def test_python_takes_paths_as_text_and_hears_of_its_own_arguments(tmp_path):
    with pytest.raises(InputError, match=r"^num_samples is 0: must"):
        export_run(str(tmp_path), str(tmp_path / "out"), num_samples=0)
    with pytest.raises(InputError, match=f"^{tmp_path}"):
        export_run(str(tmp_path), str(tmp_path / "out"))


def test_the_extra_brings_all_that_an_export_needs(folder, tmp_path, capsys, monkeypatch):
    """`jax.export` reads and writes with flatbuffers, which JAX itself does not install."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    brought = {requirement.split()[0] for requirement in project["optional-dependencies"]["export"]}
    assert brought == {"flatbuffers", "onnx", "safetensors"}
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "flatbuffers" else found(name))
    assert main(["export", str(folder), "--output", str(tmp_path / "out"), "--quiet"]) == 2
    _assert_one_line(capsys, "export needs flatbuffers: pip install 'crossreg[export]'")


def test_bad_folders_are_told_in_one_line(folder, exported, tmp_path, capsys):
    def refused(source, said, output=tmp_path / "out"):
        assert main(["export", str(source), "--output", str(output), "--quiet"]) == 2
        _assert_one_line(capsys, said)

    refused(tmp_path / "nothing", "no such folder")
    refused(folder, "exists already", output=exported)
    refused(folder, "exists already", output=exported / "model.onnx")
    refused(exported, "holds no run")
    for name in ("unfinished", "corrupted", "sweep", "car"):
        (tmp_path / name).mkdir()
        for file in folder.iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    (tmp_path / "unfinished" / "model.npz").unlink()
    refused(tmp_path / "unfinished", "training has not finished")
    (tmp_path / "corrupted" / "model.npz").write_bytes((folder / "model.npz").read_bytes()[:-100])
    refused(tmp_path / "corrupted", "model.npz")
    (tmp_path / "sweep" / "sweep.json").write_text("{}")
    refused(tmp_path / "sweep", "crossreg extract")
    (tmp_path / "car" / "test_cars.npz").write_bytes(b"")
    refused(tmp_path / "car", "is a car experiment")
    assert not (tmp_path / "out").exists()


def _assert_one_line(capsys, said: str) -> None:
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_wrong_program_of_fields_with_a_large_offset_is_seen(folder, tmp_path):
    """1e-4 of 10⁵ Pa is no agreement where pressures vary by 50 Pa."""
    run = load_run(folder)
    units = Units((1e5, -2.0), (50.0, 0.1))
    run = run._replace(model=dataclasses.replace(run.model, units=units))
    settings = Settings(SEED, 2, (0.3,), mask_input=False)
    program = make_program(run, settings)
    onnx_model = to_onnx(program, "").SerializeToString()
    inputs = {"fields": examples_of_run(run, tmp_path)["fields"]}
    files = {"model.stablehlo": bytes(to_stablehlo(program)), "model.onnx": onnx_model}
    found = check_artefacts(run, inputs, settings, files)
    # Pressures of 10⁵ have steps of 0.008, here 1.6e-4 of their scale; no standard deviation has an offset.
    for apart in filter(None, found.values()):
        assert all(largest < (1e-5 if name.startswith("std") else 4e-4) for name, largest in apart.items())

    def wider(x):
        return program.function(x) | {"std_generalization": 1.001 * program.function(x)["std_generalization"]}

    wrong = to_stablehlo(ExportedFunction(wider, program.inputs))
    with pytest.raises(InputError, match=r"model\.stablehlo: std_generalization differs from the model's own by"):
        check_artefacts(run, inputs, settings, {"model.stablehlo": bytes(wrong)})

    def shifted(x):
        return program.function(x) | {"mean": program.function(x)["mean"] + 1.0}

    wrong = to_stablehlo(ExportedFunction(shifted, program.inputs))
    with pytest.raises(InputError, match=r"model\.stablehlo: mean differs from the model's own by"):
        check_artefacts(run, inputs, settings, {"model.stablehlo": bytes(wrong)})
