"""A page names the files that runs were trained on, and not where they are: it is made to be sent to others.

The whole path stays in the run folder, which needs it to find the data again.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from crossreg.report.page.folders import Found


def data_names(found: Found) -> dict[str, str]:
    """What each file of own data is called: by its name, with as many folders before it as tell two files apart."""
    settings = [*(sweep.asked.get("config") for sweep in found.sweeps), *(item.settings for item in found.unfinished)]
    paths = [run.config.data.data for run in found.runs]
    paths += [part.get("data", {}).get("data") for part in settings if isinstance(part, dict) and _has_section(part)]
    paths += [path for sweep in found.sweeps for row in sweep.rows for path in _paths_of(row)]
    return _short(path for path in paths if isinstance(path, str))


def _has_section(settings: Mapping[str, Any]) -> bool:
    return isinstance(settings.get("data", {}), dict)


def _paths_of(row: Mapping[str, Any]) -> Iterator[Any]:
    for part in ("settings", "changes"):
        if isinstance(row.get(part), dict):
            yield row[part].get("data")


def _short(paths: Iterable[str]) -> dict[str, str]:
    parts = {path: PurePath(path).parts for path in paths}

    def ending(path: str, count: int) -> tuple[str, ...]:
        return parts[path][-count:]

    found = {}
    for path in parts:
        alike = [other for other in parts if other != path]
        count = 1
        while count < len(parts[path]) and any(ending(other, count) == ending(path, count) for other in alike):
            count += 1
        found[path] = "/".join(ending(path, count)) or path
    return found


def with_names(found: Found, names: Mapping[str, str]) -> Found:
    """What was found, with names in place of paths."""
    if not names:
        return found

    def config(own):
        path = own.data.data
        data = dataclasses.replace(own.data, data=path if path is None else names[path])
        return dataclasses.replace(own, data=data)

    return dataclasses.replace(
        found,
        runs=[dataclasses.replace(r, config=config(r.config), row=_renamed(r.row, names)) for r in found.runs],
        references=_renamed(found.references, names),
        sweeps=[
            dataclasses.replace(s, asked=_renamed(s.asked, names), rows=_renamed(s.rows, names)) for s in found.sweeps
        ],
        unfinished=[
            dataclasses.replace(u, why=in_words(u.why, names), settings=_renamed(u.settings, names))
            for u in found.unfinished
        ],
        problems=[(name, in_words(why, names)) for name, why in found.problems],
    )


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Nested values with every path by its name."""
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_renamed(item, names) for item in value)
    return names.get(value, value) if isinstance(value, str) else value


def in_words(text: str, names: Mapping[str, str]) -> str:
    """A reason with names in place of paths, the longest first."""
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(path, names[path])
    return text
