"""Pairs of input and target of a split, as the model sees them; of trajectories, the one-step pairs (x_t, x_{t+1}).

Nothing is copied per pair: pairs are numbered, and a batch gathers what it needs. A batch
depends on a key alone, so training has no loader state.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from crossreg.config import DataConfig
from crossreg.data.apebench import load_trajectories
from crossreg.data.checks import check_trajectories
from crossreg.data.keys import MASK_STREAM
from crossreg.data.observation import draw_mask, draw_masks
from crossreg.data.split import Split, split_trajectories
from crossreg.data.trajectories import Trajectories
from crossreg.data.units import Units
from crossreg.errors import InputError

_CALIBRATION_SHARE = 0.3
# One for a batch, or one for each of its pairs.
MaskKey = PRNGKeyArray | Key[Array, " batch"] | None


class Batch(NamedTuple):
    """Inputs, targets, which points of the inputs are seen, and which target points count.

    Targets stand at the points of the inputs or, with `at`, at these of them, numbered in row-major order.
    """

    x: Float[Array, "batch in *space"]
    y: Float[Array, "batch channel *points"]
    mask: Bool[Array, "batch 1 *space"]
    weight: Float[Array, "batch #channel *#points"]
    at: Int[Array, "batch point"] | None = None


class AbstractPairs(eqx.Module):
    """The pairs of one split: all that training, scoring and methods know of data.

    `rows` are the trajectories (or cars) in use. Only the first `num_rows` of them count: splits of different sizes
    stack into one replica axis by padding.
    """

    rows: eqx.AbstractVar[Int[Array, " row"]]
    num_rows: eqx.AbstractVar[Int[Array, ""]]
    # The units of the fields, where a network is to see them standardised.
    units: eqx.AbstractVar[Units | None]
    # Names of the arrays that all replicas have in common.
    shared: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def in_channels(self) -> int:
        """Channels that the network reads."""

    @property
    @abstractmethod
    def field_shape(self) -> tuple[int, ...]:
        """Channels that the network gives, and its grid."""

    @property
    @abstractmethod
    def pairs_per_row(self) -> int:
        """Pairs of each row."""

    @abstractmethod
    def gather(self, index: Int[Array, " batch"], *, mask_key: MaskKey = None) -> Batch:
        """The pairs of the given numbers; pair i is of row i // pairs_per_row."""

    @abstractmethod
    def of(self, numbers: Sequence[int]) -> "AbstractPairs":
        """The pairs of some rows, by their numbers."""

    @property
    def max_pairs(self) -> int:
        """Pairs, those of padding rows included."""
        return self.rows.shape[-1] * self.pairs_per_row

    @property
    def num_pairs(self) -> Int[Array, ""]:
        """Pairs that count."""
        return self.num_rows * self.pairs_per_row

    def draw(self, key: PRNGKeyArray, batch_size: int) -> tuple[Int[Array, " batch"], PRNGKeyArray]:
        """The pairs of a mini-batch, drawn uniformly with replacement, and the key of its masks."""
        index_key, mask_key = jax.random.split(key)
        return jax.random.randint(index_key, (batch_size,), 0, self.num_pairs), mask_key

    def sample(self, key: PRNGKeyArray, batch_size: int) -> Batch:
        """A mini-batch, drawn uniformly with replacement."""
        index, mask_key = self.draw(key, batch_size)
        return self.gather(index, mask_key=mask_key)


Some = TypeVar("Some", bound=AbstractPairs)


