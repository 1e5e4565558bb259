"""The folder of a run, and how it is read. Prediction and reports read nothing else; evaluation also reads the data.

config.yaml     every setting, resolved
metrics.jsonl   the history: one line per evaluation on reg
metrics.json    final scores on test, reg and train, σ per site; of test also by times within and beyond train's
model.npz       the trained arrays
test_fields.npz predictions of some test trajectories, and where they are worst (`runs/fields/stored_fields.py`)
versions.json   packages and device
fields.json     the shape, names and units of the fields, and the range of the inputs
mask.npy        where the fields are observed, if one mask holds for the whole run
manifest.json   the SHA-256 of each of them (`runs/safeguards/manifest.py`)
snapshots/      what a killed training resumes from (`runs/safeguards/snapshots.py`)
lock            keeps a second process out (`runs/safeguards/locks.py`)

`runs/run_writer.py` writes them.
"""

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from crossreg.config import Config, load_stored
from crossreg.data.checks import check_mask
from crossreg.data.dataset import Data, SplitName, described
from crossreg.data.files.load import is_known_by_sample
from crossreg.data.load import load_config
from crossreg.data.observation import masking_in_words
from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.data.units import Units
from crossreg.errors import InputError, in_one_line
from crossreg.files.whole import check_is_folder, read_array, read_json
from crossreg.forecasts.forecast import Forecast, Limits
from crossreg.forecasts.particles import hidden_value
from crossreg.forecasts.rollout import Known, rollout
from crossreg.metrics.evaluation import evaluate
from crossreg.nn.build import model_like
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.predictive.in_units import InUnits
from crossreg.predictive.mixture import Mixture
from crossreg.progress.history import last_line
from crossreg.runs.file_names import CONFIG, FIELDS, HISTORY, MASK, METRICS, MODEL, ROLLOUT, VERSIONS
from crossreg.runs.input_range import InputRange, check_inputs, stored_range
from crossreg.runs.kinds import kind_of
from crossreg.runs.older_names import with_current_names
from crossreg.runs.safeguards.manifest import check_files
from crossreg.training.checkpoint import load_model

_MOST_CHANNELS = 2**16


