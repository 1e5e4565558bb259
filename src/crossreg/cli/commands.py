"""The commands and their flags, one dataclass each. No JAX here: `--help` answers at once."""

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


@dataclass(frozen=True)
class Train:
    """Train one run into a folder; the same command on the same folder goes on.

    Every setting is a flag; the rest comes from --preset, or from the YAML file --config.
    """

    out: Path
    """Folder of the run: new, empty, or of the same run, which goes on from its last snapshot."""
    preset: str = "reference"
    """One of reference, low-observation, head-only, unregularized, dropout, protocol; or reference on a scenario:
    diff_ks, diff_ks_cons, diff_kdv, diff_burgers, diff_adv, phy_decay_turb, phy_gs, phy_kolm_flow."""
    config: Path | None = None
    """A YAML file of settings, as a run folder holds; it changes what --preset sets."""
    data_parallel: bool = False
    """Divide each batch among devices, for models and fields that are too large for one; by default one device trains.
    A batch that they do not divide evenly is filled up with pairs of weight 0."""
    devices: int | None = None
    """With --data-parallel, devices of each machine; by default all."""
    distributed: bool = False
    """Train in data-parallel with the other processes of a cluster's job, as Slurm's, each started by this command."""
    coordinator: str | None = None
    """The same where no cluster says who they are: HOST:PORT, at which process 0 listens."""
    num_processes: int | None = None
    """With --coordinator: how many there are."""
    process_id: int | None = None
    """With --coordinator: which of them this is, from 0. Process 0 writes, and says what there is to say."""
    save_every: float = SAVE_EVERY
    """Seconds between two snapshots of a training; more where a snapshot would take over 1% of the time."""
    force_resume: bool = False
    """Go on also on another kind of machine or with another jaxlib: last digits may then differ."""
    max_diverged: float = 0.0
    """Exit code 4 where a larger share of the runs than this has diverged."""
    quiet: bool = False
    """No progress display."""
    json: bool = False
    """Print the scores as one JSON object in place of the tables."""
    settings: Config = field(default_factory=Config)


@dataclass(frozen=True)
class Evaluate:
    """Score a trained run on its test and reg split."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    quiet: bool = False
    """No progress display."""
    data: Path | None = None
    """Where the run's own data are now, if they have moved."""
    json: bool = False
    """Print one JSON object: test, reg, train and sigma."""


@dataclass(frozen=True)
class DataFiles:
    """Look at trajectories of your own: shapes, ranges, gaps, a split, a picture, and the command to train on them."""

    action: tyro.conf.Positional[Literal["check"]]
    """What to do: check."""
    path: tyro.conf.Positional[Path]
    """An NPY, NPZ, HDF5, NetCDF or Zarr file, or a folder of them."""
    field: str | None = None
    """The array to take, or several, as in u,v, side by side as channels."""
    axes: str | None = None
    """A letter for each axis: b sample, t time, c channel, x y z space."""
    picture: Path = Path("data_check.png")
    """PNG file to write; an earlier one is replaced."""
    json: bool = False
    """Print one JSON object in place of the text."""


@dataclass(frozen=True)
class Predict:
    """Apply a trained run to fields of your own, or a car experiment to cars of your own."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run, or of a car experiment."""
    input: Path
    """NPY file of shape (batch, channel, *space). For cars an NPZ file with vertices and perhaps faces, a PLY file, or
    a folder of them."""
    output: Path
    """NPZ file to write: mean, std, std_predictive, std_generalization, quantiles, levels."""
    method: str | None = None
    """For cars: which method of the experiment; by default xreg. Its first seed predicts."""
    levels: tuple[float, ...] = (0.05, 0.5, 0.95)
    """Levels of the quantiles, each in (0, 1)."""
    mask: Path | None = None
    """NPY file of shape (*space), 1 where the input is observed; by default the run's own mask."""
    no_mask: bool = False
    """Take every point of the input as observed."""
    quiet: bool = False
    """No progress display."""


