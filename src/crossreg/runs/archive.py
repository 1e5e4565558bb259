"""The archive of a sweep: models and histories of its finished programs, looked up by training."""

from pathlib import Path
from typing import Any

import equinox as eqx

from crossreg.data.units import Units
from crossreg.nn.build import model_like
from crossreg.nn.surrogate import Surrogate
from crossreg.progress.history import read_history
from crossreg.runs.programs import Finished, read_programs
from crossreg.runs.safeguards.manifest import check_files


class Archive:
    """The finished programs of a sweep's folder, by the keys of their trainings.

    Example:
        ```python
        archive = Archive(folder)
        if key in archive:
            lines = archive.history(key)
        ```
    """

    def __init__(self, folder: Path):
        self._folder = folder
        done = [program for program in read_programs(folder) if program.is_done(folder)]
        self._places = {key: (program, i) for program in done for i, key in enumerate(program.trainings)}
        self._histories: dict[str, list[dict[str, Any]]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def history(self, key: str) -> list[dict[str, Any]]:
        """Return the history of a training: one dictionary per evaluation on the monitored split."""
        program, _ = self._places[key]
        if program.name not in self._histories:
            check_files(self._folder, (), growing=[program.name_of(".jsonl")])
            self._histories[program.name] = read_history(program.file(self._folder, ".jsonl"))
        return [line for line in self._histories[program.name] if line["training"] == key]

    def model(self, key: str, channels: int, space: tuple[int, ...], units: Units | None = None) -> Surrogate:
        """Return the model of a training at its last step.

        Args:
            key: The key of the training.
            channels: The number of channels of a field.
            space: The number of points along each axis.
            units: The units of your data.
        """
        program, replica = self._places[key]
        config = program.trainings[key].config
        like = model_like(config.model, channels + config.data.mask_channel, (channels, *space), units)
        arrays, static = eqx.partition(like, lambda leaf: hasattr(leaf, "dtype"))
        stored = program.load(self._folder, Finished(arrays, None, None, None), replica=replica)
        return eqx.combine(stored.last, static)
