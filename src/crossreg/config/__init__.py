"""A whole run as one value, and as the nested dictionaries and the YAML file that it is stored as.

This module imports neither JAX nor NumPy, so that `crossreg --help` answers at once.
"""

import dataclasses
import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossreg.config.field_types import shown, typed
from crossreg.config.settings import OWN_DATA, DataConfig, ModelConfig, TrainConfig
from crossreg.errors import InputError
from crossreg.files.regular import read_regular
from crossreg.files.yaml_files import LONGEST, parse_settings


@dataclass(frozen=True)
class Config:
    """A whole run: data, model and training. No two groups share a field name."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def replace(self, **fields: Any) -> "Config":
        """A copy with fields of any group changed: `config.replace(steps=1000, train_size=20)`."""
        parts = {}
        for part in dataclasses.fields(self):
            group = getattr(self, part.name)
            kinds = {f.name: f.type for f in dataclasses.fields(group)}
            changes = {name: typed(fields.pop(name), kinds[name], name) for name in list(fields) if name in kinds}
            parts[part.name] = dataclasses.replace(group, **changes) if changes else group
        if fields:
            raise InputError(f"{', '.join(fields)}: no such config field")
        return Config(**parts)


def to_dict(config: Config) -> dict[str, dict[str, Any]]:
    """Plain nested dictionaries; tuples become lists, as in YAML."""
    parts = dataclasses.asdict(config)
    return {
        part: {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()} for part, fields in parts.items()
    }


def all_settings(config: Config) -> dict[str, Any]:
    """Every field of a config by its name, without the groups."""
    return {name: value for part in to_dict(config).values() for name, value in part.items()}


def default_settings() -> dict[str, Any]:
    """Every field of a config at its default."""
    return all_settings(Config())


def changed_fields(config: Config) -> dict[str, Any]:
    """The fields that are not at their defaults: what identifies a run, whatever fields later versions add."""
    defaults = default_settings()
    return {name: value for name, value in all_settings(config).items() if value != defaults[name]}


def from_dict(values: Any, *, base: Config | None = None, where: str = "config") -> Config:
    """A config from nested dictionaries; what is missing comes from `base`."""
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
                raise InputError(f"{where}: {part} has no field {shown(name)}")
            changes[name] = typed(value, known[name].type, f"{where}: {part}.{name}")
    if changes.get("data") is not None and config.data.data is None:
        changes = OWN_DATA | changes
    return config.replace(**changes)


def typed_field(name: str, value: Any, where: str) -> Any:
    """The value of a config field, from what YAML has read."""
    for part in dataclasses.fields(Config):
        for known in dataclasses.fields(part.default_factory):  # pyright: ignore[reportArgumentType]
            if known.name == name:
                return typed(value, known.type, where)
    fields = [f.name for part in dataclasses.fields(Config) for f in dataclasses.fields(part.default_factory)]  # pyright: ignore[reportArgumentType]
    near = difflib.get_close_matches(name, fields, 1)
    hint = f"; did you mean {near[0]}?" if near else "; `crossreg train --help` lists them"
    raise InputError(f"{where}: no such config field{hint}")


def to_yaml(config: Config) -> str:
    """Every setting of a run, as its folder holds them."""
    import yaml

    return yaml.safe_dump(to_dict(config), sort_keys=False)


def save_yaml(config: Config, path: Path) -> None:
    """Writes every setting of a run."""
    path.write_text(to_yaml(config))


def load_stored(path: Path) -> Config:
    """Reads the settings of a run folder, which may not be a link to another file."""
    try:
        text = read_regular(path, LONGEST + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    return from_dict(parse_settings(text, str(path)), where=str(path))


def load_yaml(path: Path, *, base: Config | None = None) -> Config:
    """Reads settings that a user names; what the file leaves out comes from `base`."""
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    return from_dict(parse_settings(text, str(path)), base=base, where=str(path))
