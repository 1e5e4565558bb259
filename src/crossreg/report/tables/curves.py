"""Lines that belong in one plot of curves: those of regimes that differ in a single field.

The figures of a sweep and of the page are grouped here, so that both show the same.
"""

from collections.abc import Sequence

from crossreg.report.tables.comparison import Line, fair_group, regimes, setting_of, varying

MOST_CURVES = 4  # plots over one field


def curve_groups(lines: Sequence[Line], field: str) -> list[list[Line]]:
    """Return groups of lines whose regimes differ in `field` alone, the groups with the most values of it first.

    For each method and regime there is one line, that of `fair_group`.
    """
    groups: dict[str, list[Line]] = {}
    for line in (line for part in regimes(lines) for line in fair_group(part)):
        if field in line.regime:
            others = {k: v for k, v in line.regime.items() if k != field}
            groups.setdefault(str(sorted(others.items(), key=str)), []).append(line)
    varied = [part for part in groups.values() if _values(part, field) > 1]
    return sorted(varied, key=lambda part: -_values(part, field))[:MOST_CURVES]


def _values(part: Sequence[Line], field: str) -> int:
    return len({line.regime[field] for line in part})


def fixed_part(line: Line, field: str, lines: Sequence[Line]) -> str:
    """Return in words the rest of a line's regime, which is fixed along a curve over `field`."""
    parts = {
        "observed_fraction": f"{line.regime['observed_fraction']:g} observed",
        "train_size": f"{line.split[0]} trajectories",
        "steps": f"{line.regime['steps']:,} steps" if "steps" in varying(lines) else "",
        "others": setting_of(line.regime),
    }
    skipped = {field} | ({"train_size"} if field == "total" or "total" in line.regime else set())
    return ", ".join(text for name, text in parts.items() if name not in skipped and text)
