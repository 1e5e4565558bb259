"""Docstrings of the public names: their parts, and their examples, which run."""

import ast
import doctest
import inspect
import itertools
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import crossreg as xr
from crossreg.data import cache
from crossreg.data.split import POOL_SIZE, TEST_POOL
from travelling_waves import HORIZON, TEST_HORIZON, make_trajectories, waves

# Training and loading at a size for a test.
SMALLER = (
    (r"fit\(data, ", "fit(data, xr.ModelConfig(width=3, num_blocks=2, num_modes=4), "),
    ("steps=5_000", "steps=4, batch_size=3, num_samples=2, evaluate_every=1000, progress=False"),
    ("train_horizon=10, test_horizon=200", f"train_horizon={HORIZON}, test_horizon={TEST_HORIZON}"),
    (
        r'load\("diff_ks", train_size=\d+',
        f'load("diff_ks", train_size=7, reg_size=6, test_size=4, train_horizon={HORIZON}, test_horizon={TEST_HORIZON}',
    ),
)


def _public() -> dict[str, Any]:
    """Every public name once, by the shortest way to write it."""
    found: dict[int, tuple[str, Any]] = {}
    for prefix, namespace in (("xr", xr), *((f"xr.{name}", getattr(xr, name)) for name in xr._NAMESPACES)):
        for name in dir(namespace):
            value = getattr(namespace, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found.setdefault(id(value), (f"{prefix}.{name}", value))
    return dict(found.values())


PUBLIC = _public()
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if not inspect.isclass(value)}
METHODS = {
    f"{name}.{member}": value
    for name, kind in CLASSES.items()
    for member, value in vars(kind).items()
    if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
}


def sections(documented: Any) -> dict[str, str]:
    """The parts of a docstring by their headings; what comes before the first one has none."""
    parts = re.split(
        r"^(Args|Attributes|Returns|Yields|Raises|Example):\n", inspect.getdoc(documented) or "", flags=re.MULTILINE
    )
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(section: str) -> set[str]:
    """The names that a section describes."""
    return {name.lstrip("*") for name in re.findall(r"^    ([\w*]+): ", section, re.MULTILINE)}


def tree_of(documented: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(documented)))


def faults_of(function: Any) -> set[str]:
    """Arguments that the docstring of a function lacks or makes up, and parts that it lacks."""
    parts, signature = sections(function), inspect.signature(function)
    faults = entries(parts.get("Args", "")) ^ (signature.parameters.keys() - {"self"})
    if signature.return_annotation is not None and not {"Returns", "Yields"} & parts.keys():
        faults.add("Returns")
    if "Raises" not in parts and any(isinstance(node, ast.Raise) for node in ast.walk(tree_of(function))):
        faults.add("Raises")
    return faults


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_takes_returns_and_raises(name):
    assert not faults_of(FUNCTIONS[name])


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_lists_its_fields(name):
    """Settings do where they are defined: the text after a field is its help text too."""
    kind = CLASSES[name]
    fields = set(getattr(kind, "__annotations__", {})) - {"shared"}
    if issubclass(kind, xr.DataConfig | xr.ModelConfig | xr.TrainConfig):
        [definition] = tree_of(kind).body
        assert isinstance(definition, ast.ClassDef)
        after = [text for field, text in itertools.pairwise(definition.body) if isinstance(field, ast.AnnAssign)]
        assert len([text for text in after if isinstance(text, ast.Expr)]) == len(fields)
    else:
        listed = entries(sections(kind).get("Attributes", "")) or entries(sections(kind).get("Args", ""))
        assert listed in (fields, set(inspect.signature(kind).parameters))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_sentence_and_all_or_none_of_its_arguments(name):
    method = METHODS[name]
    parts = sections(method)
    assert re.search(r"[.:$]$", parts[""].partition("\n\n")[0].strip())
    assert "Args" not in parts or not faults_of(method)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example(name):
    assert re.search("```python|>>> ", sections(PUBLIC[name]).get("Example", ""))


class Backbone(eqx.Module):
    """A module of somebody else, with the parts that an example puts noise after."""

    lifting: eqx.nn.Conv1d
    down_sampling_blocks: list[eqx.nn.Conv1d]

    def __call__(self, x):
        h = self.lifting(x)
        for block in self.down_sampling_blocks:
            h = jax.nn.gelu(block(h))
        return h


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> Iterator[dict[str, Any]]:
    """The names that examples use, in a folder with the files that they read."""
    folder = tmp_path_factory.mktemp("examples")
    trajectories = make_trajectories(points=32, channels=1)
    scenario = f"apebench-diff_ks-{POOL_SIZE}x{HORIZON}-{len(TEST_POOL)}x{TEST_HORIZON}.npz"
    cache.write(folder / "cache" / scenario, trajectories)
    fields = waves(20, 12, 2, points=32)
    keys = jax.random.split(jax.random.key(0), 2)
    unet = Backbone(eqx.nn.Conv1d(2, 4, 1, key=keys[0]), [eqx.nn.Conv1d(4, 4, 3, padding=1, key=keys[1])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSREG_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        np.save("flow.npy", fields)
        growth = 1 + np.arange(9) / 9  # fields of two dimensions
        np.savez("flow.npz", u=fields[:, :, 0, :, None] * growth, v=fields[:, :, 1, :, None] * growth)
        data = xr.load("flow.npy")
        training = xr.TrainConfig(steps=4, batch_size=3, num_samples=2, evaluate_every=1000, evaluation_samples=3)
        result = xr.fit(data, xr.ModelConfig(width=3, num_blocks=2, num_modes=4), training, progress=False)
        result.save("runs/first", progress=False)
        x, y = data.test[:3].x, data.test[:3].y
        x0, truth = x, jnp.broadcast_to(y, (50, *y.shape))  # of 50 leads
        made = {"data": data, "result": result, "model": result.model, "trajectories": trajectories, "unet": unet}
        made |= {"x": x, "y": y, "x0": x0, "truth": truth, "mixture": xr.predict(result.model, x)}
        yield {"Path": Path, "jax": jax, "jnp": jnp, "np": np, "xr": xr} | made


def blocks_of(documented: Any) -> list[str]:
    """The blocks of Python in the example of a docstring, at a size for a test."""
    blocks = re.findall(r"```python\n(.*?)```", sections(documented).get("Example", ""), re.DOTALL)
    for pattern, replacement in SMALLER:
        blocks = [re.sub(pattern, replacement, textwrap.dedent(block)) for block in blocks]
    return blocks


# Those of `export` follow each other.
SHOWN = {name: value for name, value in (PUBLIC | METHODS).items() if blocks_of(value) and ".export." not in name}


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs(name, names):
    for block in blocks_of(SHOWN[name]):
        exec(compile(block, name, "exec"), dict(names))


def test_the_examples_of_export_run(names, tmp_path, monkeypatch):
    shutil.copytree("runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    for function in (xr.export.export_run, xr.export.read_model, xr.export.export_model):
        for block in blocks_of(function):
            exec(compile(block, function.__name__, "exec"), dict(names))
        if function is xr.export.read_model:
            shutil.rmtree("exported")


@pytest.mark.parametrize("name", [name for name in PUBLIC if ">>> " in sections(PUBLIC[name]).get("Example", "")])
def test_an_example_gives_what_it_says(name):
    text = textwrap.dedent(sections(PUBLIC[name])["Example"])
    test = doctest.DocTestParser().get_doctest(text, {"np": np, "xr": xr}, name, None, 0)
    said: list[str] = []
    assert test.examples
    assert not doctest.DocTestRunner().run(test, out=said.append).failed, "".join(said)
