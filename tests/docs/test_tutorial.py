"""What the documentation tells a reader to type, typed: the same blocks, with fewer steps and smaller fields."""

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import crossreg as xr
from crossreg.cli.main import main
from crossreg.config import Config
from crossreg.data import cache
from crossreg.data.split import POOL_SIZE, TEST_POOL
from crossreg.methods import fixed_noise
from crossreg.predictors.predictor import SurrogatePredictor
from travelling_waves import HORIZON, TEST_HORIZON, make_trajectories

ROOT = Path(__file__).parents[2]
# A page's data, model and training at a size for a test. Each must occur where it is used.
MODEL = (r"ModelConfig\(", "ModelConfig(width=3, num_blocks=2, num_modes=4, ")
TRAINING = (r"steps=[\d_]+", "steps=4, batch_size=3, num_samples=2, evaluate_every=1000")
COMMAND = (
    r"--steps \d+",
    "--steps 4 --width 3 --num-blocks 2 --num-modes 4 --batch-size 3 --num-samples 2 --evaluation-samples 4 --quiet",
)
FIELDS = (r"num_samples, num_steps, points = [\d, ]+", "num_samples, num_steps, points = 60, 2, 32")
# Forecasts need as many times as they have steps, and enough of the training left for one rollout on reg.
WAVES = (r"num_samples, num_steps, points = [\d, ]+", "num_samples, num_steps, points = 60, 50, 32")
WAVES_COMMAND = (COMMAND[0], f"{COMMAND[1]} --settle 0.5")
PARTICLES = (r"--steps 50", "--steps 50 --particles 3 --quiet")
GROWTH = (r"(fit_growth\(.*, data\.reg)", r"\1, particles=4")
WAVES_TRAINING = (
    r"steps=3_000",
    "steps=4, settle=0.5, batch_size=3, num_samples=2, evaluation_samples=4, evaluate_every=1000, width=3,"
    " num_blocks=2, num_modes=4",
)
SCENARIO = (
    r"(load\([^)]*)train_size=50",
    rf"\1train_size=7, reg_size=6, test_size=20, train_horizon={HORIZON}, test_horizon={TEST_HORIZON}",
)
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
# What the first word of a command may be; `srun` runs one of these.
PROGRAMS = ("crossreg", "make", "pip", "python", "source")
UNET_SITES = {"lifting", *(f"down_sampling_blocks[{level}]" for level in range(4))}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str


def blocks_of(page: str) -> list[Block]:
    """The shell and Python blocks of a page."""
    fenced = re.findall(r"^```(python|sh)([^\n]*)\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [
        Block(language, title[1] if (title := re.search(r'title="(.+?)"', rest)) else None, text)
        for language, rest, text in fenced
    ]


def smaller(text: str, *changes: tuple[str, str]) -> str:
    for pattern, replacement in changes:
        text, count = re.subn(pattern, replacement, text)
        assert count, f"{pattern} is not there: the test would run at full size"
    return text


def commands(text: str) -> list[list[str]]:
    """The lines of a shell block, without comments."""
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


@pytest.fixture
def diff_ks(tmp_path, monkeypatch):
    """A cache that holds made-up `diff_ks` data on as many points as the default network needs."""
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path / "cache"))
    name = f"apebench-diff_ks-{POOL_SIZE}x{HORIZON}-{len(TEST_POOL)}x{TEST_HORIZON}"
    cache.write(tmp_path / "cache" / f"{name}.npz", make_trajectories(points=32, channels=1))


@pytest.mark.parametrize("page", PAGES)
def test_a_line_of_a_block_is_a_line_to_type(page: str):
    """Lines of code that were filled like prose are neither Python nor one command a line."""
    for block in blocks_of(page):
        if block.language == "python":
            ast.parse(block.text)
            continue
        for words in commands(block.text.replace("\\\n", " ")):
            assert words[0] in {*PROGRAMS, "srun"}, words
            assert len([word for word in words if word in PROGRAMS]) == 1, words


def test_the_tutorial_from_data_to_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of("docs/tutorial.md")
    files = {block.title: block for block in blocks if block.title}
    typed = [words for block in blocks if block.language == "sh" for words in commands(block.text)]
    assert len(typed) <= 6
    for words in typed:
        if words[0] == "python":
            exec(compile(smaller(files[words[1]].text, FIELDS), words[1], "exec"), {})
        else:
            assert words[0] == "crossreg"
            line = shlex.join(words[1:])
            assert main(shlex.split(smaller(line, COMMAND) if "train" in words else line)) == 0
    fields = np.load("flow.npz")["u"]
    assert fields.shape == (60, 3, 1, 32)
    with np.load("prediction.npz") as prediction:
        assert prediction["mean"].shape == (3, 1, 32)
        assert np.isfinite(prediction["std"]).all()
        parts = prediction["std_predictive"] ** 2 + prediction["std_generalization"] ** 2
        np.testing.assert_allclose(parts, prediction["std"] ** 2, rtol=1e-4)
    assert Path("flow.html").stat().st_size > 100_000

    namespace: dict[str, Any] = {}
    inline = [block for block in blocks if block.language == "python" and not block.title]
    assert inline
    exec(smaller("\n".join(block.text for block in inline), TRAINING, MODEL), namespace)
    capsys.readouterr()
    assert isinstance(namespace["prediction"], xr.InUnits)


