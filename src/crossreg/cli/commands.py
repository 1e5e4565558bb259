"""The commands and their flags, one dataclass each. Imports no JAX, so that `--help` answers at once."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from crossreg.config import Config
from crossreg.designs.car_study import CarStudy, Profile
from crossreg.designs.presets import QUICKSTART_STEPS
from crossreg.runs.safeguards.saving import SAVE_EVERY
from crossreg.studies.launchers.settings import Workers
from crossreg.studies.planning.settings import Asked, Risks


@dataclass(frozen=True, kw_only=True)
class _Quiet:
    quiet: bool = False
    """Show no progress."""


@dataclass(frozen=True, kw_only=True)
class _Trains(_Quiet):
    save_every: float = SAVE_EVERY
    """Seconds between snapshots of a training; longer where writing snapshots would take over 1% of the time."""
    force_resume: bool = False
    """Resume even on another kind of machine or with another jaxlib; the last digits may then differ."""
    max_diverged: float = 0.5
    """Exit with code 4 if more than this share of the trained models diverged."""


@dataclass(frozen=True, kw_only=True)
class Train(_Trains):
    """Train one model and write its run folder; if interrupted, run the same command again to resume.

    Every setting is a flag. The settings not given come from the YAML file --config, or else from --preset.
    """

    out: Path
    """Run folder to write. It must be new, empty, or hold the same run, which then resumes from its last snapshot."""
    preset: str = "reference"
    """A named set of settings: reference, forecasts, low-observation, head-only, unregularized, dropout, protocol; or a
    scenario, with the settings of reference: diff_ks, diff_ks_cons, diff_kdv, diff_burgers, diff_adv, phy_decay_turb,
    phy_gs, phy_kolm_flow."""
    config: Path | None = None
    """A YAML file of settings, such as the config.yaml of a run folder. Its settings override those of --preset."""
    data_parallel: bool = False
    """Divide each batch among several devices, for models and fields too large for one. A batch that does not divide
    evenly is padded with pairs of weight 0. By default, one device trains."""
    devices: int | None = None
    """With --data-parallel: the number of devices to use on each machine; by default all."""
    distributed: bool = False
    """Train data-parallel together with the other processes of a cluster job (of Slurm, for example), each of which
    runs this command."""
    coordinator: str | None = None
    """HOST:PORT at which process 0 listens, to train data-parallel without a cluster manager."""
    num_processes: int | None = None
    """With --coordinator: the number of processes."""
    process_id: int | None = None
    """With --coordinator: the number of this process, counted from 0. Only process 0 writes files and prints."""
    max_diverged: float = 0.0
    """Exit with code 4 if more than this share of the trained models diverged."""
    json: bool = False
    """Print the scores as one JSON object instead of tables."""
    settings: Config = field(default_factory=Config)


@dataclass(frozen=True, kw_only=True)
class Evaluate(_Quiet):
    """Score a trained run on test, reg and train."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    data: Path | None = None
    """Where the run's data files are now, if they have moved."""
    json: bool = False
    """Print one JSON object, with the keys test, reg, train and sigma, instead of tables."""


@dataclass(frozen=True, kw_only=True)
class DataFiles:
    """Check your trajectory files: print shapes, ranges, gaps and a training command, and draw a picture."""

    action: tyro.conf.Positional[Literal["check"]]
    """What to do; check is the only action."""
    path: tyro.conf.Positional[Path]
    """An NPY, NPZ, HDF5, NetCDF or Zarr file, or a folder of such files."""
    field: str | None = None
    """The array to read, or several separated by commas (u,v), which become channels."""
    axes: str | None = None
    """A letter for each axis of the array: b trajectory, t time, c channel, x y z space."""
    picture: Path = Path("data_check.png")
    """PNG file to write; an existing one is replaced."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True, kw_only=True)
class Predict(_Quiet):
    """Apply a trained run to your fields, or a car experiment to your cars."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run, or of a car experiment."""
    input: Path
    """NPY file with an array of shape (batch, channel, *space). For cars: an NPZ file with vertices and, optionally,
    faces; a PLY file; or a folder of such files."""
    output: Path
    """NPZ file to write, with the arrays mean, std, std_predictive, std_generalization, quantiles and levels."""
    method: str | None = None
    """For cars: the method to predict with, as trained with the first seed of the experiment; by default xreg."""
    levels: tuple[float, ...] = (0.05, 0.5, 0.95)
    """Levels of the quantiles, each in (0, 1)."""
    mask: Path | None = None
    """NPY file of shape (*space), 1 where the input is observed; by default the run's own mask."""
    no_mask: bool = False
    """Treat every point of the input as observed."""