class Pairs(AbstractPairs):
    """The one-step pairs of some trajectories under an observation mask.

    `masks` holds one mask, one per row, or one per pair, as `mask_per` says. Own data may have a mask of their own,
    `observed`, and with `has_gaps` values that are NaN: these are hidden from the input, and no target.
    """

    trajectories: Float[Array, "trajectory time channel *space"]
    rows: Int[Array, " row"]
    num_rows: Int[Array, ""]
    masks: Bool[Array, "mask *space"]
    observed_fraction: Float[Array, ""]
    mask_per: Literal["run", "trajectory", "pair", "step"] = eqx.field(static=True)
    mask_channel: bool = eqx.field(static=True)
    score_on: Literal["all", "observed"] = eqx.field(static=True)
    observed: Bool[Array, "trajectory time *space"] | None = None
    has_gaps: bool = eqx.field(static=True, default=False)
    units: Units | None = eqx.field(static=True, default=None)
    shared: ClassVar[tuple[str, ...]] = ("trajectories", "observed")

    @property
    def horizon(self) -> int:
        """Pairs per trajectory."""
        return self.trajectories.shape[1] - 1

    @property
    def pairs_per_row(self) -> int:
        return self.horizon

    @property
    def field_shape(self) -> tuple[int, ...]:
        return self.trajectories.shape[2:]

    @property
    def in_channels(self) -> int:
        return self.trajectories.shape[2] + self.mask_channel

    def gather(self, index: Int[Array, " batch"], *, mask_key: MaskKey = None) -> Batch:
        """The pairs of the given numbers; pair i is step i % horizon of row i // horizon.

        Under `mask_per="step"`, `mask_key` draws new masks; without it each pair has a fixed one.
        """
        row, time = index // self.horizon, index % self.horizon
        x = self.trajectories[self.rows[row], time]
        y = self.trajectories[self.rows[row], time + 1]
        mask = self._masks(index, row, mask_key)[:, None]
        if self.observed is not None:
            mask = mask & self.observed[self.rows[row], time][:, None]
        counts = (index < self.num_pairs).astype(x.dtype).reshape(-1, *(1,) * (y.ndim - 1))
        # What is hidden is 0 to the network.
        hidden = 0.0 if self.units is None else self.units.offsets(x.ndim - 2)
        there = mask
        if self.has_gaps:
            # Of a point, the channels that were measured are seen; it counts as observed where all were.
            mask = mask & jnp.all(jnp.isfinite(x), axis=1, keepdims=True)
            counts = counts * jnp.isfinite(y)
            x, y = (jnp.where(jnp.isfinite(field), field, hidden) for field in (x, y))
        x = x * there.astype(x.dtype) if self.units is None else jnp.where(there, x, hidden)
        seen = mask.astype(x.dtype)
        if self.mask_channel:
            x = jnp.concatenate([x, jnp.broadcast_to(seen, (x.shape[0], 1, *x.shape[2:]))], axis=1)
        if self.score_on == "observed":
            counts = counts * seen
            if self.observed is not None:  # the target's own mask too: what was not measured then is no target
                counts = counts * self.observed[self.rows[row], time + 1][:, None]
        return Batch(x, y, mask, counts)

    def known(self, index: Int[Array, " batch"]) -> Bool[Array, "batch channel *space"]:
        """Where the targets of pairs are known, scored or not.

        They are where they were measured. With `score_on="observed"` anything may stand where the files' own mask hides
        a point, so that it is not known there.
        """
        row, time = index // self.horizon, index % self.horizon
        known = jnp.isfinite(self.trajectories[self.rows[row], time + 1])
        if self.score_on == "observed" and self.observed is not None:
            known = known & self.observed[self.rows[row], time + 1][:, None]
        return known

    @property
    def run_mask(self) -> Bool[Array, "*space"] | None:
        """The mask of the run, where the run has just one."""
        return self.masks[0] if self.mask_per == "run" else None

    def of(self, numbers: Sequence[int]) -> "Pairs":
        """The pairs of some rows, by their numbers, seen under the same masks."""
        index = np.asarray(numbers)
        masks = self.masks
        if self.mask_per == "trajectory":
            masks = masks[index]
        elif self.mask_per != "run":
            masks = masks[(index[:, None] * self.horizon + np.arange(self.horizon)).ravel()]
        return eqx.tree_at(
            lambda p: (p.rows, p.num_rows, p.masks),
            self,
            (self.rows[index], jnp.full_like(self.num_rows, index.size), masks),
        )

    def _masks(self, index, row, mask_key) -> Bool[Array, "batch *space"]:
        space = self.masks.shape[1:]
        if self.mask_per == "step" and mask_key is not None:
            keys = mask_key if mask_key.ndim else jax.random.split(mask_key, index.shape[0])
            return jax.vmap(lambda k: draw_mask(k, space, self.observed_fraction))(keys)
        number = {"run": jnp.zeros_like(index), "trajectory": row, "pair": index, "step": index}
        return self.masks[number[self.mask_per]]