@dataclass(frozen=True)
class Export:
    """A trained run as files that need no crossreg: StableHLO, ONNX, safetensors, and a server of 15 lines."""

    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    output: Path
    """Folder to write: new or empty."""
    seed: int = 0
    """Seed of the noise draws, which become part of the model."""
    samples: int | None = None
    """Noise draws S; by default as many as the run's own predictions have."""
    levels: tuple[float, ...] = (0.05, 0.5, 0.95)
    """Levels of the quantiles, each in (0, 1)."""
    mask_input: bool = False
    """Take a mask with every field; by default the run's own is part of the model, where there is one."""
    quiet: bool = False
    """No progress display."""
    json: bool = False
    """Print config.json's description as one JSON object in place of the summary."""


@dataclass(frozen=True)
class Quickstart:
    """XReg, MC dropout and the unregularized model side by side; an earlier quickstart is replaced."""

    out: Path = Path("runs/quickstart")
    """Folder of the results."""
    steps: int = QUICKSTART_STEPS
    """Training steps of each model."""
    quiet: bool = False
    """No progress display."""
    json: bool = False
    """Print summary.json in place of the table."""


@dataclass(frozen=True)
class Sweep:
    """Train and score many runs as few programs; the same command on the same folder goes on."""

    name: tyro.conf.Positional[str]
    """paper-observed, paper-train-size, paper (both), paper-regimes, paper-exact (all of these with the paper's own
    settings), equal-data, ablation, scenario, or grid."""
    out: Path
    """Folder of the sweep: new, empty, or of an earlier one, whose finished points are kept."""
    methods: str | None = None
    """Comma-separated, for instance xreg,dropout,ensemble+temperature, or all; by default those of the named sweep."""
    seeds: int = 5
    """Runs of each regime and method, each with a seed of its own."""
    first_seed: int = 0
    """The lowest of the seeds: others than those that a setting was chosen with confirm it."""
    steps: int | None = None
    """Training steps; by default 10,000, and 30,000 for paper-regimes and paper-exact."""
    grid: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """field=value,value for a config field; given several times, all combinations are run."""
    scenario: str | None = None
    """One of the scenarios that --preset of train knows, with its settings; by default diff_ks."""
    data: Path | None = None
    """Trajectories of your own in place of a scenario, as train takes them; they must fit into memory."""
    field: str | None = None
    """Own data: the array to take, or several, as in u,v, side by side as channels."""
    axes: str | None = None
    """Own data: a letter for each axis, as in btxc."""
    config: Path | None = None
    """A YAML file of settings that all runs share; it changes what --scenario and --data set."""
    devices: int | None = None
    """Devices of this machine that the replicas are divided among; by default all."""
    save_every: float = SAVE_EVERY
    """Seconds between two snapshots of a training; more where a snapshot would take over 1% of the time."""
    force_resume: bool = False
    """Go on also on another kind of machine or with another jaxlib: last digits may then differ."""
    max_diverged: float = 0.5
    """Exit code 4 where a larger share of the runs than this has diverged."""
    quiet: bool = False
    """No progress display."""
    json: bool = False
    """Print the rows as JSON lines in place of the table."""
    plan: bool = False
    """Only say what would be trained, and about how long it would take on this device."""
    # `dataclasses.field` by its whole name: a flag of this command is called field.
    cluster: Workers = dataclasses.field(default_factory=Workers)
    """Who trains, and with what. Everything else of the command stays as it is."""


@dataclass(frozen=True)
class Plan:
    """Say what a sweep would take on devices that need not be here: jobs, memory, time, efficiency; nothing is run."""

    what: tyro.conf.Positional[str]
    """A sweep's name (paper, …, grid), a preset, a YAML file of settings, or a sweep's folder: what is left of it."""
    on: str
    """NAME:COUNT, as h200:8 or cpu:1; devices that were measured."""
    methods: str | None = None
    """As for sweep."""
    seeds: int = 5
    """As for sweep, and more: 25000 seeds of paper are a million replicas."""
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
    """All programs were compiled by an earlier command, and are in its cache."""
    straggler_rate: float = 0.0
    """Share of jobs that are slowed."""
    straggler_slowdown: float = 3.0
    """How many times as long those take."""
    failures_per_hour: float = 0.0
    """Failures of each device in an hour of work, at random times."""
    save_every: float = SAVE_EVERY
    """Seconds between two snapshots, the last of which a failed job goes on from."""
    retries: int = 1
    """How often a job that failed is begun again before it is given up."""
    runs: int = 0
    """Simulated runs, where something can go wrong; by default as many as are quick, 5 to 100."""
    seed: int = 0
    """Seed of what goes wrong in them."""
    figure: Path | None = None
    """PNG file to draw: time against the number of devices; an earlier one is replaced."""
    json: bool = False
    """Print one JSON object in place of the text."""