def test_the_page_on_forecasts(tmp_path, monkeypatch, capsys):
    """From a file to forecasts by commands and in Python, with every field that the page names."""
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of("docs/forecasts.md")
    files = {block.title: block for block in blocks if block.title}
    typed = [words for block in blocks if block.language == "sh" for words in commands(block.text)]
    typed = [words for words in typed if "--reg-steps" not in words]  # of a scenario, whose trajectories take minutes
    for words in typed:
        if words[0] == "python":
            exec(compile(smaller(files[words[1]].text, WAVES), words[1], "exec"), {})
        else:
            line = smaller(shlex.join(words[1:]), WAVES_COMMAND if "train" in words else PARTICLES)
            assert main(shlex.split(line)) == 0
    trained = xr.load_run("runs/waves").config.train
    assert trained.reg_horizon == 10
    assert trained.settled_after < trained.steps
    with np.load("forecast.npz") as forecast:
        assert forecast["mean"].shape == (50, 3, 1, 32)
        assert forecast["quantiles"].shape == (3, 50, 3, 1, 32)
        parts = forecast["std_predictive"] ** 2 + forecast["std_generalization"] ** 2
        np.testing.assert_allclose(parts, forecast["std"] ** 2, rtol=1e-4)
        np.testing.assert_array_equal(forecast["leads"], np.arange(1, 51))
        assert forecast["out_of_range"].shape == (50,)
    page = (ROOT / "docs/forecasts.md").read_text()
    scores = json.loads(Path("runs/waves/rollout.json").read_text())
    said = {*re.findall(r"`(\w+)`", page.split("`rollout.json`")[1].split("\n\n")[0])} - {"leads", "json"}
    assert len(said) > 10
    numbers = {"out_of_range", "particles_in_all", "forecasts"}
    assert all(isinstance(scores[name], int) for name in numbers)
    assert {len(scores[name]) for name in said - numbers} == {len(scores["leads"])}
    header = capsys.readouterr().out.split("lead  ")[1].splitlines()[0]
    assert re.sub(" +", " ", header) in re.sub(" +", " ", page)

    namespace: dict[str, Any] = {}
    inline = [block for block in blocks if block.language == "python" and not block.title]
    exec(smaller("\n".join(block.text for block in inline), WAVES_TRAINING, GROWTH), namespace)
    assert namespace["forecast"].mean.shape == (50, 12, 1, 32)
    assert namespace["scores"]["leads"] == [1, 10, 50]
    assert isinstance(namespace["ten"], xr.InUnits)


def test_the_readme_and_the_first_page_in_python(diff_ks, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (readme,) = (block.text for block in blocks_of("README.md") if block.language == "python")
    namespace: dict[str, Any] = {}
    exec(smaller(readme, TRAINING, SCENARIO), namespace)
    assert namespace["prediction"].mean.shape == (3, 1, 32)
    again = xr.load_run("runs/ks").model
    ours, theirs = namespace["prediction"].mean, xr.predict(again, namespace["data"].test[:3].x).mean
    np.testing.assert_array_equal(ours, theirs)
    # The first page of the site has the same lines up to the training, and then its own.
    (page,) = (block.text for block in blocks_of("docs/index.md") if block.language == "python")
    trained, used = page.split("prediction = ")
    first = [line.partition("  #")[0].rstrip() for line in readme.splitlines()]
    assert [line.partition("  #")[0].rstrip() for line in trained.splitlines()] == first[: len(trained.splitlines())]
    exec("prediction = " + used, namespace)
    assert namespace["prediction"].mean.shape == (8, 1, 32)


def test_a_backbone_of_another_package(diff_ks, capsys):
    """Up to the training; that foreign modules learn and are scored is what `tests/nn/test_backbone.py` is for."""
    (block,) = (block for block in blocks_of("docs/backbones.md") if block.language == "python")
    before, after = block.text.split("done = ")
    namespace: dict[str, Any] = {}
    exec(smaller(before, SCENARIO), namespace)
    assert after.startswith("crossreg.fit(data, model, ")
    assert set(xr.metrics.sigma_per_site(namespace["model"])) == UNET_SITES


def test_the_page_on_extending(data):
    """Its first block is the method that it shows, its second widens as it says."""
    shown, widened = (block.text for block in blocks_of("docs/extending.md") if block.language == "python")
    namespace: dict[str, Any] = {}
    exec(shown, namespace)
    for arguments in ((), (0.3,)):
        assert namespace["configure"](Config(), *arguments) == fixed_noise.configure(Config(), *arguments)
    exec(widened, namespace)
    model = xr.build_model(xr.ModelConfig(width=3, num_blocks=2, num_modes=5), data.train, key=jax.random.key(0))
    batch, keys = data.test.gather(jnp.arange(3)), jax.random.split(jax.random.key(1), 3)
    plain = SurrogatePredictor(model, 4)
    np.testing.assert_allclose(
        namespace["Widened"](plain)(batch, keys).std, 2 * plain(batch, keys).std, rtol=1e-4, atol=1e-6
    )
