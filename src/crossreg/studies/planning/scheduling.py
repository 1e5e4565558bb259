r"""Jobs on devices, the longest first: a device that becomes free takes the next job of the list.

Equal jobs form groups, so that the schedule of $10^6$ jobs on $10^3$ devices is a few sums: `list_schedule` is exact if
nothing goes wrong. `simulate` follows every job, one event at a time, with slow jobs and failures.

A worker spends `new` seconds before its first job of a group, or `known` seconds if another worker has already compiled
the program into the cache that they share. This module does not import JAX.
"""

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Group(NamedTuple):
    """Equal jobs.

    Attributes:
        number: How many jobs.
        seconds: The seconds of each.
        new: Seconds before the first, if the program must be compiled.
        known: Seconds before the first, if the program is in the cache.
        ahead: Seconds before the first, if the program was compiled while another trained; infinite if it cannot be.
    """

    number: int
    seconds: float
    new: float = 0.0
    known: float = 0.0
    ahead: float = math.inf


class Schedule(NamedTuple):
    """When the last job ends; and the seconds, summed over all devices, of computing and of starting and compiling."""

    makespan: float
    busy: float
    setup: float


def longest_first(groups: Sequence[Group]) -> list[Group]:
    """Return the groups in the order in which they are taken."""
    return sorted(groups, key=lambda group: -group.seconds)


def list_schedule(groups: Sequence[Group], devices: int, *, start: float = 0.0) -> Schedule:
    """Return the list schedule of groups in the order `longest_first`; every job takes exactly its seconds."""
    loads, setup = np.full(devices, start), start * devices
    for group in longest_first(groups):
        # A device that begins before the first has compiled compiles too.
        ready = loads.min() + group.new
        wait = np.where(loads < ready, group.new, group.known)
        counts = _taken(loads, wait, group)
        took = counts > 0
        loads = loads + np.where(took, wait, 0.0) + counts * group.seconds
        setup += float(wait[took].sum())
    return Schedule(float(loads.max()), float(sum(g.number * g.seconds for g in groups)), setup)


def _taken(
    loads: Float[np.ndarray, " device"], wait: Float[np.ndarray, " device"], group: Group
) -> Int[np.ndarray, " device"]:
    """Return how many jobs of a group each device takes: jobs begin at the earliest possible times.

    Device i can begin a job at $L_i$, and then at $L_i + w_i + k t$ for k = 1, 2, …. Bisection finds a level below
    which all but a few of the jobs begin; these few begin at the earliest among the next two times of every device.
    """
    seconds, devices = max(group.seconds, 1e-12), len(loads)

    def begun(level: float) -> Int[np.ndarray, " device"]:
        more = np.floor((level - loads - wait) / seconds)
        return np.where(loads <= level, 1 + np.maximum(more, 0), 0).astype(np.int64)

    low, high = float(loads.min()) - seconds, float((loads + wait).mean()) + seconds * (group.number / devices + 1)
    while high - low > seconds:
        middle = 0.5 * (low + high)
        if not low < middle < high:  # adjacent floating-point numbers
            break
        if begun(middle).sum() < group.number:
            low = middle
        else:
            high = middle
    counts = begun(low)
    following = np.concatenate(
        [np.where(counts + k == 0, loads, loads + wait + (counts + k) * seconds) for k in (0, 1)]
    )
    order = np.argsort(following, kind="stable")[: group.number - int(counts.sum())]
    return counts + np.bincount(order % devices, minlength=devices)


def in_one_process(
    groups: Sequence[Group], *, start: float = 0.0, compilers: int = 0, crowding: float = 1.0
) -> Schedule:
    """Return the schedule of all jobs one after the other, in the given order.

    With `compilers`, so many threads compile programs while others train. Each compilation then takes `crowding` times
    as long, and a job whose program is not ready waits for it.
    """
    ready = _ready(groups, start, compilers, crowding)
    now, setup = start, start
    for place, group in enumerate(groups):
        wait = (crowding if max(ready, default=now) > now else 1.0) * group.new
        if place and compilers:
            wait = min(wait, group.ahead + max(0.0, ready[place] - now))
        now += wait + group.number * group.seconds
        setup += wait
    return Schedule(now, sum(g.number * g.seconds for g in groups), setup)


def _ready(groups: Sequence[Group], start: float, compilers: int, crowding: float) -> list[float]:
    """Return when the program of each group is compiled, if threads begin with the second program at once."""
    if not compilers or len(groups) < 2:
        return []
    free = [start] * compilers
    ready = [start]
    for group in groups[1:]:
        ahead = math.isfinite(group.ahead)
        ready.append(free[0] + crowding * group.new if ahead else start)
        if ahead:
            heapq.heapreplace(free, ready[-1])
    return ready


