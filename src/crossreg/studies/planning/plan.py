"""`crossreg plan`: jobs, memory, time, device-hours and efficiency on devices of another machine; nothing is run."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from crossreg.config import Config
from crossreg.errors import InputError
from crossreg.machine.processor import describe_processor
from crossreg.studies.planning.demand import asked_trials, demand_of, field_shape_of, priced_rows
from crossreg.studies.planning.device_costs import Device, devices_of
from crossreg.studies.planning.packing import Load, Packing, Way, load_of, started, ways_to_run
from crossreg.studies.planning.scheduling import Trouble, simulate, simulate_one_process
from crossreg.studies.planning.settings import Asked, Risks

# A number of devices that ends within this factor of the time of all devices is enough.
_ENOUGH = 1.05
_EVENTS = 10**5  # simulated for each way to run a sweep, in about a tenth of a second
_RUNS = (5, 100)
_MOST_REPLICAS = 10**8
_GIVEN_UP = 0.5  # mean number of jobs given up from which a way is not recommended


def _trouble(risks: Risks, load: Load, devices_each: int) -> Trouble:
    """Return the risks of jobs on `devices_each` devices, any of which ends the job when it fails."""
    restart = load.device.around.start + max((line.known for line in load.lines), default=0.0)
    return Trouble(
        risks.straggler_rate, risks.straggler_slowdown, devices_each * risks.failures_per_hour / 3600,
        risks.save_every, restart, risks.retries,
    )  # fmt: skip


def make_plan(
    asked: Asked, on: str, *, risks: Risks | None = None, compiled: bool = False, curve: bool = False
) -> dict[str, Any]:
    """Plan a sweep.

    Args:
        asked: The sweep.
        on: The devices as NAME:COUNT, such as h200:8.
        risks: Slow jobs and failures; by default there are none.
        compiled: Whether all programs were compiled by an earlier command.
        curve: Whether `by_devices` gets the points of a figure.

    Returns:
        All that `crossreg plan` prints, as plain values.

    Raises:
        InputError: The sweep or the devices are unknown, or a replica does not fit into the memory of a device.

    Example:
        >>> plan = make_plan(Asked("paper", seeds=100), "h200:8")
        >>> plan["replicas"]
        4000
    """
    risks = (risks or Risks()).checked()
    device, devices = devices_of(on)
    wanted = asked_trials(asked)
    data = wanted.trials[0].config.data
    field_shape, shape_known = field_shape_of(data)

    def row_seconds(config: Config, members: int, more_reg: int) -> float:
        return device.row_seconds(config, field_shape, members=members, more_reg=more_reg)

    demand = demand_of(wanted, priced_rows(row_seconds))
    for cohort in demand.cohorts:
        _check_fits(cohort.config, field_shape, device)
    load = load_of(demand.cohorts, demand.rows, field_shape, device, compiled=compiled)
    if load.replicas > _MOST_REPLICAS:
        raise InputError(f"seeds is {asked.seeds}: makes {load.replicas} replicas; a plan has at most {_MOST_REPLICAS}")
    planner = _Planner(load, risks)
    ways = planner.ways(devices)
    best = planner.best(devices)
    return {
        "what": asked.what,
        "device": device.kind,
        "devices": devices,
        "rows": {"asked": demand.asked, "left": demand.left},
        "replicas": load.replicas,
        "scenario": data.scenario,
        "field_shape": list(field_shape),
        "field_shape_known": shape_known,
        "compiled": compiled,
        "rates_off_by": list(device.off),
        "measured_on": device.processor,
        "processor_here": describe_processor() if device.processor else None,
        "memory_of_device": device.around.memory,
        "way": best.way.name,
        "jobs": planner.described(best.way.packing),
        **planner.summary(best, devices),
        "ways": [{"name": run.way.name, "flags": run.way.flags} | planner.summary(run, devices) for run in ways],
        "by_devices": planner.by_devices(devices, curve=curve),
        "enough_devices": planner.enough(devices),
        "risks": {known.name: getattr(risks, known.name) for known in dataclasses.fields(Risks)},
    }


def _check_fits(config: Config, field_shape: tuple[int, ...], device: Device) -> None:
    """Raise InputError if a single replica does not fit into the memory of a device."""
    held = device.held_bytes(config, field_shape, 1)
    if held > device.around.memory:
        raise InputError(
            f"on is {device.kind}: one replica of width {config.model.width} on {math.prod(field_shape)} values takes"
            f" about {held / 2**30:.1f} GiB; the device has {device.around.memory / 2**30:.1f}"
        )


class _Run(NamedTuple):
    """A way to run a sweep, and its outcome."""

    way: Way
    outcome: dict[str, Any]

    @property
    def merit(self) -> tuple[float, float]:
        """The share of jobs given up, then the time: a way that gives jobs up may end soon, but is incomplete."""
        given_up = self.outcome["given_up"]
        share = given_up / self.way.packing.num_jobs if given_up >= _GIVEN_UP else 0.0
        return share, self.outcome["seconds"]


class _Planner:
    """Ways to do one load on any number of devices; each number is computed once."""

    def __init__(self, load: Load, risks: Risks):
        self._load, self._risks = load, risks
        self._useful = load.useful()
        self._found: dict[int, list[_Run]] = {}

    def ways(self, devices: int) -> list[_Run]:
        """Return all ways with their outcomes."""
        if devices not in self._found:
            ways = ways_to_run(self._load, devices)
            self._found[devices] = [_Run(way, self._outcome(way.packing, devices)) for way in ways]
        return self._found[devices]

    def best(self, devices: int) -> _Run:
        """Return the way that ends first."""
        return min(self.ways(devices), key=lambda run: run.merit)

    def described(self, packing: Packing) -> list[dict[str, Any]]:
        """Return the jobs of a packing, equal ones together."""
        described = []
        # The last group may be rows without training.
        for jobs, group in zip(packing.jobs, packing.groups, strict=False):
            cohort = self._load.cohorts[jobs.cohort]
            share = math.ceil(jobs.replicas / packing.devices_each)
            described.append(
                {
                    "label": cohort.label,
                    "steps": round(cohort.config.train.steps * cohort.left),
                    "number": jobs.number,
                    "replicas": jobs.replicas,
                    "seconds": group.seconds,
                    "seconds_to_compile": group.new,
                    "bytes": self._load.device.held_bytes(cohort.config, self._load.field_shape, share),
                }
            )
        return described

    def summary(self, run: _Run, devices: int) -> dict[str, Any]:
        """Return the results of a way, and how the time of the devices is spent."""
        packing, outcome = run.way.packing, run.outcome
        whole = devices * outcome["seconds"]
        busy, setup = packing.schedule.busy, packing.schedule.setup
        parts = {"useful": self._useful, "narrow": max(0.0, busy - self._useful), "setup": setup}
        parts["idle"] = max(0.0, whole - sum(parts.values()))
        return {
            "num_jobs": packing.num_jobs,
            "widest": max((jobs.replicas for jobs in packing.jobs), default=0),
            "bytes_per_job": max((jobs["bytes"] for jobs in self.described(packing)), default=0.0),
            **outcome,
            "device_hours": whole / 3600,
            "efficiency": self._useful / whole,
            "shares": {name: seconds / whole for name, seconds in parts.items()},
        }

    def _outcome(self, packing: Packing, devices: int) -> dict[str, Any]:
        """Return when a packing ends: median and 95% band of simulated runs, or as scheduled without trouble."""
        trouble = _trouble(self._risks, self._load, packing.devices_each)
        if trouble.is_none:
            seconds = packing.schedule.makespan
            return {"seconds": seconds, "band": [seconds, seconds], "failures": 0.0, "given_up": 0.0, "runs": 0}
        runs = self._risks.runs or int(np.clip(_EVENTS / max(packing.num_jobs, 1), *_RUNS))
        draw = np.random.default_rng(self._risks.seed)
        around = self._load.device.around
        if packing.devices_each == devices:
            ahead = {"compilers": around.compilers, "crowding": around.crowding}
            once = functools.partial(simulate_one_process, packing.groups, start=around.start, **ahead)
        else:
            once = functools.partial(simulate, packing.groups, devices, start=started(self._load, devices))
        simulated = [once(trouble=trouble, draw=draw) for _ in range(runs)]
        low, seconds, high = np.quantile([run.makespan for run in simulated], (0.025, 0.5, 0.975))
        return {
            "seconds": float(seconds),
            "band": [float(low), float(high)],
            "failures": float(np.mean([run.failures for run in simulated])),
            "given_up": float(np.mean([run.given_up for run in simulated])),
            "runs": runs,
        }

    def by_devices(self, devices: int, *, curve: bool) -> list[dict[str, Any]]:
        """Return time and efficiency with fewer and more devices."""
        counts = {max(1, devices // 4), max(1, devices // 2), devices, 2 * devices, 4 * devices}
        if curve:
            counts |= {round(count) for count in np.geomspace(1, 4 * devices, 12)}
        found = []
        for count in sorted(counts):
            way, outcome = self.best(count)
            efficiency = self._useful / (count * outcome["seconds"])
            found.append({"devices": count, "way": way.name, "efficiency": efficiency} | outcome)
        return found

    def enough(self, devices: int) -> int:
        """Return the least number of devices that would end almost as soon, if nothing goes wrong."""

        @functools.cache
        def seconds(count: int) -> float:
            found = self._found.get(count)
            ways = [run.way for run in found] if found else ways_to_run(self._load, count)
            return min(way.packing.schedule.makespan for way in ways)

        low, high = 0, devices
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if seconds(middle) <= _ENOUGH * seconds(devices) else (middle, high)
        return high
