r"""Replicas into jobs: how wide a job should be, given what it costs.

A step of R replicas side by side takes $a u + R b$ (`training/cost.py`): the wider a job, the less of a device's time
each replica takes. But few wide jobs leave devices idle. Between the two, no job has more than W replicas; the W whose
schedule ends first is searched for.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from crossreg.config import Config
from crossreg.studies.planning.device_costs import Device
from crossreg.studies.planning.scheduling import Group, Schedule, in_one_process, list_schedule

# Schedules that end almost together: the one with the fewest jobs is taken.
_AS_GOOD = 1.01
_WIDTHS, _COHORTS, _ROUNDS = 20, 4, 4


class Cohort(NamedTuple):
    """Replicas that may train side by side, what they are for, and seconds of scoring for each.

    `fixed`: they are one job already, of a folder where that was decided. `left` is the share of steps still to go.
    """

    label: str
    config: Config
    replicas: int
    scoring: float
    fixed: bool = False
    left: float = 1.0


class Line(NamedTuple):
    """Replicas of each step at most, and time as a line: a job of R takes `constant + R per_replica` seconds."""

    most: int
    constant: float
    per_replica: float
    new: float
    known: float

    def seconds(self, replicas: int) -> float:
        return self.constant + self.per_replica * replicas


def line_of(cohort: Cohort, field_shape: tuple[int, ...], device: Device) -> Line:
    """What jobs of a cohort take on a device."""
    one, two = (cohort.left * device.training_seconds(cohort.config, field_shape, r) for r in (1, 2))
    most = cohort.replicas if cohort.fixed else min(cohort.replicas, device.most(cohort.config, field_shape))
    new, known = device.program_seconds(cohort.config)
    return Line(most, 2 * one - two, two - one + cohort.scoring, new, known)


class Jobs(NamedTuple):
    """Jobs of equal width of a cohort."""

    cohort: int
    number: int
    replicas: int


class Packing(NamedTuple):
    """All jobs, how they are run, and what that gives.

    `devices_each`: 1 where devices take jobs one by one, all where one process has each job on all of them.
    """

    jobs: list[Jobs]
    groups: list[Group]
    devices_each: int
    schedule: Schedule

    @property
    def num_jobs(self) -> int:
        return sum(jobs.number for jobs in self.jobs)


class Load(NamedTuple):
    """What is to be done on a device of some kind; `rows` are seconds of scoring that wait for no training."""

    cohorts: list[Cohort]
    lines: list[Line]
    rows: float
    device: Device
    compiled: bool
    field_shape: tuple[int, ...]

    def useful(self) -> float:
        """The least device time in which all of it could be done: every job as wide as can be, nothing else."""
        best = (
            c.replicas * line.seconds(line.most) / line.most for c, line in zip(self.cohorts, self.lines, strict=True)
        )
        return sum(best) + self.rows


def load_of(
    cohorts: Sequence[Cohort], rows: float, field_shape: tuple[int, ...], device: Device, *, compiled: bool = False
) -> Load:
    """What is to be done; with `compiled`, all programs were compiled by an earlier command."""
    return Load(list(cohorts), [line_of(c, field_shape, device) for c in cohorts], rows, device, compiled, field_shape)


def split_evenly(replicas: int, parts: int) -> list[tuple[int, int]]:
    """(jobs, replicas) of a cohort in so many parts that differ by one at most, as `plan_programs` divides it."""
    small, wider = divmod(replicas, parts)
    return [(count, size) for count, size in ((wider, small + 1), (parts - wider, small)) if count and size]


def _jobs(load: Load, widths: Sequence[int]) -> list[Jobs]:
    parts = [math.ceil(cohort.replicas / width) for cohort, width in zip(load.cohorts, widths, strict=True)]
    return [
        Jobs(number, count, size)
        for number, (cohort, part) in enumerate(zip(load.cohorts, parts, strict=True))
        for count, size in split_evenly(cohort.replicas, part)
    ]


def _groups(load: Load, jobs: Sequence[Jobs], share: int = 1) -> list[Group]:
    """Their times, each replica axis divided among `share` devices."""
    made = []
    for some in jobs:
        line = load.lines[some.cohort]
        seconds = line.seconds(math.ceil(some.replicas / share))
        # Rows are scored by one device, however many have trained.
        seconds += (some.replicas - math.ceil(some.replicas / share)) * load.cohorts[some.cohort].scoring
        config, beside = load.cohorts[some.cohort].config, math.ceil(some.replicas / share)
        compiles = load.device.compiles_ahead(config, load.field_shape, beside)
        ahead = load.device.around.ahead[load.compiled] if compiles else math.inf
        made.append(Group(some.number, seconds, line.known if load.compiled else line.new, line.known, ahead))
    return made + [Group(1, load.rows)] * (load.rows > 0)


def started(load: Load, devices: int) -> float:
    """Seconds until workers take jobs: the command, and behind it its workers, where there are any."""
    return load.device.around.start * (1 if devices == 1 else 2)


def on_workers(load: Load, devices: int, widths: Sequence[int]) -> Packing:
    """Jobs of these widths, taken one by one by a worker for each device."""
    jobs = _jobs(load, widths)
    groups = _groups(load, jobs)
    return Packing(jobs, groups, 1, list_schedule(groups, devices, start=started(load, devices)))


def in_a_process(load: Load, devices: int) -> Packing:
    """Jobs as wide as memory allows, one after the other in one process, each on all devices."""
    jobs = _jobs(load, [min(line.most * devices, c.replicas) for c, line in zip(load.cohorts, load.lines, strict=True)])
    groups = _groups(load, jobs, devices)
    around = load.device.around
    schedule = in_one_process(groups, start=around.start, compilers=around.compilers, crowding=around.crowding)
    # All devices belong to it from its start to its end.
    return Packing(
        jobs, groups, devices, Schedule(schedule.makespan, devices * schedule.busy, devices * schedule.setup)
    )


def at_most(load: Load, devices: int, most: int) -> Packing:
    """Workers that take jobs of so many replicas at most, and of what fits into memory: `--most-replicas`.

    What a folder has decided already stays one job.
    """
    widths = [line.most if c.fixed else min(line.most, most) for c, line in zip(load.cohorts, load.lines, strict=True)]
    return on_workers(load, devices, widths)


def equal_shares(load: Load, devices: int) -> Packing:
    """What workers take where nothing is said: no job has more than one worker's share of all replicas."""
    return at_most(load, devices, max(1, math.ceil(sum(cohort.replicas for cohort in load.cohorts) / devices)))


