r"""Replicas into jobs: how wide a job should be, given its costs.

A step of R replicas side by side takes $a u + R b$ (`training/cost.py`): the wider a job, the less device time each
replica takes. But a few wide jobs leave devices idle. In between, no job has more than W replicas; this module searches
for the W whose schedule ends first.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from crossreg.config import Config
from crossreg.studies.planning.device_costs import Device
from crossreg.studies.planning.scheduling import Group, Schedule, in_one_process, list_schedule

# Among schedules that end within this factor of the first, the one with the fewest jobs is taken.
_AS_GOOD = 1.01
_WIDTHS, _COHORTS, _ROUNDS = 20, 4, 4


class Cohort(NamedTuple):
    """Replicas that may train side by side.

    Attributes:
        label: The methods that they are for.
        config: The settings of one of them.
        replicas: How many they are.
        scoring: Seconds of scoring for each.
        fixed: Whether they are one job already, a program of a folder.
        left: The share of their steps that is still to be trained.
    """

    label: str
    config: Config
    replicas: int
    scoring: float
    fixed: bool = False
    left: float = 1.0


class Line(NamedTuple):
    """The costs of jobs of a cohort: a job of R replicas takes `constant + R per_replica` seconds.

    Attributes:
        most: The most replicas of a job.
        constant: Seconds of any job.
        per_replica: Seconds of each replica, with the scoring of its rows.
        new: Seconds until the program is ready, if it must be compiled.
        known: Seconds until the program is ready, if it is in the cache.
    """

    most: int
    constant: float
    per_replica: float
    new: float
    known: float

    def seconds(self, replicas: int) -> float:
        return self.constant + self.per_replica * replicas


class Jobs(NamedTuple):
    """Jobs of a cohort that have the same number of replicas."""

    cohort: int
    number: int
    replicas: int


class Packing(NamedTuple):
    """All jobs, and their schedule.

    Attributes:
        jobs: The jobs.
        groups: The same jobs with their times, and one for rows that need no training.
        devices_each: 1 if every device takes jobs of its own, or all if one process trains each job on all devices.
        schedule: The schedule.
    """

    jobs: list[Jobs]
    groups: list[Group]
    devices_each: int
    schedule: Schedule

    @property
    def num_jobs(self) -> int:
        return sum(jobs.number for jobs in self.jobs)


class Load(NamedTuple):
    """The work of a sweep on a kind of device.

    Attributes:
        cohorts: The replicas to train.
        lines: The costs of jobs of each cohort.
        rows: Seconds of scoring for trials that wait for no training.
        device: The kind of device.
        compiled: Whether all programs were compiled by an earlier command.
        field_shape: The shape (channel, *space) of a field.
    """

    cohorts: list[Cohort]
    lines: list[Line]
    rows: float
    device: Device
    compiled: bool
    field_shape: tuple[int, ...]

    @property
    def replicas(self) -> int:
        return sum(cohort.replicas for cohort in self.cohorts)

    def useful(self) -> float:
        """Return the least device time in which all could be done: every job as wide as possible, and nothing else."""
        pairs = zip(self.cohorts, self.lines, strict=True)
        return sum(cohort.replicas * line.seconds(line.most) / line.most for cohort, line in pairs) + self.rows


def load_of(
    cohorts: Sequence[Cohort], rows: float, field_shape: tuple[int, ...], device: Device, *, compiled: bool = False
) -> Load:
    """Return the work of a sweep on a kind of device, with its costs."""
    lines = []
    for cohort in cohorts:
        one, two = (cohort.left * device.training_seconds(cohort.config, field_shape, r) for r in (1, 2))
        most = cohort.replicas if cohort.fixed else min(cohort.replicas, device.most(cohort.config, field_shape))
        new, known = device.program_seconds(cohort.config)
        lines.append(Line(most, 2 * one - two, two - one + cohort.scoring, new, known))
    return Load(list(cohorts), lines, rows, device, compiled, field_shape)


def split_evenly(replicas: int, parts: int) -> list[tuple[int, int]]:
    """Return (jobs, replicas) of a cohort in parts that differ by at most one replica, as in `plan_programs`."""
    small, wider = divmod(replicas, parts)
    return [(count, size) for count, size in ((wider, small + 1), (parts - wider, small)) if count and size]


def _jobs(load: Load, widths: Sequence[int]) -> list[Jobs]:
    return [
        Jobs(number, count, size)
        for number, (cohort, width) in enumerate(zip(load.cohorts, widths, strict=True))
        for count, size in split_evenly(cohort.replicas, math.ceil(cohort.replicas / width))
    ]


def _groups(load: Load, jobs: Sequence[Jobs], devices: int = 1) -> list[Group]:
    """Return jobs with their times, the replicas of each divided among `devices`."""
    made = []
    for some in jobs:
        line, cohort, share = load.lines[some.cohort], load.cohorts[some.cohort], math.ceil(some.replicas / devices)
        # Rows are scored by one device, however many have trained.
        seconds = line.seconds(share) + (some.replicas - share) * cohort.scoring
        compiles = load.device.compiles_ahead(cohort.config, load.field_shape, share)
        ahead = load.device.around.ahead[load.compiled] if compiles else math.inf
        made.append(Group(some.number, seconds, line.known if load.compiled else line.new, line.known, ahead))
    return made + [Group(1, load.rows)] * (load.rows > 0)


def started(load: Load, devices: int) -> float:
    """Return the seconds until workers take jobs: those of the command, and with several devices of its workers."""
    return load.device.around.start * (1 if devices == 1 else 2)


def in_a_process(load: Load, devices: int) -> Packing:
    """Return jobs as wide as memory allows, one after the other in one process, each on all devices."""
    pairs = zip(load.cohorts, load.lines, strict=True)
    jobs = _jobs(load, [min(line.most * devices, cohort.replicas) for cohort, line in pairs])
    groups = _groups(load, jobs, devices)
    around = load.device.around
    schedule = in_one_process(groups, start=around.start, compilers=around.compilers, crowding=around.crowding)
    # All devices are taken from the start of the process to its end.
    return Packing(
        jobs, groups, devices, Schedule(schedule.makespan, devices * schedule.busy, devices * schedule.setup)
    )


def at_most(load: Load, devices: int, most: int) -> Packing:
    """Return jobs for one worker per device, of at most `most` replicas and of what fits into memory.

    This is `--most-replicas`. A program of a folder stays one job.
    """
    pairs = zip(load.cohorts, load.lines, strict=True)
    jobs = _jobs(load, [line.most if cohort.fixed else min(line.most, most) for cohort, line in pairs])
    groups = _groups(load, jobs)
    return Packing(jobs, groups, 1, list_schedule(groups, devices, start=started(load, devices)))


def best_width(load: Load, devices: int) -> tuple[int, Packing]:
    """Return the width whose schedule ends first; among widths that end within 1%, the one with the fewest jobs."""
    largest = max((line.most for line in load.lines), default=1)
    widths = {round(largest ** (i / _WIDTHS)) for i in range(_WIDTHS + 1)}
    # Widths at which a cohort, or all cohorts together, have 1, 2, … jobs for each device.
    counts = sorted({cohort.replicas for cohort in load.cohorts}, reverse=True)[:_COHORTS]
    widths |= {math.ceil(n / (devices * k)) for n in (*counts, load.replicas) for k in range(1, _ROUNDS + 1)}
    found = {width: at_most(load, devices, width) for width in sorted(widths) if 1 <= width <= largest}
    near = min(found, key=lambda width: found[width].schedule.makespan)
    for factor in (0.8, 0.87, 0.93, 0.97, 1.03, 1.07, 1.15, 1.25):
        width = min(largest, max(1, round(factor * near)))
        found[width] = at_most(load, devices, width)
    first = min(packing.schedule.makespan for packing in found.values())
    good = {width: packing for width, packing in found.items() if packing.schedule.makespan <= _AS_GOOD * first}
    return min(good.items(), key=lambda item: (item[1].num_jobs, item[1].schedule.makespan))


class Way(NamedTuple):
    """A way to run a sweep: its name, its flags, and its jobs."""

    name: str
    flags: str
    packing: Packing


def ways_to_run(load: Load, devices: int) -> list[Way]:
    """Return the ways to run a sweep; on one device, there is one."""
    if devices == 1:
        return [Way("one process", "", in_a_process(load, 1))]
    workers = f"--workers {devices}"
    ways = [
        Way("workers, equal shares", workers, at_most(load, devices, max(1, math.ceil(load.replicas / devices)))),
        Way("one process, all devices", f"--devices {devices}", in_a_process(load, devices)),
    ]
    if all(cohort.fixed for cohort in load.cohorts):  # no width is left to choose
        return ways
    width, best = best_width(load, devices)
    half = math.ceil(width / 2)
    return [
        Way("workers, best width", f"{workers} --most-replicas {width}", best),
        Way("workers, half as wide", f"{workers} --most-replicas {half}", at_most(load, devices, half)),
        *ways,
    ]
