"""Settings out of YAML that may hold anything: plain values by name, or one line that says why not.

No JAX here: `crossreg --help` answers at once.
"""

from typing import Any

from crossreg.errors import InputError

LONGEST = 2**16
_DEEPEST = 20
_MOST_VALUES = 5000


def parse_settings(text: bytes, where: str) -> Any:
    """What YAML says, without aliases, which grow without bound, tags, names that stand twice, or great depth.

    Nothing that is written here has any of them.
    """
    import yaml

    if len(text) > LONGEST:
        raise InputError(f"{where}: has more than {LONGEST} bytes; expected some settings")
    # The loader in C takes a tenth of the time: there may be thousands of runs.
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        def construct_mapping(self, node, deep=False):
            values = super().construct_mapping(node, deep)
            if len(values) < len(node.value):
                raise InputError(f"{where}: a name stands twice in line {node.start_mark.line + 1} or below it")
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
    """Refuses what a file of settings never has, before anything is made of it: the loader in C dies of great depth."""
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