def best_width(load: Load, devices: int) -> tuple[int, Packing]:
    """The width of jobs whose schedule ends first; among those that end within 1% of it, that of the fewest jobs."""
    largest = max((line.most for line in load.lines), default=1)
    widths = {round(largest ** (i / _WIDTHS)) for i in range(_WIDTHS + 1)}
    # Those at which a cohort, or all of them, has so many jobs for each device.
    counts = sorted({cohort.replicas for cohort in load.cohorts}, reverse=True)[:_COHORTS]
    counts.append(sum(cohort.replicas for cohort in load.cohorts))
    widths |= {math.ceil(count / (devices * k)) for count in counts for k in range(1, _ROUNDS + 1)}
    found = {width: at_most(load, devices, width) for width in sorted(widths) if 1 <= width <= largest}
    near = min(found, key=lambda width: found[width].schedule.makespan)
    for factor in (0.8, 0.87, 0.93, 0.97, 1.03, 1.07, 1.15, 1.25):
        width = min(largest, max(1, round(factor * near)))
        found[width] = at_most(load, devices, width)
    first = min(packing.schedule.makespan for packing in found.values())
    good = {width: packing for width, packing in found.items() if packing.schedule.makespan <= _AS_GOOD * first}
    return min(good.items(), key=lambda item: (item[1].num_jobs, item[1].schedule.makespan))


class Way(NamedTuple):
    """A way to run it: its name, and how it is asked for."""

    name: str
    flags: str
    packing: Packing


def ways_to_run(load: Load, devices: int) -> list[Way]:
    """Ways to run it; on one device, what `crossreg sweep` does there."""
    if devices == 1:
        return [Way("one process", "", in_a_process(load, 1))]
    workers = f"--workers {devices}"
    if all(cohort.fixed for cohort in load.cohorts):  # no width is left to choose
        return [
            Way("workers, equal shares", workers, equal_shares(load, devices)),
            Way("one process, all devices", f"--devices {devices}", in_a_process(load, devices)),
        ]
    width, best = best_width(load, devices)
    half = math.ceil(width / 2)
    return [
        Way("workers, best width", f"{workers} --most-replicas {width}", best),
        Way("workers, half as wide", f"{workers} --most-replicas {half}", at_most(load, devices, half)),
        Way("workers, equal shares", workers, equal_shares(load, devices)),
        Way("one process, all devices", f"--devices {devices}", in_a_process(load, devices)),
    ]