class Run(NamedTuple):
    """A trained run: its settings, its model, and what is known of the fields that it was trained on.

    Attributes:
        config: Every setting.
        model: The trained model.
        channels: The number of channels of a field, without that of the mask.
        space: The number of points along each axis.
        mask: Where fields are observed; None where each field has a mask of its own.
        digest: The digest of the data.
        input_range: The range of the inputs in training; None where an older version did not store it.
        axes: The letters of the axes in the data file, as far as they are known.
        names: The names of the channels, as far as they are known.

    Example:
        ```python
        run = xr.load_run("runs/first")
        run.predict(x).std
        run.config.train.steps
        ```
    """

    config: Config
    model: Surrogate
    channels: int
    space: tuple[int, ...]
    mask: Bool[np.ndarray, "*space"] | None
    digest: str
    input_range: InputRange | None = None
    axes: str = ""
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        data, train = self.config.data, self.config.train
        fields = described(data, self.names, self.channels, self.space)
        return f"Run: {train.steps:,} steps, seed {train.seed}\n{fields}"

    def predict(
        self, x: Float[Array | np.ndarray, "batch in *space"], *, key: PRNGKeyArray | None = None
    ) -> Mixture | InUnits:
        """Predict the next fields, one step ahead, with as many samples as the run is scored with.

        Args:
            x: Inputs of shape (batch, channel, *space), hidden points already 0 or, in data with units, at the offset
                of their channel. The run's mask is not applied here, as `crossreg predict` does.
            key: Key of the model instances; by default always the same one.

        Returns:
            A mixture at every point; for data with units, in the fields' units.

        Raises:
            InputError: If x has another grid than the run's fields, or values far outside the range of its inputs. Of
                values less far outside there is a warning.
        """
        x = jnp.asarray(x)
        self._check_inputs(x)
        return predict(self.model, x, key=key, num_samples=self.config.train.evaluation_samples)

    def _check_inputs(self, x: Float[Array | np.ndarray, "..."], where: str = "x") -> None:
        check_inputs(x, (self.channels, *self.space), self.input_range, where)

    def evaluate(
        self, pairs: AbstractPairs | SplitName = "test", *, num_samples: int | None = None
    ) -> dict[str, object]:
        """Score the model on pairs, or on a split of the data that it was trained on, which are loaded each time.

        Args:
            pairs: The pairs, or `"test"`, `"reg"` or `"train"`.
            num_samples: Samples per prediction; by default as many as the run was scored with.

        Returns:
            The scores by name, as [`evaluate`][crossreg.evaluate] returns them.

        Raises:
            InputError: If the data are not where they were; see `load_data`.
        """
        pairs = self.load_data().pairs_of(pairs) if isinstance(pairs, str) else pairs
        return evaluate(self.model, pairs, num_samples=num_samples or self.config.train.evaluation_samples)

    @property
    def limits(self) -> Limits | None:
        """The range that the particles of a rollout are held to; None where it was not stored."""
        return None if self.input_range is None else self.input_range.limits

    def rollout(
        self, x0: Float[Array | np.ndarray, "batch in *space"] | Batch, steps: int, particles: int = 60, **how: Any
    ) -> Forecast:
        """Forecast fields many steps ahead, under the run's mask and within its limits.

        Args:
            x0: The fields to start from, hidden points at 0 or the offset of their channel; or a batch, which brings
                its masks along. Without a mask for the whole run, fields need a `mask`.
            steps: How many steps ahead.
            particles: Model instances.
            **how: Further arguments of [`rollout`][crossreg.rollout], such as `key`, `leads` and `mask`.

        Returns:
            A predictive distribution at every lead.

        Raises:
            InputError: As for `predict`, or if an argument is out of range.
        """
        return rollout(self, x0, steps, particles, **how)

    def known_of(self, x0: Float[Array | np.ndarray, "..."] | Batch) -> Known:
        """Return what is known of fields to start a rollout from, after checks.

        Args:
            x0: The fields, or a batch.

        Returns:
            The limits, the run's mask, what stands at hidden points, and the names of the channels.

        Raises:
            InputError: As for `rollout`.
        """
        self._check_inputs(x0.x if isinstance(x0, Batch) else x0, "x0")
        data = self.config.data
        masking = masking_in_words(data.observed_fraction, data.mask_per, has_gaps=False) if self.mask is None else ""
        return Known(self.limits, self.mask, masking, hidden_value(self.model, len(self.space)), self.names)

    def load_data(self, path: Path | None = None) -> Data:
        """Load the splits of the run.

        Args:
            path: Where your data are now, if they have moved.

        Returns:
            The splits.

        Raises:
            InputError: If they are not the data that the run was trained on.
        """
        config = self.config.data
        if path is not None:
            if config.data is None:
                raise InputError(f"data {path}: the run was trained on the scenario {config.scenario}")
            config = dataclasses.replace(config, data=str(path))
        # What the run stored of its fields decides how they are read, not what a file without names may mean.
        stored = (self.channels, *self.space)
        data = load_config(config, stored)
        if data.digest == self.digest:
            return data
        if config.data is None:
            raise InputError(
                f"the run was trained on other data ({self.digest[:12]}) than this machine's cache holds"
                f" ({data.digest[:12]}); copy the cached file of the training machine"
            )
        if not is_known_by_sample(config, self.digest, stored):
            raise InputError(
                f"{config.data}: holds other data than the run was trained on; give its own with `data=PATH`"
            )
        said = "the run is of a version that knew large data by a sample of fields; the others are not compared"
        print(f"crossreg: {config.data}: {said}", file=sys.stderr)
        return data