@dataclasses.dataclass(frozen=True, eq=False)
class Data(Generic[Some]):
    """The three splits of a run; `calibration` is the part of reg that
    was split off for calibration, where one was.

    `names` are those of the channels, where data have any, and `axes` the letters of the file's axes, as in "btyx".
    """

    train: Some
    reg: Some
    test: Some
    digest: str
    calibration: Some | None = None
    names: tuple[str, ...] = ()
    axes: str = ""

    @property
    def held_out(self) -> Some:
        """The calibration part of reg, where one was split off; all of reg otherwise."""
        return self.reg if self.calibration is None else self.calibration

    def split_off_calibration(self, seed: int) -> "Data[Some]":
        """Takes 30% of the rows of reg, at least one, out of reg; the seed says which.

        One part for all seeds would be one draw of few rows, and no interval over seeds would know of it.
        """
        size = int(self.reg.num_rows)
        if size < 2:
            raise InputError(f"--reg-size {size}: needs 2, one to learn from and one to calibrate on")
        cut = size - max(1, round(_CALIBRATION_SHARE * size))
        order = np.random.default_rng(seed).permutation(size).tolist()
        learned, calibration = (self.reg.of(sorted(part)) for part in (order[:cut], order[cut:]))
        from crossreg.data.files.measured import unmeasured

        if unmeasured(learned) or unmeasured(calibration):
            raise InputError(
                f"--reg-size {size}: a part of reg to learn from, or to calibrate on, has nothing that was measured;"
                " hold out more"
            )
        return dataclasses.replace(self, reg=learned, calibration=calibration)

    @property
    def run_mask(self) -> Bool[Array, "*space"] | None:
        """The mask of the run, where the run has just one."""
        train: Any = self.train
        return getattr(train, "run_mask", None)


def load(scenario: str = "diff_ks", **fields) -> Data[Pairs]:
    """The train, reg and test pairs of an APEBench scenario.

    `fields` are those of [`DataConfig`][]: `load("diff_ks", train_size=20, observed_fraction=0.4)`.
    """
    return load_data(DataConfig(scenario=scenario, **fields))


def check_split(config: DataConfig) -> Split:
    """The trajectories of each split; sizes that the pools, or own files, do not have are refused."""
    if config.data is not None:
        from crossreg.data.files.pool import pool_of

        parts = pool_of(config).parts(config)
        return Split(**{name: range(len(part.samples)) for name, part in parts.items()})
    return split_trajectories(*config.sizes, one_pool=config.one_pool)


def load_data(config: DataConfig) -> Data[Pairs]:
    """The pairs that a config describes: of own files, or of a scenario, generated if they are not cached."""
    if config.data is not None:
        from crossreg.data.files.load import load_files

        return load_files(config)
    # The split is checked before data are made for it.
    check_split(config)
    return make_data(load_trajectories(config), config, check=False)


def trajectories_of(config: DataConfig, *others: DataConfig) -> Trajectories:
    """What the runs of a sweep share, for `make_data`: a scenario's trajectories, or those of own files.

    `others` are the configs of further runs: of own files, what each of them holds counts for the digest.
    """
    if config.data is None:
        return load_trajectories(config)
    from crossreg.data.files.pool import pool_trajectories

    return pool_trajectories(config, *others)


