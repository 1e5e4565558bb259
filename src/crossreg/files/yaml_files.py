"""Reading of settings in YAML, which may hold anything: plain values by name, or a one-line error.

Does not import JAX, so that `crossreg --help` answers at once.
"""

from typing import Any

from crossreg.errors import InputError

LONGEST = 2**16
_DEEPEST = 20
_MOST_VALUES = 5000


def parse_settings(text: bytes, where: str) -> Any:
    """Parse YAML; files that crossreg writes pass all checks.

    Raises:
        InputError: if the text is not YAML, is very long or deep, has aliases, which can grow without bound, tags, or a
            name twice.
    """
    import yaml

    if len(text) > LONGEST:
        raise InputError(f"{where}: has more than {LONGEST} bytes; expected a short file of settings")
    # The loader in C is ten times faster: there may be thousands of runs.
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        def construct_mapping(self, node, deep=False):
            values = super().construct_mapping(node, deep)
            if len(values) < len(node.value):
                raise InputError(f"{where}: a name appears twice, in line {node.start_mark.line + 1} or below")
            return values

    try:
        _check_plain(yaml, yaml.parse(text, Loader=base), where)
        return yaml.load(text, Loader=Loader)
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        reason = str(error).splitlines() or ["unknown reason"]
        raise InputError(f"{where}: not YAML ({reason[0]})") from error


def _check_plain(yaml: Any, events: Any, where: str) -> None:
    """Raise InputError about what settings never have, before they are loaded: great depth crashes the loader in C."""
    depth = 0
    for count, event in enumerate(events):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise InputError(f"{where}: has an alias in line {line}; expected plain values")
        if getattr(event, "tag", None) is not None:
            raise InputError(f"{where}: has a tag in line {line}; expected plain values")
        if depth > _DEEPEST or count > _MOST_VALUES:
            raise InputError(f"{where}: has more than {_DEEPEST} levels or {_MOST_VALUES} values; expected settings")