@dataclass(frozen=True)
class Table:
    """The table of a sweep, with intervals over seeds and the paper's numbers; writes table.md, .csv and .tex."""

    folder: tyro.conf.Positional[Path]
    """Folder of the sweep."""
    all: bool = False
    """Every finished run of the folder, not only those that were asked for last."""
    json: bool = False
    """Print the rows as JSON lines in place of the table."""


@dataclass(frozen=True)
class Figures:
    """The paper's figures of a run, of several, of a sweep or of a car experiment, as PDF and PNG."""

    folder: tyro.conf.Positional[Path]
    """Folder of a run, of run folders such as a quickstart's, of a sweep, or of a car experiment."""
    out: Path | None = None
    """Folder for the figures; by default FOLDER/figures."""
    trajectory: int | None = None
    """Test trajectory that maps show, one of those stored; by default the first."""
    quiet: bool = False
    """No progress display."""


@dataclass(frozen=True)
class Report:
    """One page of runs, a sweep or a car experiment, that opens offline: tables, figures and test trajectories."""

    folder: tyro.conf.Positional[Path]
    """Folder of a run, a quickstart, a sweep or a car experiment, or one with any of them up to six folders below."""
    output: Path | None = None
    """HTML file to write, by default FOLDER/report.html; an earlier one is replaced."""
    quiet: bool = False
    """No progress display."""


@dataclass(frozen=True)
class Extract:
    """One trained run of a sweep as a run folder of its own, for `evaluate` and `predict`."""

    folder: tyro.conf.Positional[Path]
    """Folder of the sweep."""
    out: Path
    """Folder of the run; must not hold another."""
    method: str = "xreg"
    """Its method, one that is a single model."""
    seed: int = 0
    """Its seed."""
    where: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """field=value for a field that the sweep varies, as --where observed_fraction=0.4; may be given several times."""
    quiet: bool = False
    """No progress display."""
    json: bool = False
    """Print the scores as one JSON object in place of the tables."""


@dataclass(frozen=True)
class Car:
    """Pressure with error bars on car surfaces: XReg and its baselines on an optimal transport neural operator.

    A flag that is not given is as --profile has it. The same command on the same folder goes on.
    """

    out: Path
    """Folder of the experiment: new, empty, or of the same one."""
    profile: Profile = "quick"
    """quick: fewer and coarser cars, minutes on two cores; full: the paper's sizes, for a GPU."""
    devices: int | None = None
    """Devices of this machine that the replicas are divided among; by default all."""
    save_every: float = SAVE_EVERY
    """Seconds between two snapshots of a training; more where a snapshot would take over 1% of the time."""
    force_resume: bool = False
    """Go on also on another kind of machine or with another jaxlib: last digits may then differ."""
    max_diverged: float = 0.5
    """Exit code 4 where a larger share of the runs than this has diverged."""
    quiet: bool = False
    """No progress display."""
    json: bool = False
    """Print summary.json in place of the table."""
    settings: CarStudy = field(default_factory=CarStudy)


@dataclass(frozen=True)
class Watch:
    """A local page over run folders that follows what trains in them, and compares past runs; Ctrl-C ends it."""

    folder: tyro.conf.Positional[Path]
    """Folder that has runs and sweeps up to six folders below it; nothing outside it is read."""
    host: str = "127.0.0.1"
    """Address to listen on; by default only this machine reaches it."""
    port: int = 0
    """Port to listen on; 0 takes one that is free."""
    open: bool = True
    """Open the page in a browser."""
