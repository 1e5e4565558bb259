r"""Jobs on devices, the longest first: each device that falls free takes the next of the list. No JAX here.

Equal jobs come in groups, so that a schedule of $10^6$ of them on $10^3$ devices is a few sums: `list_schedule` is
exact where nothing goes wrong. `simulate` follows every job, one event at a time, with what may go wrong in it.

A worker spends `new` seconds before its first job of a group, or `known` where another has compiled the same program
before and left it in the cache that they share.
"""

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Group(NamedTuple):
    """Equal jobs: how many, seconds of each, and until the first can begin.

    `ahead` is what is left of that where its program was compiled while another trained; infinite where it cannot be.
    """

    number: int
    seconds: float
    new: float = 0.0
    known: float = 0.0
    ahead: float = math.inf


class Schedule(NamedTuple):
    """When the last job ends; how long devices compute, and how long they start and compile, all of them together."""

    makespan: float
    busy: float
    setup: float


def longest_first(groups: Sequence[Group]) -> list[int]:
    """The order in which groups are taken."""
    return sorted(range(len(groups)), key=lambda i: -groups[i].seconds)


def list_schedule(groups: Sequence[Group], devices: int, *, start: float = 0.0) -> Schedule:
    """The list schedule of groups in the order `longest_first`, where every job takes as long as its group says."""
    loads, setup = np.full(devices, start), start * devices
    for group in (groups[i] for i in longest_first(groups)):
        # Who begins before the first has compiled compiles too.
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
    """How many jobs of a group each device takes: of all times at which one could begin, the earliest are taken.

    Device i can begin at $L_i$, and then at $L_i + w_i + k t$ for k = 1, 2, …. Bisection finds a level that all but a
    few of them are below; of the next two times of each device, the earliest are the rest.
    """
    seconds, devices = max(group.seconds, 1e-12), len(loads)

    def begun(level: float) -> Int[np.ndarray, " device"]:
        more = np.floor((level - loads - wait) / seconds)
        return np.where(loads <= level, 1 + np.maximum(more, 0), 0).astype(np.int64)

    low, high = float(loads.min()) - seconds, float((loads + wait).mean()) + seconds * (group.number / devices + 1)
    while high - low > seconds:
        middle = 0.5 * (low + high)
        if not low < middle < high:  # as near as numbers are
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
    """All jobs one after the other, in their own order; with compilers, programs are compiled while others train.

    Then each compilation takes `crowding` times as long, and a job whose program is not ready in time waits for it.
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
    """When the program of each group is compiled, if threads begin with the second at once."""
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
    """What goes wrong: a share of jobs is slowed, and devices fail at a rate per second of work.

    A job that failed goes on from its last snapshot, `restart` seconds later; one that fails more than `retries` times
    is given up.
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
    """What became of jobs: seconds until each ended, how often it failed, and whether it was given up."""

    seconds: Float[np.ndarray, " job"]
    failures: Int[np.ndarray, " job"]
    given_up: Bool[np.ndarray, " job"]


def troubled(seconds: Float[np.ndarray, " job"], trouble: Trouble, draw: np.random.Generator) -> Troubled:
    r"""Draws what happens to jobs that would take so many seconds each.

    Failures are a Poisson process in the time that a job runs or starts again. With none given up, a stretch of τ
    seconds between two snapshots takes on average, at a rate λ and with r seconds to start again,

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
    """One simulated run: when its last job ended, failures, and jobs that were given up."""

    makespan: float
    failures: int
    given_up: int


def simulate(
    groups: Sequence[Group], devices: int, trouble: Trouble, draw: np.random.Generator, *, start: float = 0.0
) -> Simulated:
    """Every job of a list schedule, one event at a time; the list is that of `list_schedule`, which has no trouble."""
    order = longest_first(groups)
    counts = [groups[i].number for i in order]
    became = troubled(np.repeat([groups[i].seconds for i in order], counts), trouble, draw)
    free = [(start, device) for device in range(devices)]
    has = [-1] * devices  # the group that a device has taken last: groups come one after the other
    place_of_job = 0
    seconds = became.seconds.tolist()
    for place, index in enumerate(order):
        group, ready = groups[index], math.inf
        for _ in range(group.number):
            now, device = free[0]
            wait = 0.0
            if has[device] != place:
                wait = group.known if ready <= now else group.new
                ready, has[device] = min(ready, now + wait), place
            heapq.heapreplace(free, (now + wait + seconds[place_of_job], device))
            place_of_job += 1
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
    """`in_one_process` with what may go wrong in it."""
    became = troubled(np.repeat([g.seconds for g in groups], [g.number for g in groups]), trouble, draw)
    ends = np.cumsum([g.number for g in groups])[:-1]
    taken = [float(part.sum()) for part in np.split(became.seconds, ends)]
    each = [Group(1, seconds, g.new, g.known, g.ahead) for g, seconds in zip(groups, taken, strict=True)]
    whole = in_one_process(each, start=start, compilers=compilers, crowding=crowding)
    return Simulated(whole.makespan, int(became.failures.sum()), int(became.given_up.sum()))
