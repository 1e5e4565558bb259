r"""Optimal transport between a closed surface and the torus grid.

Each cell c of the torus is assigned one vertex e(c) of the surface so that the mean squared distance is minimal,

$$ \min_e \frac1C \sum_c |x_c - y_{e(c)}|^2, \qquad
   |e^{-1}(v)| = k_v \in \{\lfloor C/V \rfloor, \lceil C/V \rceil\}, $$

with C cells, V ≤ C vertices and weights as uniform as whole cells allow. Each vertex owns a cell, so reading a field
on the grid at d(v), the nearest cell of v, inverts the map: e(d(v)) = v.

The $k_v$ are fixed, and with them $\sum |x|^2$ and $\sum |y|^2$. It remains to maximise $\sum_c x_c \cdot y_{e(c)}$.
Neither a shift of the surface nor its scale changes the solution: the points ŷ have mean 0 and mean square 1.

It is solved by an auction (Bertsekas 1988; with several slots per vertex, Bertsekas & Castañon 1989). The price $p_v$
of a vertex is that of its cheapest slot. A cell without a vertex bids for the vertex of highest value
$x_c \cdot ŷ_v - p_v$, by the difference to the second best and a slack δ more. It takes the cheapest slot of that
vertex, and the cell that held it bids again. When all cells have a slot, the mean of $x_c \cdot ŷ_{e(c)}$ is within δ
of its maximum. The prices of an auction with a large δ start the next one with a smaller δ. `benchmarks/transport.py`
compares it with other methods.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from crossreg.cars.grid.torus import RADIUS, TUBE_RADIUS, torus
from crossreg.data.cache import read_arrays, read_if_there, write_arrays
from crossreg.data.trajectories import digest
from crossreg.errors import InputError
from crossreg.files.cache_folder import cache_folder

# Part of the keys of cached maps: to be raised by a change that gives other maps, or files of another form.
VERSION = 3

SLACK = 1e-3
PHASES = tuple(SLACK * 5**k for k in (3, 2, 1, 0))
# All phases but the last stop when this share of the cells is left: only their prices are used, and the last few cells
# can take as long as all others.
LEFT_OVER = 0.005

# Cells that bid at once, and cars mapped at once. On a CPU small rounds cost least; on a GPU the number of rounds
# matters, not their size.
CPU_BLOCK, CPU_BATCH = 4, 1
GPU_BLOCK, GPU_BATCH = 128, 16
# Rounds between two checks for the end, for which a GPU waits; rounds without bidders change nothing.
ROUNDS = 8
# Vertex counts are padded to a multiple of this, so that cars of similar size share a compiled program.
PAD = 256


@dataclass(frozen=True)
class Transport:
    """A map between a car and the grid: the vertex of each cell, and the flat index of each vertex's nearest cell."""

    encode: Int[np.ndarray, "grid grid"]
    decode: Int[np.ndarray, " vertex"]

    def cost(self, vertices: Float[np.ndarray, "vertex 3"]) -> float:
        """Return the mean squared distance from a cell to its vertex."""
        cells, _ = torus(len(self.encode))
        return float(np.mean(np.sum((cells - vertices[self.encode]) ** 2, axis=-1)))


def transport(vertices: Float[np.ndarray, "vertex 3"], grid: int) -> Transport:
    """Return the map of one surface, from the cache if possible."""
    return transports([vertices], grid)[0]


def transports(
    surfaces: Sequence[Float[np.ndarray, "_ 3"]], grid: int, progress: Callable[[int, int], None] | None = None
) -> list[Transport]:
    """Return the maps of surfaces, from the cache if possible.

    Args:
        surfaces: the vertices of each surface.
        grid: cells of the torus along each axis.
        progress: called with the numbers of finished and of all maps.

    Raises:
        InputError: if the grid has fewer cells than a surface has vertices, or the vertices are no surface.
    """
    points = [standardised(vertices, grid) for vertices in surfaces]
    paths = [_path(vertices, grid) for vertices in surfaces]
    found = {k: encode for k, path in enumerate(paths) if (encode := read_if_there(path, _read)) is not None}
    report = progress or (lambda done, total: None)
    report(len(found), len(surfaces))
    batch = CPU_BATCH if jax.default_backend() == "cpu" else GPU_BATCH
    sizes = defaultdict(list)
    for k in range(len(surfaces)):
        if k not in found:
            sizes[len(points[k])].append(k)
    for same_size in sizes.values():
        for start in range(0, len(same_size), batch):
            chosen = same_size[start : start + batch]
            # The last batch is filled up, since another batch size would be compiled again.
            filled = chosen + chosen[-1:] * (batch - len(chosen))
            for k, encode in zip(chosen, assign([points[k] for k in filled], grid), strict=False):
                write_arrays(paths[k], {"encode": encode})
                found[k] = encode
            report(len(found), len(surfaces))
    return [Transport(found[k], nearest_cells(found[k], points[k])) for k in range(len(surfaces))]