@dataclass(frozen=True, kw_only=True)
class Rollout(_Quiet):
    """Forecast many steps ahead with error bars, and score the forecasts of the test trajectories by lead.

    Scores are printed and written to rollout.json in the folder of the run. With --input and --output, fields of your
    own are forecast instead.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    steps: int | None = None
    """Steps of each forecast; by default 50, or as many as the test trajectories have."""
    particles: int = 60
    """Model instances that each forecast follows."""
    leads: str | None = None
    """Leads (steps ahead) to keep, separated by commas, as in 1,10,50. By default some of them; with --input, all."""
    data: Path | None = None
    """Where the run's data files are now, if they have moved."""
    input: Path | None = None
    """NPY file of fields to start from, of shape (batch, channel, *space)."""
    output: Path | None = None
    """With --input: NPZ file to write, with the arrays mean, std, std_predictive, std_generalization, quantiles,
    levels, leads, held_share and out_of_range."""
    levels: tuple[float, ...] = (0.05, 0.5, 0.95)
    """With --input: levels of the quantiles, each in (0, 1)."""
    samples: int = 0
    """With --input: number of samples to write as the array samples, whole fields that follow one particle each."""
    mask: Path | None = None
    """With --input: NPY file of shape (*space), 1 where inputs are observed; by default the run's own mask."""
    no_mask: bool = False
    """With --input: treat every point as observed."""
    json: bool = False
    """Print the contents of rollout.json instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Export(_Quiet):
    """Write a trained run as files that need no crossreg: StableHLO, ONNX, safetensors, and a server of 15 lines."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    output: Path
    """Folder to write; it must be new or empty."""
    seed: int = 0
    """Seed of the noise draws, which become constants of the exported model."""
    samples: int | None = None
    """Number of noise draws, S; by default the number that the run predicts with."""
    levels: tuple[float, ...] = (0.05, 0.5, 0.95)
    """Levels of the quantiles, each in (0, 1)."""
    mask_input: bool = False
    """Make the mask a second input of the model. By default, the run's own mask, if it has one, is built in."""
    json: bool = False
    """Print the contents of config.json as one JSON object instead of a summary."""


@dataclass(frozen=True, kw_only=True)
class Quickstart(_Quiet):
    """Train XReg, MC dropout and an unregularized model side by side; an earlier quickstart is replaced."""

    out: Path = Path("runs/quickstart")
    """Folder for the results."""
    steps: int = QUICKSTART_STEPS
    """Training steps of each model."""
    json: bool = False
    """Print summary.json instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Sweep(_Trains):
    """Train and score many methods and seeds, and compare them; if interrupted, run the same command again."""

    name: tyro.conf.Positional[str]
    """A named sweep: paper-observed, paper-train-size, paper (both of these), paper-regimes, paper-exact (the regimes
    of paper and paper-regimes, with the paper's own settings), equal-data, ablation, rollouts, rollouts-equal-data (its
    methods, with 60 trajectories each), scenario, or grid."""
    out: Path
    """Folder of the sweep. It must be new, empty, or hold an earlier sweep, whose finished rows are kept."""
    methods: str | None = None
    """Methods, separated by commas, for example xreg,dropout,ensemble+temperature; or all. By default those of the
    named sweep."""
    seeds: int = 5
    """Number of seeds for each regime and method."""
    first_seed: int = 0
    """The lowest seed. To confirm a result, take seeds that were not used to choose any setting."""
    steps: int | None = None
    """Training steps; by default 10,000, and 30,000 for paper-regimes and paper-exact."""
    grid: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A setting and its values, as in observed_fraction=0.4,0.7. If given several times, all combinations are run."""
    scenario: str | None = None
    """A scenario, with the settings that `train --preset` gives it; by default diff_ks."""
    data: Path | None = None
    """Your trajectories instead of a scenario, as for train. They must fit into memory."""
    field: str | None = None
    """With --data: the array to read, or several separated by commas (u,v), which become channels."""
    axes: str | None = None
    """With --data: a letter for each axis of the array, as in btxc."""
    config: Path | None = None
    """A YAML file of settings that all trials share. Its settings override --scenario and --data."""
    devices: int | None = None
    """Number of this machine's devices to use; by default all."""
    json: bool = False
    """Print the rows as JSON lines instead of a table."""
    plan: bool = False
    """Only print what would be trained, and roughly how long that would take on this device."""
    # `dataclasses.field`, since this command has a flag called field.
    cluster: Workers = dataclasses.field(default_factory=Workers)
    """The workers that train; by default this process alone."""


