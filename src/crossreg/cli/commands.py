"""The commands and their flags, one dataclass each. Imports no JAX, so that `--help` answers at once."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from crossreg.config import Config
from crossreg.designs.car_study import CarStudy, Profile
from crossreg.designs.presets import QUICKSTART_STEPS
from crossreg.runs.saving import SAVE_EVERY
from crossreg.studies.launchers.settings import Workers


@dataclass(frozen=True, kw_only=True)
class _Quiet:
    quiet: bool = False
    """Show no progress."""


@dataclass(frozen=True, kw_only=True)
class _Trains(_Quiet):
    save_every: float = SAVE_EVERY
    """Seconds between two snapshots of a training; more where a snapshot would take over 1% of the time."""
    force_resume: bool = False
    """Resume even on another kind of machine or with another jaxlib; last digits may then differ."""
    max_diverged: float = 0.5
    """Exit with code 4 if more than this share of the runs diverged."""


@dataclass(frozen=True, kw_only=True)
class Train(_Trains):
    """Train one run into a folder; if it is interrupted, the same command resumes it.

    Every setting is a flag. The others come from --preset, or from the YAML file --config.
    """

    out: Path
    """Folder of the run: new, empty, or of the same run, which resumes from its last snapshot."""
    preset: str = "reference"
    """One of reference, low-observation, head-only, unregularized, dropout, protocol; or a scenario, with the settings
    of reference: diff_ks, diff_ks_cons, diff_kdv, diff_burgers, diff_adv, phy_decay_turb, phy_gs, phy_kolm_flow."""
    config: Path | None = None
    """A YAML file of settings, like config.yaml of a run folder; it overrides --preset."""
    data_parallel: bool = False
    """Divide each batch among devices, for models and fields too large for one. A batch that does not divide evenly is
    padded with pairs of weight 0. By default one device trains."""
    devices: int | None = None
    """With --data-parallel: devices to use on each machine; by default all."""
    distributed: bool = False
    """Train data-parallel with the other processes of a cluster job (such as Slurm's), each started by this command."""
    coordinator: str | None = None
    """Train data-parallel without a cluster manager: HOST:PORT on which process 0 listens."""
    num_processes: int | None = None
    """With --coordinator: the number of processes."""
    process_id: int | None = None
    """With --coordinator: the number of this process, from 0. Process 0 writes and prints."""
    max_diverged: float = 0.0
    """Exit with code 4 if more than this share of the runs diverged."""
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
    """Print one JSON object with test, reg, train and sigma."""


@dataclass(frozen=True, kw_only=True)
class DataFiles:
    """Check your trajectories: shapes, ranges, gaps, a split, a picture, and the command to train on them."""

    action: tyro.conf.Positional[Literal["check"]]
    """The action: check."""
    path: tyro.conf.Positional[Path]
    """An NPY, NPZ, HDF5, NetCDF or Zarr file, or a folder of them."""
    field: str | None = None
    """The array to read, or several, as in u,v, side by side as channels."""
    axes: str | None = None
    """A letter for each axis: b sample, t time, c channel, x y z space."""
    picture: Path = Path("data_check.png")
    """PNG file to write; an earlier one is replaced."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True, kw_only=True)
class Predict(_Quiet):
    """Apply a trained run to your fields, or a car experiment to your cars."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run, or of a car experiment."""
    input: Path
    """NPY file of shape (batch, channel, *space). For cars an NPZ file with vertices and perhaps faces, a PLY file, or
    a folder of them."""
    output: Path
    """NPZ file to write: mean, std, std_predictive, std_generalization, quantiles, levels."""
    method: str | None = None
    """For cars: the method of the experiment that predicts, with its first seed; by default xreg."""
    levels: tuple[float, ...] = (0.05, 0.5, 0.95)
    """Levels of the quantiles, each in (0, 1)."""
    mask: Path | None = None
    """NPY file of shape (*space), 1 where the input is observed; by default the run's own mask."""
    no_mask: bool = False
    """Treat every point of the input as observed."""


@dataclass(frozen=True, kw_only=True)
class Export(_Quiet):
    """Write a trained run as files that need no crossreg: StableHLO, ONNX, safetensors, and a server of 15 lines."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    output: Path
    """Folder to write: new or empty."""
    seed: int = 0
    """Seed of the noise draws, which become part of the model."""
    samples: int | None = None
    """Number of noise draws S; by default as many as the run predicts with."""
    levels: tuple[float, ...] = (0.05, 0.5, 0.95)
    """Levels of the quantiles, each in (0, 1)."""
    mask_input: bool = False
    """Give the model a mask as a second input; by default the run's own mask, if it has one, is built in."""
    json: bool = False
    """Print the description in config.json as one JSON object instead of a summary."""


@dataclass(frozen=True, kw_only=True)
class Quickstart(_Quiet):
    """Train XReg, MC dropout and an unregularized model side by side; an earlier quickstart is replaced."""

    out: Path = Path("runs/quickstart")
    """Folder of the results."""
    steps: int = QUICKSTART_STEPS
    """Training steps of each model."""
    json: bool = False
    """Print summary.json instead of a table."""


@dataclass(frozen=True, kw_only=True)
class Sweep(_Trains):
    """Train and score many runs as a few compiled programs; if it is interrupted, the same command resumes it."""

    name: tyro.conf.Positional[str]
    """paper-observed, paper-train-size, paper (both), paper-regimes, paper-exact (all of these with the paper's own
    settings), equal-data, ablation, scenario, or grid."""
    out: Path
    """Folder of the sweep: new, empty, or of an earlier sweep, whose finished rows are kept."""
    methods: str | None = None
    """Comma-separated, for example xreg,dropout,ensemble+temperature; or all. By default those of the named sweep."""
    seeds: int = 5
    """Seeds of each regime and method."""
    first_seed: int = 0
    """The lowest seed; seeds that no setting was chosen on confirm a result."""
    steps: int | None = None
    """Training steps; by default 10,000, and 30,000 for paper-regimes and paper-exact."""
    grid: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """field=value,value for a setting; if given several times, all combinations are run."""
    scenario: str | None = None
    """A scenario that `train --preset` knows, with its settings; by default diff_ks."""
    data: Path | None = None
    """Your trajectories instead of a scenario, as for train; they must fit into memory."""
    field: str | None = None
    """With --data: the array to read, or several, as in u,v, side by side as channels."""
    axes: str | None = None
    """With --data: a letter for each axis, as in btxc."""
    config: Path | None = None
    """A YAML file of settings that all runs share; it overrides --scenario and --data."""
    devices: int | None = None
    """Number of devices of this machine to use; by default all."""
    json: bool = False
    """Print the rows as JSON lines instead of a table."""
    plan: bool = False
    """Only print what would be trained and about how long it would take on this device."""
    # `dataclasses.field`, since this command has a flag called field.
    cluster: Workers = dataclasses.field(default_factory=Workers)
    """The workers that train; by default this process."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Estimate what a sweep would take on other devices: jobs, memory, time, efficiency. Nothing is run."""

    what: tyro.conf.Positional[str]
    """A named sweep (paper, …, grid), a preset, a YAML file of settings, or a sweep's folder, for the rest of it."""
    on: str
    """Devices as NAME:COUNT, for example h200:8 or cpu:1, of a kind that was measured."""
    methods: str | None = None
    """As for sweep."""
    seeds: int = 5
    """As for sweep; any number, for example 25000 seeds of paper for a million replicas."""
    first_seed: int = 0
    """As for sweep."""
    steps: int | None = None
    """As for sweep."""
    grid: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """As for sweep."""
    scenario: str | None = None
    """As for sweep."""
    config: Path | None = None
    """As for sweep."""
    compiled: bool = False
    """Assume that all programs are in the compilation cache."""
    straggler_rate: float = 0.0
    """Share of jobs that run slowly."""
    straggler_slowdown: float = 3.0
    """Factor by which those take longer."""
    failures_per_hour: float = 0.0
    """Random failures per device and hour."""
    save_every: float = SAVE_EVERY
    """Seconds between two snapshots; a failed job resumes from the last one."""
    retries: int = 1
    """Restarts of a failed job before it is given up."""
    runs: int = 0
    """Simulations with random stragglers and failures; by default 5 to 100, as many as are quick."""
    seed: int = 0
    """Seed of the simulations."""
    figure: Path | None = None
    """PNG file to write: time against the number of devices; an existing one is replaced."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Print the table of a sweep, with intervals over seeds and the paper's numbers; write table.md, .csv and .tex."""

    folder: tyro.conf.Positional[Path]
    """Folder of the sweep."""
    all: bool = False
    """Show every finished row of the folder, not only those of the last command."""
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
    """Number of the stored test trajectory that maps show; by default the first."""


@dataclass(frozen=True, kw_only=True)
class Report(_Quiet):
    """Write one HTML page that opens offline: tables, figures and test trajectories."""

    folder: tyro.conf.Positional[Path]
    """Folder of a run, a quickstart, a sweep or a car experiment, or a folder with these up to six levels below."""
    output: Path | None = None
    """HTML file to write, by default FOLDER/report.html; an existing one is replaced."""


@dataclass(frozen=True, kw_only=True)
class Extract(_Quiet):
    """Make a run folder of one trained model of a sweep, for `evaluate` and `predict`."""

    folder: tyro.conf.Positional[Path]
    """Folder of the sweep."""
    out: Path
    """Folder of the run; must not hold another run."""
    method: str = "xreg"
    """The method; it must be a single model."""
    seed: int = 0
    """The seed."""
    where: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """field=value for a setting that the sweep varies, as --where observed_fraction=0.4; may be given several times."""
    json: bool = False
    """Print the scores as one JSON object instead of tables."""


@dataclass(frozen=True, kw_only=True)
class Car(_Trains):
    """Predict pressure on car surfaces with error bars: XReg and baselines on an optimal transport neural operator.

    --profile sets the defaults of all other flags. If the command is interrupted, the same command resumes it.
    """

    out: Path
    """Folder of the experiment: new, empty, or of the same experiment."""
    profile: Profile = "quick"
    """quick: fewer and coarser cars, minutes on two cores. full: the paper's sizes, for a GPU."""
    devices: int | None = None
    """Number of devices of this machine to use; by default all."""
    json: bool = False
    """Print summary.json instead of a table."""
    settings: CarStudy = field(default_factory=CarStudy)


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Serve a local page that follows training runs and compares past ones; Ctrl-C ends it."""

    folder: tyro.conf.Positional[Path]
    """Folder with runs and sweeps up to six levels below it; nothing outside it is read."""
    host: str = "127.0.0.1"
    """Address to listen on; the default can be reached from this machine only."""
    port: int = 0
    """Port to listen on; 0 takes a free one."""
    open: bool = True
    """Open the page in a browser."""
