"""`crossreg plan`: jobs, memory, time, device-hours and efficiency on devices that need not be here; nothing is run."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from crossreg.config import Config
from crossreg.errors import InputError
from crossreg.runs.saving import SAVE_EVERY, Saving
from crossreg.studies.planning.demand import Asked, asked_trials, demand_of, field_shape_of, priced_rows
from crossreg.studies.planning.device_costs import Device, devices_of
from crossreg.studies.planning.packing import Load, Packing, Way, load_of, started, ways_to_run
from crossreg.studies.planning.scheduling import Simulated, Trouble, simulate, simulate_one_process

# Devices that would end within this factor are enough.
_ENOUGH = 1.05
_EVENTS = 10**5  # of each way to run it, about a tenth of a second
_RUNS = (5, 100)
_MOST_REPLICAS = 10**8
_GIVEN_UP = 0.5  # jobs on average, from which on a way is not to be trusted


class Risks(NamedTuple):
    """What may go wrong, as the command line has it, and how many runs are simulated; 0: as many as are quick."""

    straggler_rate: float = 0.0
    straggler_slowdown: float = 3.0
    failures_per_hour: float = 0.0
    save_every: float = SAVE_EVERY
    retries: int = 1
    runs: int = 0
    seed: int = 0

    def checked(self) -> "Risks":
        """Itself, if it can be."""
        if not 0 <= self.straggler_rate <= 1:
            raise InputError(f"--straggler-rate {self.straggler_rate}: must be a share of the jobs, in [0, 1]")
        if not 1 <= self.straggler_slowdown < math.inf:
            raise InputError(f"--straggler-slowdown {self.straggler_slowdown}: must be a factor, 1 or more")
        if not 0 <= self.failures_per_hour <= 1000:
            raise InputError(f"--failures-per-hour {self.failures_per_hour}: must lie in 0 … 1000, for one device")
        if not 0 <= self.retries <= 1000:
            raise InputError(f"--retries {self.retries}: must lie in 0 … 1000")
        if not 0 <= self.runs <= 10**5:
            raise InputError(f"--runs {self.runs}: must lie in 0 … 100000")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"--seed {self.seed}: must lie in 0 … 2147483647")
        Saving(self.save_every).checked()
        return self

    def trouble(self, load: Load, devices_each: int) -> Trouble:
        """The same for jobs that each have so many devices: one that fails ends the job."""
        restart = load.device.around.start + max((line.known for line in load.lines), default=0.0)
        return Trouble(
            self.straggler_rate, self.straggler_slowdown, devices_each * self.failures_per_hour / 3600,
            self.save_every, restart, self.retries,
        )  # fmt: skip


def make_plan(
    asked: Asked, on: str, *, risks: Risks | None = None, compiled: bool = False, curve: bool = False
) -> dict[str, Any]:
    """What `crossreg plan` says, as plain values; with `curve`, `by_devices` has the points of a figure."""
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
    replicas = sum(cohort.replicas for cohort in demand.cohorts)
    if replicas > _MOST_REPLICAS:
        raise InputError(f"--seeds {asked.seeds}: makes {replicas} replicas; a plan has at most {_MOST_REPLICAS}")
    load = load_of(demand.cohorts, demand.rows, field_shape, device, compiled=compiled)
    planner = _Planner(load, field_shape, risks)
    ways = planner.ways(devices)
    best = planner.best(devices)
    return {
        "what": asked.what,
        "device": device.kind,
        "devices": devices,
        "rows": {"asked": demand.asked, "left": demand.left},
        "replicas": replicas,
        "scenario": data.scenario,
        "field_shape": list(field_shape),
        "field_shape_known": shape_known,
        "compiled": compiled,
        "rates_off_by": list(device.off),
        "around_estimated": device.estimated,
        "memory_of_device": device.around.memory,
        "way": best.way.name,
        "jobs": planner.described(best.way.packing),
        **planner.summary(best, devices),
        "ways": [{"name": run.way.name, "flags": run.way.flags} | planner.summary(run, devices) for run in ways],
        "by_devices": planner.by_devices(devices, curve=curve),
        "enough_devices": planner.enough(devices),
        "risks": risks._asdict(),
    }


def _check_fits(config: Config, field_shape: tuple[int, ...], device: Device) -> None:
    """Refuses a replica that would not fit into a device alone."""
    held = device.held_bytes(config, field_shape, 1)
    if held > device.around.memory:
        raise InputError(
            f"--on {device.kind}: one replica of width {config.model.width} on {math.prod(field_shape)} values takes"
            f" about {held / 2**30:.1f} GiB; the device has {device.around.memory / 2**30:.1f}"
        )


class _Run(NamedTuple):
    """A way to run it, and how that ends."""

    way: Way
    outcome: dict[str, Any]

    @property
    def merit(self) -> tuple[float, float]:
        """Less is better. A way that gives jobs up ends soon, but not with what was asked for."""
        given_up = self.outcome["given_up"]
        share = given_up / self.way.packing.num_jobs if given_up >= _GIVEN_UP else 0.0
        return share, self.outcome["seconds"]


class _Planner:
    """Ways to do one load on any number of devices, each looked for once."""

    def __init__(self, load: Load, field_shape: tuple[int, ...], risks: Risks):
        self._load, self._shape, self._risks = load, field_shape, risks
        self._useful = load.useful()
        self._found: dict[int, list[_Run]] = {}

    def ways(self, devices: int) -> list[_Run]:
        """All ways, and how each ends."""
        if devices not in self._found:
            ways = ways_to_run(self._load, devices)
            self._found[devices] = [_Run(way, self._outcome(way.packing, devices)) for way in ways]
        return self._found[devices]

    def best(self, devices: int) -> _Run:
        """The way that ends first."""
        return min(self.ways(devices), key=lambda run: run.merit)

    def described(self, packing: Packing) -> list[dict[str, Any]]:
        """The jobs of a packing, equal ones together."""
        described = []
        for jobs, group in zip(packing.jobs, packing.groups, strict=False):  # behind them, rows that need no training
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
                    "bytes": self._load.device.held_bytes(cohort.config, self._shape, share),
                }
            )
        return described

    def summary(self, run: _Run, devices: int) -> dict[str, Any]:
        """What a way gives, and where the time of the devices goes."""
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
        """When it ends: median and 95% band over simulated runs; as scheduled where nothing can go wrong."""
        trouble = self._risks.trouble(self._load, packing.devices_each)
        if trouble.is_none:
            seconds = packing.schedule.makespan
            return {"seconds": seconds, "band": [seconds, seconds], "failures": 0.0, "given_up": 0.0, "runs": 0}
        runs = self._risks.runs or int(np.clip(_EVENTS / max(packing.num_jobs, 1), *_RUNS))
        draw = np.random.default_rng(self._risks.seed)
        simulated = [self._simulated(packing, devices, trouble, draw) for _ in range(runs)]
        low, seconds, high = np.quantile([run.makespan for run in simulated], (0.025, 0.5, 0.975))
        return {
            "seconds": float(seconds),
            "band": [float(low), float(high)],
            "failures": float(np.mean([run.failures for run in simulated])),
            "given_up": float(np.mean([run.given_up for run in simulated])),
            "runs": runs,
        }

    def _simulated(self, packing: Packing, devices: int, trouble: Trouble, draw: np.random.Generator) -> Simulated:
        if packing.devices_each == devices:
            around = self._load.device.around
            ahead = {"compilers": around.compilers, "crowding": around.crowding}
            return simulate_one_process(packing.groups, trouble, draw, start=around.start, **ahead)
        return simulate(packing.groups, devices, trouble, draw, start=started(self._load, devices))

    def by_devices(self, devices: int, *, curve: bool) -> list[dict[str, Any]]:
        """Time and efficiency with fewer and more devices."""
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
        """The least number of devices that would end almost as soon, nothing going wrong."""

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