@dataclass(frozen=True, kw_only=True)
class Plan(Risks, Asked):
    """Estimate the jobs, memory, time and efficiency of a sweep on other devices, without running it."""

    what: tyro.conf.Positional[str]
    """A named sweep (paper, …, grid), a preset, a YAML file of settings, or the folder of a sweep, whose unfinished
    part is planned."""
    grid: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """As for sweep."""
    on: str
    """Devices as NAME:COUNT, for example h200:8 or cpu:1. The costs of that kind of device must have been measured."""
    compiled: bool = False
    """Assume that all programs are in the compilation cache already."""
    figure: Path | None = None
    """PNG file to write, with time against the number of devices; an existing one is replaced."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Print the table of a sweep, with intervals over seeds and the paper's numbers; write table.md, .csv and .tex."""

    folder: tyro.conf.Positional[Path]
    """Folder of the sweep."""
    all: bool = False
    """Show every finished row of the folder, rather than only those of the last command."""
    json: bool = False
    """Print the rows as JSON lines instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Figures(_Quiet):
    """Draw the paper's figures for a run, several runs, a sweep or a car experiment, as PDF and PNG."""

    folder: tyro.conf.Positional[Path]
    """Folder of a run, a quickstart, a sweep or a car experiment."""
    out: Path | None = None
    """Folder for the figures; by default FOLDER/figures."""
    trajectory: int | None = None
    """Stored test trajectory to show in maps, by its number; by default the first."""


@dataclass(frozen=True, kw_only=True)
class Report(_Quiet):
    """Write one HTML page that opens offline: tables, figures and test trajectories."""

    folder: tyro.conf.Positional[Path]
    """Folder of a run, a quickstart, a sweep or a car experiment, or a folder that contains such folders, up to six
    levels deep."""
    output: Path | None = None
    """HTML file to write; by default FOLDER/report.html. An existing one is replaced."""


@dataclass(frozen=True, kw_only=True)
class Extract(_Quiet):
    """Make a run folder from one trained model of a sweep, for `evaluate` and `predict`."""

    folder: tyro.conf.Positional[Path]
    """Folder of the sweep."""
    out: Path
    """Run folder to write. It must not hold another run."""
    method: str = "xreg"
    """The method of the model; an ensemble cannot be extracted, since it is several models."""
    seed: int = 0
    """The seed of the model."""
    where: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """The value of a setting that the sweep varies, as in --where observed_fraction=0.4; may be given several times."""
    json: bool = False
    """Print the scores as one JSON object instead of tables."""


@dataclass(frozen=True, kw_only=True)
class Car(_Trains):
    """Predict pressure on car surfaces with error bars: XReg and baselines on an optimal transport neural operator.

    The defaults of all other flags depend on --profile. If interrupted, run the same command again to resume.
    """

    out: Path
    """Folder of the experiment. It must be new, empty, or hold the same experiment, which then resumes."""
    profile: Profile = "quick"
    """quick: fewer and coarser cars, for minutes on two cores. full: the paper's sizes, for a GPU."""
    devices: int | None = None
    """Number of this machine's devices to use; by default all."""
    json: bool = False
    """Print summary.json instead of a table."""
    settings: CarStudy = field(default_factory=CarStudy)


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Serve a local page that follows runs in training and compares finished ones; Ctrl-C ends it."""

    folder: tyro.conf.Positional[Path]
    """Folder that contains runs and sweeps, up to six levels deep. Nothing outside it is read."""
    host: str = "127.0.0.1"
    """Address to listen on. The default can be reached only from this machine."""
    port: int = 0
    """Port to listen on; 0 picks a free one."""
    open: bool = True
    """Open the page in a browser."""