def standardised(vertices: Float[np.ndarray, "vertex 3"], grid: int) -> Float[np.ndarray, "vertex 3"]:
    """Return the vertices with mean 0 and mean square 1; raise InputError if the grid cannot hold them."""
    if len(vertices) < 4:
        raise InputError(f"a surface of {len(vertices)} vertices: a closed surface has at least 4")
    if len(vertices) > grid**2:
        least = math.isqrt(len(vertices) - 1) + 1
        raise InputError(
            f"grid is {grid}: {grid**2} cells for {len(vertices)} vertices; each needs one, so take {least} or more"
        )
    if not np.isfinite(vertices).all():
        raise InputError("the vertices of a surface: not all are finite numbers")
    centred = vertices.astype(np.float64) - vertices.mean(axis=0, dtype=np.float64)
    scale = np.sqrt(np.mean(np.sum(centred**2, axis=1)))
    if scale == 0:
        raise InputError("the vertices of a surface: all are the same point")
    return centred / scale


def nearest_cells(
    encode: Int[np.ndarray, "grid grid"], points: Float[np.ndarray, "vertex 3"]
) -> Int[np.ndarray, " vertex"]:
    """Return the flat index of the nearest of each vertex's cells."""
    cells, _ = torus(len(encode))
    distance = np.sum((cells - points[encode]) ** 2, axis=-1).ravel()
    by_vertex = np.lexsort((distance, encode.ravel()))
    _, first = np.unique(encode.ravel()[by_vertex], return_index=True)
    return by_vertex[first].astype(np.int32)


# --- The auction


