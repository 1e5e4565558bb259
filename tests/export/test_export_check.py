"""No program is written that is not the model: every small change of what it gives is refused."""

import dataclasses
import functools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.export.check import EXAMPLES, check_artefacts
from crossreg.export.program import ExportedFunction, Settings, make_program
from crossreg.export.stablehlo import to_stablehlo
from crossreg.runs.run_folder import Run, load_run

SETTINGS = Settings(seed=3, num_samples=4, levels=(0.9, 0.2), mask_input=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny, make_run_folder) -> Run:
    config = tiny.replace(num_blocks=1, log_sigma_gen_start=-2.0)
    folder: Path = make_run_folder(tmp_path_factory.mktemp("run") / "a", config, (2, 20))
    return load_run(folder)


@pytest.fixture(scope="module")
def inputs(run) -> dict[str, np.ndarray]:
    fields = np.random.default_rng(8).normal(size=(EXAMPLES, 2, 20))
    return {"fields": fields.astype(np.float32)}


def checked(run, inputs, function) -> None:
    made = ExportedFunction(function, make_program(run, SETTINGS).inputs)
    check_artefacts(run, inputs, SETTINGS, {"model.stablehlo": bytes(to_stablehlo(made))})


CHANGES = {
    "the parts of the spread in each other's place": lambda out, _: {
        "std_predictive": out["std_generalization"], "std_generalization": out["std_predictive"]},
    "a variance": lambda out, _: {"std_generalization": out["std_generalization"] ** 2},
    "levels in another order": lambda out, _: {"quantiles": out["quantiles"][:, ::-1]},
    "channels in another order": lambda out, _: {"mean": out["mean"][:, ::-1]},
    "a thousandth of the spread": lambda out, _: {"mean": out["mean"] + 1e-3 * out["std"]},
    "no number": lambda out, _: {"std": jnp.full_like(out["std"], jnp.nan)},
    "what else is in the batch": lambda out, x: {"mean": out["mean"] + x - jnp.mean(x, axis=0)},
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_not_the_model_is_refused(name, run, inputs):
    program = make_program(run, SETTINGS)

    def changed(x):
        out = program.function(x)
        return out | CHANGES[name](out, x)

    with pytest.raises(InputError, match=r"model\.stablehlo: .* nothing was written"):
        checked(run, inputs, changed)


@pytest.mark.parametrize("other", [SETTINGS._replace(seed=4), SETTINGS._replace(num_samples=5)])
def test_other_draws_than_were_asked_for_are_refused(other, run, inputs):
    with pytest.raises(InputError, match="nothing was written"):
        checked(run, inputs, make_program(run, other).function)


def test_the_model_itself_is_not_refused(run, inputs):
    checked(run, inputs, make_program(run, SETTINGS).function)


def test_what_an_offset_rounds_off_is_forgiven_and_no_more(run, inputs):
    """At 101325 ± 12 a mean may be off by a few steps of float32, .008 each; a fiftieth of the spread is wrong."""
    units = Units((101325.0, 101325.0), (12.0, 12.0))
    large = run._replace(model=dataclasses.replace(run.model, units=units))
    fields = {"fields": (101325 + 12 * inputs["fields"]).astype(np.float32)}
    program = make_program(large, SETTINGS)
    check = functools.partial(_checked_with, large, fields, program)
    check(lambda out: out["mean"] + 0.0078125)
    for off in (0.02 * 12, 0.2 * 12):
        with pytest.raises(InputError, match=r"mean differs from the model's own by .* nothing was written"):
            check(lambda out, off=off: out["mean"] + off)


def _checked_with(run, fields, program, mean) -> None:
    def changed(x):
        out = program.function(x)
        return out | {"mean": mean(out)}

    checked(run, fields, changed)