def make_data(trajectories: Trajectories, config: DataConfig, *, check: bool = True) -> Data[Pairs]:
    """Splits, observes and pairs trajectories that are already there, checked unless someone has done so.

    Those of own files are split by the files themselves (`data/files/pool.py`), which must be as they were.
    """
    if config.data is not None:
        from crossreg.data.files.pool import shared_data

        return shared_data(trajectories, config)
    split = check_split(config)
    if check:
        trajectories = check_trajectories(trajectories, split)
    pool, test = jnp.asarray(trajectories.train), jnp.asarray(trajectories.test)
    for name, rows, array in (("train", split.train, pool), ("reg", split.reg, pool), ("test", split.test, test)):
        if rows and rows[-1] >= array.shape[0]:
            raise InputError(
                f"--{name}-size {len(rows)}: needs trajectories up to number {rows[-1]}, the data have {array.shape[0]}"
            )
    return Data(
        make_pairs(pool, split.train, 0, config),
        make_pairs(pool, split.reg, 1, config),
        make_pairs(test, split.test, 2, config),
        trajectories.digest,
    )


def make_pairs(array: Array, rows: range, number: int, config: DataConfig, **own: Any) -> Pairs:
    """The pairs of some rows of an array, as split `number` of a run; `own` are the last fields of [`Pairs`][]."""
    horizon = array.shape[1] - 1
    size = len(rows)
    # An empty split is one row that does not count: its scores are NaN, and nothing else is special about it.
    rows = rows or range(1)
    num_pairs = len(rows) * horizon
    count = {"run": 1, "trajectory": len(rows), "pair": num_pairs, "step": num_pairs}[config.mask_per]
    return Pairs(
        trajectories=array,
        rows=jnp.asarray(list(rows), jnp.int32),
        num_rows=jnp.asarray(size, jnp.int32),
        masks=draw_masks(mask_key_of(config, number), count, array.shape[3:], config.observed_fraction),
        observed_fraction=jnp.asarray(config.observed_fraction, array.dtype),
        mask_per=config.mask_per,
        mask_channel=config.mask_channel,
        score_on=config.score_on,
        **own,
    )


def mask_key_of(config: DataConfig, number: int) -> PRNGKeyArray:
    """The key of a split's masks. One mask per run is one for all three splits; otherwise each split has its own."""
    key = jax.random.fold_in(jax.random.key(config.mask_seed), MASK_STREAM)
    return key if config.mask_per == "run" else jax.random.fold_in(key, number)


def stack_pairs(pairs: Sequence[Some]) -> Some:
    """Splits of several replicas as one with a leading replica axis, arrays padded to the longest.

    What replicas share gets no such axis (see `replica_axes`).
    """
    first = pairs[0]
    shapes = [[array.shape for array in jax.tree.leaves(_shared(p))] for p in pairs]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"replicas must share one array of {', '.join(first.shared)}")

    def stack(*leaves):
        longest = max((leaf.shape[0] for leaf in leaves if leaf.ndim), default=0)
        return jnp.stack([_padded(leaf, longest) for leaf in leaves])

    stacked = jax.tree.map(stack, *(_with_shared(p, [None] * len(p.shared)) for p in pairs))
    return _with_shared(stacked, _shared(first))


def _padded(array: Array, length: int) -> Array:
    """The last row again and again, up to a length; a number stays one."""
    if not array.ndim:
        return array
    return jnp.pad(array, [(0, length - array.shape[0])] + [(0, 0)] * (array.ndim - 1), mode="edge")


def _shared(pairs: AbstractPairs) -> list[Any]:
    return [getattr(pairs, name) for name in pairs.shared]


def _with_shared(pairs: Some, values: Sequence[Any]) -> Some:
    return eqx.tree_at(_shared, pairs, list(values), is_leaf=lambda node: node is None)


def replica_axes(pairs: Some) -> Some:
    """The `in_axes` that vmap stacked pairs over replicas: all but what they share."""
    axes = jax.tree.map(lambda _: 0, pairs)
    return _with_shared(axes, [None] * len(pairs.shared))
