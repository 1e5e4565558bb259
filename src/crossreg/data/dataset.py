"""The three splits of a run: `Data`, its calibration part, and whether a split has anything to learn from."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Generic, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from crossreg.config import DataConfig
from crossreg.data.pairs import AbstractPairs, GridPairs, Some
from crossreg.errors import InputError

_CALIBRATION_SHARE = 0.3
# Values that `unmeasured` looks at together.
_VALUES = 2**20
SplitName = Literal["train", "reg", "test", "calibration"]


@dataclasses.dataclass(frozen=True, eq=False)
class Data(Generic[Some]):
    """The three splits of a run. `load` makes them.

    Attributes:
        train: Pairs that θ and ψ learn from.
        reg: Pairs that ρ learns from.
        test: Pairs that are only scored.
        digest: The SHA-256 that the data are recognised by.
        calibration: The part of reg that was split off for calibration; None if there is none.
        names: Names of the channels, where the data have them.
        axes: Letters of the axes in the file, as in "btyx".
        config: The settings that they were loaded with, where `load` made them.

    Example:
        ```python
        data = xr.load(np.load("flow.npy"))
        data.train.field_shape, data.test[:3].x
        ```
    """

    train: Some
    reg: Some
    test: Some
    digest: str
    calibration: Some | None = None
    names: tuple[str, ...] = ()
    axes: str = ""
    config: DataConfig | None = None

    def __repr__(self) -> str:
        channels, *space = self.train.field_shape
        lines = [
            described(self.config, self.names, channels, space),
            *(f"{split}: {_size_of(pairs)}" for split, pairs in self._splits.items()),
            f"mask: {self.train.masking}" if self.train.masking else "",
        ]
        return "\n".join(filter(None, lines))

    @property
    def _splits(self) -> dict[str, Some]:
        each = {"train": self.train, "reg": self.reg, "test": self.test, "calibration": self.calibration}
        return {name: pairs for name, pairs in each.items() if pairs is not None}

    def pairs_of(self, split: AbstractPairs | SplitName) -> AbstractPairs:
        """Return the pairs of a split by its name, and pairs unchanged."""
        if not isinstance(split, str):
            return split
        if split not in self._splits:
            raise InputError(f"{split}: no such split; there are {', '.join(self._splits)}")
        return self._splits[split]

    @property
    def held_out(self) -> Some:
        """The calibration part of reg, where one was split off; all of reg otherwise."""
        return self.reg if self.calibration is None else self.calibration

    @property
    def run_mask(self) -> Bool[Array, "*space"] | None:
        """The mask of the run, where one mask serves all of its pairs."""
        return self.train.run_mask

    def split_off_calibration(self, seed: int) -> "Data[Some]":
        """Return data with 30% of the rows of reg, at least one, moved to `calibration`.

        Args:
            seed: The seed that chooses the rows, so that intervals over seeds include the variation of the choice.

        Returns:
            The data with the calibration part.

        Raises:
            InputError: If reg has fewer than two rows, or one of the two parts has no measured value.
        """
        size = int(self.reg.num_rows)
        if size < 2:
            raise InputError(f"reg_size is {size}: needs 2, one to learn from and one to calibrate on")
        cut = size - max(1, round(_CALIBRATION_SHARE * size))
        order = np.random.default_rng(seed).permutation(size).tolist()
        learned, calibration = (self.reg.of(sorted(part)) for part in (order[:cut], order[cut:]))
        if unmeasured(learned) or unmeasured(calibration):
            raise InputError(
                f"reg_size is {size}: a part of reg, to learn from or to calibrate on, has no measured value; use"
                " more reg trajectories"
            )
        return dataclasses.replace(self, reg=learned, calibration=calibration, config=None)


def _size_of(pairs: AbstractPairs) -> str:
    one, many = ("trajectory", "trajectories") if isinstance(pairs, GridPairs) else ("row", "rows")
    rows = int(pairs.num_rows)
    return f"{rows:,} {one if rows == 1 else many}, {int(pairs.num_pairs):,} pairs"


def described(config: DataConfig | None, names: Sequence[str], channels: int, space: Sequence[int]) -> str:
    """Return in one line what the fields of some data are."""
    name = "" if config is None else f" of {config.scenario}"
    listed = f" ({', '.join(names)})" if names else ""
    return f"Data{name}: {channels} channel{'s' * (channels > 1)}{listed} on {' × '.join(map(str, space))} points"


def unmeasured(pairs: AbstractPairs) -> list[str]:
    """Return which of `input` and `target` is missing in every pair of a split.

    The result is `["pair"]` if both occur but never in one pair, and empty if some pair has both, for large splits in
    files, which are not read, and for empty splits. Pairs are read until one with both is found.
    """
    count = int(pairs.num_pairs)
    if not pairs.may_have_gaps or not count:
        return []
    missing = {"input": True, "target": True, "pair": True}
    chunk = max(1, _VALUES // math.prod(pairs.field_shape))
    for start in range(0, count, chunk):
        # The last pair fills the chunk up: a batch of another size would be compiled again.
        numbers = np.minimum(np.arange(start, start + min(chunk, count)), count - 1)
        batch = pairs.hold(numbers, len(numbers)).gather(jnp.asarray(numbers))
        each = (np.asarray(values).reshape(len(numbers), -1) > 0 for values in (batch.mask, batch.weight))
        seen, counts = (values.any(axis=1) for values in each)
        missing["input"] &= not seen.any()
        missing["target"] &= not counts.any()
        missing["pair"] &= not (seen & counts).any()
        if not missing["pair"]:
            return []
    return [name for name in ("input", "target") if missing[name]] or ["pair"]
