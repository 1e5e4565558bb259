"""The finished programs of a sweep's folder, to look single trainings up in."""

import contextlib
import json
from pathlib import Path
from typing import Any

import equinox as eqx

from crossreg.data.units import Units
from crossreg.files.whole import read_stored
from crossreg.nn.build import model_like
from crossreg.nn.surrogate import Surrogate
from crossreg.runs.manifest import check_files
from crossreg.runs.programs import Finished, Program, read_programs


class Archive:
    """Finished programs, by the keys of their trainings."""

    def __init__(self, folder: Path):
        self._folder = folder
        done = [program for program in read_programs(folder) if program.is_done(folder)]
        self._homes = {key: (program, i) for program in done for i, key in enumerate(program.trainings)}
        self._histories: dict[str, list[dict[str, Any]]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._homes

    def _read_history(self, program: Program) -> list[dict[str, Any]]:
        """The lines of a program; one that a kill cut short is left out."""
        path, lines = program.file(self._folder, ".jsonl"), []
        check_files(self._folder, (), growing=[path.relative_to(self._folder).as_posix()])
        for line in read_stored(path).decode().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
        return lines

    def history(self, key: str) -> list[dict[str, Any]]:
        """One dictionary per evaluation on the monitored split."""
        program, _ = self._homes[key]
        if program.name not in self._histories:
            self._histories[program.name] = self._read_history(program)
        return [line for line in self._histories[program.name] if line["training"] == key]

    def model(self, key: str, channels: int, space: tuple[int, ...], units: Units | None = None) -> Surrogate:
        """The model as it was at its last step."""
        program, replica = self._homes[key]
        config = program.trainings[key].config
        like = model_like(config.model, channels + config.data.mask_channel, (channels, *space), units)
        arrays, static = eqx.partition(like, lambda leaf: hasattr(leaf, "dtype"))
        stored = program.load(self._folder, Finished(arrays, None, None, None), replica=replica)
        return eqx.combine(stored.last, static)
