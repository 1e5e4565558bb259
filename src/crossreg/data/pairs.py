"""One-step pairs (x_t, x_{t+1}) of a split, as the model sees them.

Nothing is copied per pair: pairs are numbered, and a batch gathers what it needs. A batch
depends on a key alone, so training has no loader state.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from crossreg.config import DataConfig
from crossreg.data.apebench import load_trajectories
from crossreg.data.observation import draw_mask, draw_masks
from crossreg.data.split import Split, split_trajectories
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.streams import MASK_STREAM

_KEPT_SHARE = 0.3


class Batch(NamedTuple):
    """Inputs, targets, which points of the inputs are seen, and which target points count."""

    x: Float[Array, "batch in *space"]
    y: Float[Array, "batch channel *space"]
    mask: Bool[Array, "batch 1 *space"]
    weight: Float[Array, "batch #channel *#space"]


class Pairs(eqx.Module):
    """The one-step pairs of some trajectories under an observation mask.

    `rows` are the trajectories in use. Only the first `num_trajectories` of them count: splits
    of different sizes stack into one replica axis by padding `rows`. `masks` holds one mask, one
    per row, or one per pair, as `mask_per` says.
    """

    trajectories: Float[Array, "trajectory time channel *space"]
    rows: Int[Array, " row"]
    num_trajectories: Int[Array, ""]
    masks: Bool[Array, "mask *space"]
    observed_fraction: Float[Array, ""]
    mask_per: Literal["run", "trajectory", "pair", "step"] = eqx.field(static=True)
    mask_channel: bool = eqx.field(static=True)
    score_on: Literal["all", "observed"] = eqx.field(static=True)

    @property
    def horizon(self) -> int:
        """Pairs per trajectory."""
        return self.trajectories.shape[1] - 1

    @property
    def max_pairs(self) -> int:
        """Pairs, those of padding rows included."""
        return self.rows.shape[-1] * self.horizon

    @property
    def num_pairs(self) -> Int[Array, ""]:
        """Pairs that count."""
        return self.num_trajectories * self.horizon

    def gather(self, index: Int[Array, " batch"], *, mask_key: PRNGKeyArray | None = None) -> Batch:
        """The pairs of the given numbers; pair i is step i % horizon of row i // horizon.

        Under `mask_per="step"`, `mask_key` draws new masks; without it each pair has a fixed one.
        """
        row, time = index // self.horizon, index % self.horizon
        x = self.trajectories[self.rows[row], time]
        y = self.trajectories[self.rows[row], time + 1]
        mask = self._masks(index, row, mask_key)[:, None]
        seen = mask.astype(x.dtype)
        x = x * seen
        if self.mask_channel:
            x = jnp.concatenate([x, jnp.broadcast_to(seen, (x.shape[0], 1, *x.shape[2:]))], axis=1)
        counts = (index < self.num_pairs).astype(x.dtype).reshape(-1, *(1,) * (y.ndim - 1))
        return Batch(x, y, mask, counts * seen if self.score_on == "observed" else counts)

    def sample(self, key: PRNGKeyArray, batch_size: int) -> Batch:
        """A mini-batch, drawn uniformly with replacement."""
        index_key, mask_key = jax.random.split(key)
        index = jax.random.randint(index_key, (batch_size,), 0, self.num_pairs)
        return self.gather(index, mask_key=mask_key)

    def of(self, numbers: Sequence[int]) -> "Pairs":
        """The pairs of some rows, by their numbers, seen under the same masks."""
        index = np.asarray(numbers)
        masks = self.masks
        if self.mask_per == "trajectory":
            masks = masks[index]
        elif self.mask_per != "run":
            masks = masks[(index[:, None] * self.horizon + np.arange(self.horizon)).ravel()]
        return eqx.tree_at(
            lambda p: (p.rows, p.num_trajectories, p.masks),
            self,
            (self.rows[index], jnp.full_like(self.num_trajectories, index.size), masks),
        )

    def _masks(self, index, row, mask_key) -> Bool[Array, "batch *space"]:
        space = self.masks.shape[1:]
        if self.mask_per == "step" and mask_key is not None:
            keys = jax.random.split(mask_key, index.shape[0])
            return jax.vmap(lambda k: draw_mask(k, space, self.observed_fraction))(keys)
        number = {"run": jnp.zeros_like(index), "trajectory": row, "pair": index, "step": index}
        return self.masks[number[self.mask_per]]


class Data(NamedTuple):
    """The three splits of a run; `kept` is a part of reg that was taken out of it, where one was."""

    train: Pairs
    reg: Pairs
    test: Pairs
    digest: str
    kept: Pairs | None = None

    @property
    def unseen(self) -> Pairs:
        """Held-out pairs that nothing learns from, once `keep_part_of_reg` was asked for; reg itself before."""
        return self.reg if self.kept is None else self.kept

    def keep_part_of_reg(self, seed: int) -> "Data":
        """Takes 30% of the reg trajectories, at least one, out of reg; the seed says which.

        One part for all seeds would be one draw of few trajectories, and no interval over seeds would know of it.
        """
        size = int(self.reg.num_trajectories)
        if size < 2:
            raise InputError(f"--reg-size {size}: needs 2 trajectories, one to learn from and one to calibrate on")
        cut = size - max(1, round(_KEPT_SHARE * size))
        order = np.random.default_rng(seed).permutation(size).tolist()
        return self._replace(reg=self.reg.of(sorted(order[:cut])), kept=self.reg.of(sorted(order[cut:])))

    @property
    def run_mask(self) -> Bool[Array, "*space"] | None:
        """The mask of the run, where the run has just one."""
        return self.train.masks[0] if self.train.mask_per == "run" else None


def load(scenario: str = "diff_ks", **fields) -> Data:
    """The train, reg and test pairs of an APEBench scenario.

    `fields` are those of [`DataConfig`][]: `load("diff_ks", train_size=20, observed_fraction=0.4)`.
    """
    return load_data(DataConfig(scenario=scenario, **fields))


def check_split(config: DataConfig) -> Split:
    """The trajectories of each split; sizes that the pools do not have are refused."""
    return split_trajectories(config.train_size, config.reg_size, config.test_size, one_pool=config.one_pool)


def load_data(config: DataConfig) -> Data:
    """The pairs that a config describes, generated if they are not cached."""
    # The split is checked before data are made for it.
    check_split(config)
    return make_data(load_trajectories(config), config)


def make_data(trajectories: Trajectories, config: DataConfig) -> Data:
    """Splits, observes and pairs trajectories that are already there."""
    split = check_split(config)
    pool, test = jnp.asarray(trajectories.train), jnp.asarray(trajectories.test)
    for name, rows, array in (("train", split.train, pool), ("reg", split.reg, pool), ("test", split.test, test)):
        if rows and rows[-1] >= array.shape[0]:
            raise InputError(
                f"--{name}-size {len(rows)}: needs trajectories up to number {rows[-1]}, the data have {array.shape[0]}"
            )
    key = jax.random.fold_in(jax.random.key(config.mask_seed), MASK_STREAM)

    def pairs(array, rows: range, number: int) -> Pairs:
        horizon = array.shape[1] - 1
        size = len(rows)
        # An empty split is one row that does not count: its scores are NaN, and nothing else is special about it.
        rows = rows or range(1)
        num_pairs = len(rows) * horizon
        count = {"run": 1, "trajectory": len(rows), "pair": num_pairs, "step": num_pairs}[config.mask_per]
        # One mask per run is one for all three splits; otherwise each split has its own.
        mask_key = key if config.mask_per == "run" else jax.random.fold_in(key, number)
        return Pairs(
            array,
            jnp.asarray(list(rows), jnp.int32),
            jnp.asarray(size, jnp.int32),
            draw_masks(mask_key, count, array.shape[3:], config.observed_fraction),
            jnp.asarray(config.observed_fraction, array.dtype),
            config.mask_per,
            config.mask_channel,
            config.score_on,
        )

    return Data(pairs(pool, split.train, 0), pairs(pool, split.reg, 1), pairs(test, split.test, 2), trajectories.digest)


def stack_pairs(pairs: list[Pairs]) -> Pairs:
    """Splits of several replicas as one `Pairs` with a leading replica axis, `rows` and `masks` padded.

    All share one array of trajectories, which gets no such axis (see `replica_axes`).
    """
    first = pairs[0]
    if any(p.trajectories.shape != first.trajectories.shape for p in pairs):
        raise ValueError("replicas must share one array of trajectories")
    num_rows = max(p.rows.shape[0] for p in pairs)
    num_masks = max(p.masks.shape[0] for p in pairs)

    def pad(array, size):
        return jnp.pad(array, [(0, size - array.shape[0])] + [(0, 0)] * (array.ndim - 1), mode="edge")

    padded = [
        eqx.tree_at(
            lambda p: (p.rows, p.masks, p.trajectories), p, (pad(p.rows, num_rows), pad(p.masks, num_masks), None)
        )
        for p in pairs
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
    return eqx.tree_at(lambda p: p.trajectories, stacked, first.trajectories, is_leaf=lambda n: n is None)


def replica_axes(pairs: Pairs) -> Pairs:
    """The `in_axes` that vmap stacked pairs over replicas: all but the trajectories."""
    axes = jax.tree.map(lambda _: 0, pairs)
    return eqx.tree_at(lambda p: p.trajectories, axes, None)
