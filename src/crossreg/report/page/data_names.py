"""Names for the files that runs were trained on: a page is made to be sent to others, and says nothing of its folders.

The whole path stays in the run folder, which needs it to find the data again.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from crossreg.report.page.folders import Found
from crossreg.runs.kinds import sections_of

_CHANGED = ("settings", "changes")


def data_names(found: Found) -> dict[str, str]:
    """Name each data file by its last part, with as many folders before it as tell two files apart."""
    settings = [*(sweep.asked.get("config") for sweep in found.sweeps), *(item.settings for item in found.unfinished)]
    paths = [run.config.data.data for run in found.runs]
    paths += [sections_of(part).get("data", {}).get("data") for part in settings]
    rows = [row for sweep in found.sweeps for row in sweep.rows]
    paths += [part.get("data") for row in rows for name, part in sections_of(row).items() if name in _CHANGED]
    return _short(path for path in paths if isinstance(path, str))


def _short(paths: Iterable[str]) -> dict[str, str]:
    parts = {path: PurePath(path).parts for path in paths}
    found = {}
    for path, own in parts.items():
        others = [other for other in parts if other != path]
        count = 1
        while count < len(own) and any(parts[other][-count:] == own[-count:] for other in others):
            count += 1
        found[path] = "/".join(own[-count:]) or path
    return found


def with_names(found: Found, names: Mapping[str, str]) -> Found:
    """Return what was found, with names in place of paths."""
    if not names:
        return found
    renamed = {name: _renamed(getattr(found, name), names) for name in ("runs", "references", "sweeps", "unfinished")}
    unfinished = [dataclasses.replace(item, why=in_words(item.why, names)) for item in renamed.pop("unfinished")]
    problems = [(name, in_words(why, names)) for name, why in found.problems]
    return dataclasses.replace(found, **renamed, unfinished=unfinished, problems=problems)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return nested values with the name of every path in its place."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **_renamed(fields, names))
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_renamed(item, names) for item in value)
    return names.get(value, value) if isinstance(value, str) else value


def in_words(text: str, names: Mapping[str, str]) -> str:
    """Return a reason with names in place of paths, the longest first."""
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(path, names[path])
    return text