def load_run(folder: Path | str) -> Run:
    """Load a trained run. Its data are not needed, and not read.

    Args:
        folder: A folder that `crossreg train` or `crossreg extract` wrote.

    Returns:
        The run.

    Raises:
        InputError: If the folder holds no finished run, or if one of its files is corrupted.

    Example:
        ```python
        run = xr.load_run("runs/first")
        data = run.load_data()
        ```
    """
    folder = Path(folder)
    check_is_folder(folder)
    if not (folder / CONFIG).exists():
        inside = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}"))
        hint = f"; the folders {', '.join(inside)} in it do" if inside else ""
        if kind_of(folder) == "sweep":
            hint = "; it is a sweep: `crossreg table` shows its scores, `crossreg extract` makes a run of a model"
        raise InputError(f"{folder}: holds no run ({CONFIG} is missing){hint}")
    check_files(folder, [CONFIG])
    config = load_stored(folder / CONFIG)
    if not (folder / MODEL).exists():
        raise InputError(f"{folder}: its training has not finished ({MODEL} is missing)")
    check_files(folder, [FIELDS, MASK, MODEL])
    fields, mask = read_fields(folder), None
    if config.data.mask_per == "run":
        array = read_array(folder / MASK, "the run's mask", follow_links=False)
        mask = check_mask(array, fields.space, str(folder / MASK), "the run's fields")
    channels = fields.channels
    like = model_like(config.model, channels + config.data.mask_channel, (channels, *fields.space), fields.units)
    model = load_model(folder / MODEL, like, identity=fields.identity)
    known = (fields.digest, fields.input_range, fields.axes, fields.names)
    return Run(config, model, channels, fields.space, mask, *known)


class RunFields(NamedTuple):
    """The description in `fields.json` of the fields that a run was trained on."""

    channels: int
    space: tuple[int, ...]
    digest: str
    units: Units | None
    names: tuple[str, ...]
    input_range: InputRange | None
    axes: str
    identity: str | None


def read_fields(folder: Path) -> RunFields:
    """Read the description of a run's fields."""
    path = folder / FIELDS
    fields = read_json(path, "what `crossreg train` writes")
    try:
        channels, space, digest = fields["channels"], tuple(fields["space"]), fields["digest"]
        sizes = all(type(size) is int and 0 < size < 2**31 for size in (channels, *space))
        if sizes and channels <= _MOST_CHANNELS and 1 <= len(space) <= 3 and isinstance(digest, str):
            units = units_in(fields, channels)
            return RunFields(
                channels,
                space,
                digest,
                units,
                names=tuple(in_one_line(str(name)) for name in fields.get("names", ())),
                input_range=stored_range(fields, channels, units),
                axes=str(fields.get("axes", "")),
                identity=fields.get("identity"),
            )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: not readable ({error}); expected channels, space and digest") from error
    raise InputError(f"{path}: expected channels, one to three sizes in space, and a digest that is text")


def identity_of(folder: Path) -> str | None:
    """Return what the seals of a run's files must say; None for a run of an older version."""
    return read_fields(folder).identity


def channel_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the channels of a run on your data; none for a scenario."""
    return read_fields(folder).names


def units_in(fields: dict[str, Any], channels: int) -> Units | None:
    """Return the units in a description of fields; a `ValueError` says that they are impossible."""
    if "scale" not in fields:
        return None
    offset, scale = (tuple(map(float, fields[name])) for name in ("offset", "scale"))
    finite = all(math.isfinite(value) for value in (*offset, *scale))
    if len(offset) != channels or len(scale) != channels or not finite or min(scale) <= 0:
        raise ValueError("offset and scale need a finite number for each channel, scales one above 0")
    return Units(offset, scale)


def check_scored(folder: Path) -> None:
    """Raise InputError if a file of a run is corrupted that tables, figures and pages read."""
    check_files(folder, [CONFIG, VERSIONS, METRICS, ROLLOUT], growing=[HISTORY])


def read_metrics(folder: Path) -> dict[str, Any]:
    """Read the scores that a run was given when it was trained."""
    check_files(folder, [METRICS])
    metrics = read_json(folder / METRICS, "the scores of a run")
    if not isinstance(metrics, dict):
        raise InputError(f"{folder / METRICS}: not readable (no object); expected the scores of a run")
    return with_current_names(metrics)


def diverged_at(folder: Path) -> int:
    """Return the step at which a run diverged, or −1."""
    last = last_line(folder / HISTORY)
    return last["diverged_at"] if last else -1


def scored_name(folder: Path) -> str:
    """Return what tables call a run: the name of its folder, and where it diverged, if it did."""
    step = diverged_at(folder)
    return folder.resolve().name + (f" (diverged at step {step})" if step >= 0 else "")