def capacities_of(num_cells: int, num_vertices: int) -> Int[np.ndarray, " vertex"]:
    """Return the number of cells of each vertex; vertices with an additional cell are spread over the indices."""
    return np.diff(np.arange(num_vertices + 1) * num_cells // num_vertices)


def scattered(num_cells: int) -> Int[np.ndarray, " cell"]:
    """Return an order in which successive cells are far apart, so that they bid for different vertices."""
    step = round(num_cells * (math.sqrt(5) - 1) / 2)
    while math.gcd(step, num_cells) > 1:
        step += 1
    return np.arange(num_cells) * step % num_cells


def _block() -> int:
    return CPU_BLOCK if jax.default_backend() == "cpu" else GPU_BLOCK


def assign(
    points: Sequence[Float[np.ndarray, "vertex 3"]], grid: int, phases: tuple[float, ...] = PHASES
) -> list[Int[np.ndarray, "grid grid"]]:
    """Return `encode` of standardised surfaces with equal numbers of vertices; `phases` are the successive slacks δ."""
    cells = torus(grid)[0].reshape(-1, 3)
    order = scattered(len(cells))
    capacities = capacities_of(len(cells), len(points[0]))
    padding = -len(points[0]) % PAD
    # A padded point has no slot, so its price is infinite.
    slots = np.arange(capacities.max()) < np.pad(capacities, (0, padding))[:, None]
    padded = np.pad(np.stack(points), ((0, 0), (0, padding), (0, 0))).astype(np.float32)
    assigned = np.asarray(_auctions(padded, slots, cells[order].astype(np.float32), _block(), phases))
    encode = np.empty_like(assigned)
    encode[:, order] = assigned
    return list(encode.reshape(-1, grid, grid))


class _Round(NamedTuple):
    """An auction between two rounds; the number of cells stands for "no cell"."""

    bidders: Int[Array, " block"]
    queue: Int[Array, ""]  # the first cell that has not bid yet
    prices: Float[Array, "point slot"]
    owners: Int[Array, "point slot"]


def _auction(
    points: Float[Array, "point 3"],
    slots: Bool[Array, "point slot"],
    cells: Float[Array, "cell 3"],
    block: int,
    phases: tuple[float, ...],
) -> Int[Array, " cell"]:
    """Return the point of each cell."""
    nobody = len(cells)
    start = _Round(
        jnp.minimum(jnp.arange(block, dtype=jnp.int32), nobody),
        jnp.int32(min(block, nobody)),
        jnp.where(slots, jnp.float32(0), jnp.inf),
        jnp.full(slots.shape, nobody, jnp.int32),
    )

    def phase(
        price: Float[Array, " point"], setting: tuple[Array, Array]
    ) -> tuple[Float[Array, " point"], Int[Array, "point slot"]]:
        slack, left_over = setting
        end = jax.lax.while_loop(
            lambda now: jnp.sum(now.bidders < nobody) + nobody - now.queue > left_over,
            lambda now: jax.lax.fori_loop(0, ROUNDS, lambda _, now: _next_round(points, cells, slack, now), now),
            start._replace(prices=jnp.where(slots, price[:, None], jnp.inf)),
        )
        return end.prices.min(axis=1), end.owners

    left_over = jnp.array([round(LEFT_OVER * nobody)] * (len(phases) - 1) + [0])
    _, owners = jax.lax.scan(phase, jnp.zeros(len(points), jnp.float32), (jnp.array(phases, jnp.float32), left_over))
    index = jnp.arange(len(points), dtype=jnp.int32)[:, None]
    return jnp.zeros(nobody, jnp.int32).at[owners[-1]].set(index, mode="drop")


_auctions = jax.jit(jax.vmap(_auction, in_axes=(0, None, None, None, None)), static_argnums=(3, 4))


def _next_round(
    points: Float[Array, "point 3"], cells: Float[Array, "cell 3"], slack: Float[Array, ""], now: _Round
) -> _Round:
    """Let all bidders bid; the highest bid for a vertex wins, the first of equal bids."""
    nobody, index = len(cells), jnp.arange(len(points), dtype=jnp.int32)
    bidding = now.bidders < nobody
    price = now.prices.min(axis=1)
    position = cells.at[now.bidders].get(mode="clip")
    # Written out, since a GPU rounds a matrix product to fewer digits, and an argmax takes a CPU four times as long.
    # The margin allows for a value that is rounded differently when it is computed again.
    value = sum(position[:, axis, None] * points[:, axis] for axis in range(3)) - price
    best = value.max(axis=1)
    choice = jnp.where(value >= best[:, None] - slack / 10, index, len(points) - 1).min(axis=1)
    second = jnp.where(index == choice[:, None], -jnp.inf, value).max(axis=1)
    bid = jnp.where(bidding, price[choice] + best - second + slack, -jnp.inf)

    place = jnp.arange(len(bid))
    higher = (bid > bid[:, None]) | ((bid == bid[:, None]) & (place < place[:, None]))
    wins = bidding & ~jnp.any((choice == choice[:, None]) & higher, axis=1)
    slot = now.prices[choice].argmin(axis=1)
    bought = (jnp.where(wins, choice, len(points)), slot)  # beyond the last point: no purchase

    # A winner's place goes to the cell it displaced, or to the next in the queue.
    bidders = jnp.where(wins, now.owners[choice, slot], now.bidders)
    idle = bidders == nobody
    waiting = jnp.minimum(now.queue - 1 + jnp.cumsum(idle, dtype=jnp.int32), nobody)
    return _Round(
        jnp.where(idle, waiting, bidders),
        jnp.minimum(now.queue + jnp.sum(idle, dtype=jnp.int32), nobody),
        now.prices.at[bought].set(bid, mode="drop"),
        now.owners.at[bought].set(now.bidders, mode="drop"),
    )


# --- The cache


def _path(vertices: Float[np.ndarray, "vertex 3"], grid: int) -> Path:
    # The map depends on the bids per round: those made on a GPU and on a CPU differ, at about equal cost.
    settings = (VERSION, _block(), PHASES, LEFT_OVER, RADIUS, TUBE_RADIUS)
    key = f"{digest(vertices.astype(np.float64))} {grid} {settings}"
    return cache_folder() / "transport" / f"{hashlib.sha256(key.encode()).hexdigest()}.npz"


def _read(path: Path) -> Int[np.ndarray, "grid grid"]:
    [encode], _ = read_arrays(path, ("encode",), "transport map")
    return encode