class Trouble(NamedTuple):
    """Slow jobs and failures of devices.

    Attributes:
        straggler_rate: The share of slow jobs.
        slowdown: How many times as long they take.
        failure_rate: Failures per second of work.
        save_every: Seconds between snapshots, from which a failed job resumes.
        restart: Seconds until it resumes.
        retries: How often a job may fail; after one more failure it is given up.
    """

    straggler_rate: float = 0.0
    slowdown: float = 1.0
    failure_rate: float = 0.0
    save_every: float = math.inf
    restart: float = 0.0
    retries: int = 1

    @property
    def is_none(self) -> bool:
        return self.failure_rate == 0 and (self.straggler_rate == 0 or self.slowdown == 1)


class Troubled(NamedTuple):
    """For each job: the seconds until it ended, how often it failed, and whether it was given up."""

    seconds: Float[np.ndarray, " job"]
    failures: Int[np.ndarray, " job"]
    given_up: Bool[np.ndarray, " job"]


def troubled(seconds: Float[np.ndarray, " job"], trouble: Trouble, draw: np.random.Generator) -> Troubled:
    r"""Draw what happens to jobs that would take so many seconds each.

    Failures are a Poisson process in the time that a job runs or restarts. If no job is given up, a stretch of τ
    seconds between two snapshots takes on average, at a rate λ and with r seconds to restart,

    $$ (1 - e^{-\lambda\tau}) \left( \frac1\lambda + \frac{e^{\lambda(r + \tau)} - 1}{\lambda} \right). $$
    """
    slowed = draw.random(seconds.shape) < trouble.straggler_rate
    left = np.where(slowed, trouble.slowdown * seconds, seconds)
    spent, failures = np.zeros_like(left), np.zeros(left.shape, np.int64)
    given_up = np.zeros(left.shape, bool)
    if trouble.failure_rate == 0:
        return Troubled(left, failures, given_up)
    active = np.arange(left.size)
    while active.size:
        again = np.where(failures[active] > 0, trouble.restart, 0.0)
        until = draw.exponential(1 / trouble.failure_rate, active.size)
        ends = until >= again + left[active]
        spent[active] += np.where(ends, again + left[active], until)
        failed, progress = active[~ends], np.maximum(until - again, 0.0)[~ends]
        left[failed] -= progress - np.fmod(progress, trouble.save_every) if trouble.save_every else progress
        failures[failed] += 1
        given_up[failed] = failures[failed] > trouble.retries
        active = failed[~given_up[failed]]
    return Troubled(spent, failures, given_up)


class Simulated(NamedTuple):
    """One simulated run: the end of its last job, and the numbers of failures and of jobs given up."""

    makespan: float
    failures: int
    given_up: int


def simulate(
    groups: Sequence[Group], devices: int, trouble: Trouble, draw: np.random.Generator, *, start: float = 0.0
) -> Simulated:
    """Simulate every job of the schedule of `list_schedule`, with trouble, one event at a time."""
    order = longest_first(groups)
    became = troubled(np.repeat([g.seconds for g in order], [g.number for g in order]), trouble, draw)
    seconds = iter(became.seconds.tolist())
    free = [(start, device) for device in range(devices)]
    for group in order:
        ready, begun = math.inf, set()
        for _ in range(group.number):
            now, device = free[0]
            wait = 0.0
            if device not in begun:
                begun.add(device)
                wait = group.known if ready <= now else group.new
                ready = min(ready, now + wait)
            heapq.heapreplace(free, (now + wait + next(seconds), device))
    return Simulated(max(free)[0], int(became.failures.sum()), int(became.given_up.sum()))


def simulate_one_process(
    groups: Sequence[Group],
    trouble: Trouble,
    draw: np.random.Generator,
    *,
    start: float = 0.0,
    compilers: int = 0,
    crowding: float = 1.0,
) -> Simulated:
    """Simulate the schedule of `in_one_process`, with trouble."""
    became = troubled(np.repeat([g.seconds for g in groups], [g.number for g in groups]), trouble, draw)
    ends = np.cumsum([g.number for g in groups])[:-1]
    taken = [float(part.sum()) for part in np.split(became.seconds, ends)]
    each = [Group(1, seconds, g.new, g.known, g.ahead) for g, seconds in zip(groups, taken, strict=True)]
    whole = in_one_process(each, start=start, compilers=compilers, crowding=crowding)
    return Simulated(whole.makespan, int(became.failures.sum()), int(became.given_up.sum()))
