"""The settings of a run: as one value, as nested dictionaries, and as the YAML file that stores them.

    __init__.py      Config, its dictionaries and its YAML
    settings.py      its three groups, DataConfig, ModelConfig and TrainConfig; how many reg updates there are
    field_types.py   checks of types and values of fields
    sites.py         names of an FNO's noise sites

May import `errors` and `files`. Imports neither JAX nor NumPy, so that `crossreg --help` answers at once.
"""

import copy
import dataclasses
import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossreg.config.field_types import check, shown, typed
from crossreg.config.settings import OWN_DATA, DataConfig, ModelConfig, TrainConfig
from crossreg.errors import InputError, did_you_mean
from crossreg.files.regular import open_regular
from crossreg.files.yaml_files import LONGEST, parse_settings


@dataclass(frozen=True)
class Config:
    """The settings of a run in three groups, no two of which share a field name.

    Attributes:
        data: Which trajectories are used, how they are split, and what the model sees of them.
        model: Settings of the FNO, its noise sites and its heads.
        train: Settings of training (Algorithm 1).

    Example:
        >>> config = xr.Config(model=xr.ModelConfig(width=16)).replace(steps=1000)
        >>> config.model.width, config.train.steps
        (16, 1000)
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self):
        grows = self.model.lead_growth
        check(
            not grows or self.train.reg_horizon > 1, "lead_growth", grows, "is learned from rollouts: set `reg_horizon`"
        )

    def replace(self, **fields: Any) -> "Config":
        """Return a copy with other values of some settings, of any group.

        Args:
            **fields: Settings by name.

        Returns:
            The changed config; this one stays as it is.

        Raises:
            InputError: If there is no such setting, or a value is not allowed.

        Example:
            >>> config = xr.Config().replace(steps=1000, train_size=20)
            >>> config.train.steps, config.data.train_size
            (1000, 20)
        """
        parts = {}
        for part in dataclasses.fields(self):
            group = getattr(self, part.name)
            kinds = {f.name: f.type for f in dataclasses.fields(group)}
            changes = {name: typed(fields.pop(name), kinds[name], name) for name in list(fields) if name in kinds}
            parts[part.name] = dataclasses.replace(group, **changes) if changes else group
        if fields:
            raise InputError(f"{', '.join(fields)}: no such setting")
        return Config(**parts)


def to_dict(config: Config) -> dict[str, dict[str, Any]]:
    """Return a config as nested dictionaries; tuples become lists, as in YAML."""
    parts = dataclasses.asdict(config)
    return {
        part: {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()} for part, fields in parts.items()
    }


def all_settings(config: Config) -> dict[str, Any]:
    """Return every field of a config by its name, without the groups."""
    return {name: value for part in to_dict(config).values() for name, value in part.items()}


@functools.cache
def _defaults() -> dict[str, Any]:
    return all_settings(Config())


def default_settings() -> dict[str, Any]:
    """Return every field of a config at its default."""
    return copy.deepcopy(_defaults())


def changed_fields(config: Config) -> dict[str, Any]:
    """Return the fields that are not at their defaults; they identify a run, whatever fields later versions add."""
    defaults = _defaults()
    return {name: value for name, value in all_settings(config).items() if value != defaults[name]}


def from_dict(values: Any, *, base: Config | None = None, where: str = "config") -> Config:
    """Return the config that nested dictionaries describe.

    Args:
        values: fields by section and name.
        base: the config that missing fields are taken from; by default all defaults.
        where: what errors call the dictionaries.

    Raises:
        InputError: if a section, a field or a value is not valid.
    """
    config = Config() if base is None else base
    parts = {part.name for part in dataclasses.fields(Config)}
    if not isinstance(values, dict) or not all(isinstance(v, dict) for v in values.values()):
        raise InputError(f"{where}: expected the sections {', '.join(sorted(parts))}")
    changes: dict[str, Any] = {}
    for part, fields in values.items():
        if part not in parts:
            raise InputError(f"{where}: no section {shown(part)}; there are {', '.join(sorted(parts))}")
        known = {f.name: f for f in dataclasses.fields(getattr(config, part))}
        for name, value in fields.items():
            if name not in known:
                raise InputError(f"{where}: {part} has no setting {shown(name)}")
            changes[name] = typed(value, known[name].type, f"{where}: {part}.{name}")
    if changes.get("data") is not None and config.data.data is None:
        changes = OWN_DATA | changes
    return config.replace(**changes)


def typed_field(name: str, value: Any, where: str) -> Any:
    """Return a value that YAML has read as the type of its config field."""
    kinds = {known.name: known.type for group in vars(Config()).values() for known in dataclasses.fields(group)}
    if name in kinds:
        return typed(value, kinds[name], where)
    hint = did_you_mean(name, kinds, "; `crossreg train --help` lists them")
    raise InputError(f"{where}: no such setting{hint}")


def to_yaml(config: Config) -> str:
    """Return all settings of a run as YAML, as its folder stores them."""
    import yaml

    return yaml.safe_dump(to_dict(config), sort_keys=False)


def load_stored(path: Path) -> Config:
    """Read the settings of a run folder, where no link to another file is followed."""
    return _load(path, None, follow_links=False)


def load_yaml(path: Path, *, base: Config | None = None) -> Config:
    """Read settings from a file that a user names; missing ones are taken from `base`."""
    return _load(path, base, follow_links=True)


def _load(path: Path, base: Config | None, *, follow_links: bool) -> Config:
    try:
        with path.open("rb") if follow_links else open_regular(path) as file:
            text = file.read(LONGEST + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    return from_dict(parse_settings(text, str(path)), base=base, where=str(path))
