"""The text that `crossreg plan` prints."""

from typing import Any

from crossreg.progress.display import clock
from crossreg.studies.planning.device_costs import short_name

_MOST_JOBS = 8
_GAIN = 1.2  # speed-up from which twice as many devices are worthwhile
_MOST = 0.4  # share of the time that is called most of it
_SOME = 0.05  # mean number of jobs given up from which they are mentioned


def plan_text(plan: dict[str, Any]) -> str:
    """Return a plan as a few lines and small tables, or as one line if nothing is left to do."""
    if not plan["replicas"] and not plan["rows"]["left"]:
        return f"{plan['what']}: {_count(plan['rows']['asked'], 'row')}, all finished; {advice(plan)}"
    return "\n".join([*_head(plan), "", *_ways(plan), *_jobs(plan), "", *_devices(plan), "", *_tail(plan)])


def _size(size: float | int) -> str:
    return f"{size / 2**30:.3g} GiB" if size >= 0.1 * 2**30 else f"{size / 2**20:.0f} MiB"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 10 else f"{hours:.2g}"


def _table(rows: list[list[str]]) -> list[str]:
    """Return rows as aligned lines, the first column to the left and the others to the right."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in rows]


def _head(plan: dict[str, Any]) -> list[str]:
    rows, devices = plan["rows"], plan["devices"]
    left = f"{rows['left']:,} of " * (rows["left"] < rows["asked"]) + _count(rows["asked"], "row")
    shape = " × ".join(map(str, plan["field_shape"][1:]))
    lines = [
        f"{plan['what']} on {devices:,} × {plan['device']}: {left}, {_count(plan['replicas'], 'replica')} to train,"
        f" fields of {shape} points",
        f"  {_count(plan['num_jobs'], 'job')} of at most {_size(plan['bytes_per_job'])} on devices of"
        f" {_size(plan['memory_of_device'])}:"
        f" {_time(plan)}, {_hours(plan['device_hours'])} device-hours, efficiency {plan['efficiency']:.0%}",
    ]
    shares, trouble = plan["shares"], " and trouble" * bool(plan["runs"])
    lines.append(
        f"  of the devices' time {shares['useful']:.0%} is useful, {shares['narrow']:.0%} lost to narrow jobs,"
        f" {shares['setup']:.0%} to start and compile, {shares['idle']:.0%} to waiting{trouble}"
    )
    return lines


def _time(plan: dict[str, Any]) -> str:
    low, high = plan["band"]
    return clock(plan["seconds"]) + (f" ({clock(low)} … {clock(high)})" if plan["runs"] else "")


def _ways(plan: dict[str, Any]) -> list[str]:
    if len(plan["ways"]) == 1:
        return []
    any_given_up = any(way["given_up"] >= _SOME for way in plan["ways"])
    rows = [["way to run it", "jobs", "widest", "memory", "time", "device-hours", "efficiency"]]
    rows[0] += ["given up"] * any_given_up
    for way in plan["ways"]:
        mark = "→ " if way["name"] == plan["way"] else "  "
        rows.append(
            [mark + way["flags"], f"{way['num_jobs']:,}", f"{way['widest']:,}", _size(way["bytes_per_job"]), _time(way),
             _hours(way["device_hours"]), f"{way['efficiency']:.0%}", *[f"{way['given_up']:.1f}"] * any_given_up]
        )  # fmt: skip
    return [*_table(rows), ""]


def _jobs(plan: dict[str, Any]) -> list[str]:
    rows = [["jobs", "number", "replicas", "steps", "each", "to compile"]]
    described = sorted(plan["jobs"], key=lambda jobs: -jobs["number"] * jobs["seconds"])
    for jobs in described[:_MOST_JOBS]:
        times = [clock(jobs["seconds"]), clock(jobs["seconds_to_compile"])]
        rows.append(
            [f"  {jobs['label']}", f"{jobs['number']:,}", f"{jobs['replicas']:,}", f"{jobs['steps']:,}", *times]
        )
    more = len(described) - _MOST_JOBS
    return _table(rows) + [f"  and {more} more"] * (more > 0)


def _devices(plan: dict[str, Any]) -> list[str]:
    rows = [["devices", "time", "device-hours", "efficiency"]]
    shown = {max(1, plan["devices"] * n // 4) for n in (1, 2, 4, 8, 16)}
    for one in (one for one in plan["by_devices"] if one["devices"] in shown):
        mark = "→ " if one["devices"] == plan["devices"] else "  "
        hours = one["devices"] * one["seconds"] / 3600
        rows.append([f"{mark}{one['devices']:,}", _time(one), _hours(hours), f"{one['efficiency']:.0%}"])
    return _table(rows)


def _tail(plan: dict[str, Any]) -> list[str]:
    lines = []
    if plan["runs"]:
        risks = plan["risks"]
        said = []
        if risks["straggler_rate"]:
            said.append(f"{risks['straggler_rate']:.1%} of jobs {risks['straggler_slowdown']:g} times as long")
        if risks["failures_per_hour"]:
            said.append(f"{risks['failures_per_hour']:g} failures per device and hour ({plan['failures']:.1f} in all)")
        lines.append(f"median and 95% band of {plan['runs']} simulated runs: {', '.join(said)}")
    if not plan["field_shape_known"]:
        lines.append(
            f"no data of {plan['scenario']} are cached here: fields are assumed to have APEBench's default size"
        )
    typical, largest = plan["rates_off_by"]
    measured, here = plan["measured_on"], plan["processor_here"]
    device = plan["device"] if measured is None else f"{plan['device']} ({measured})"
    lines.append(f"by rates measured on {device}, off by {typical:.0%} in the median and {largest:.0%} at most")
    if measured != here:
        lines.append(f"this machine has another processor ({here}), on which times differ")
    return [*lines, advice(plan)]


def advice(plan: dict[str, Any]) -> str:
    """Return one line that says what to change, if anything."""
    devices, enough, name = plan["devices"], plan["enough_devices"], short_name(plan["device"])
    if not plan["replicas"]:
        return "nothing is left to train" + " or to score" * (not plan["rows"]["left"])
    if plan["given_up"] >= _SOME:
        return (
            f"about {plan['given_up']:.1f} jobs are given up: save more often (`save_every`), or allow more `retries`"
        )
    more = next(one for one in plan["by_devices"] if one["devices"] == 2 * devices)
    if enough <= 0.9 * devices:
        said = f"{_count(enough, 'device')} would end at most 5% later (`on={name}:{enough}`)"
        if plan["seconds"] / more["seconds"] > _GAIN:
            return f"{said}, {more['devices']:,} {plan['seconds'] / more['seconds']:.1f} times as fast"
        why = "most of the time is start and compilation" if plan["shares"]["setup"] > _MOST else "the jobs are few"
        return f"{said}, and more than {devices:,} gain little: {why}"
    gain = plan["seconds"] / more["seconds"]
    if gain < _GAIN:
        return f"twice as many devices would end only {gain:.2f} times as fast"
    return f"twice as many devices would end {gain:.1f} times as fast, at {more['efficiency']:.0%} efficiency"
