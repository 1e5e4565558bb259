"""Ways to map a car onto the torus grid: time, cost, and how many vertices come back.

    python benchmarks/transport.py [--grid 64] [--cars FOLDER] [--only auction sinkhorn …] [--repeats 3] [--json FILE]

FOLDER holds `reference_transport.npz` (default: the environment variable CROSSREG_CARS, else `../shared/cars`); without
it a made-up body of as many vertices is used. Seconds are the least of the repeats, after one call that compiles, and
CPU the same of all cores together, which other work on the machine changes less. Cost is the mean squared distance from
a cell to its vertex. Back is the share of vertices v with e(d(v)) = v, cells the least and most that a vertex owns.

    auction      what the package uses; on a GPU also a batch of different cars, in seconds for each
    unscaled     the same auction without the phases of larger slack
    assignment   scipy's dense linear_sum_assignment: the least cost
    sparse       exact matching among the k best vertices of each cell under Sinkhorn's prices
    sinkhorn     entropic transport, annealed, warm-started from an eighth of the points; e, d are its largest entries
    bisection    both clouds halved at the median of one axis, down to single points
    swaps        bisection, then swaps of random pairs that lower the cost
    reference    the map stored in the file, at its own grid
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csc_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from crossreg.cars.grid.torus import torus
from crossreg.cars.grid.transport import (
    GPU_BATCH,
    SLACK,
    Transport,
    assign,
    capacities_of,
    nearest_cells,
    scattered,
    standardised,
)

NUM_VERTICES = 3586


def made_up_body() -> np.ndarray:
    """A rounded box of a car's proportions; its points lie on a spiral from nose to tail."""
    k = np.arange(NUM_VERTICES)
    z, turn = 1 - 2 * (k + 0.5) / NUM_VERTICES, np.pi * (1 + np.sqrt(5)) * k
    sphere = np.column_stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z])
    return sphere / np.sum(sphere**6, axis=1, keepdims=True) ** (1 / 6) * [0.9, 0.6, 2.3] + [0, 0.7, 0]


def with_nearest_cells(encode: np.ndarray, points: np.ndarray, grid: int) -> Transport:
    encode = encode.reshape(grid, grid).astype(np.int32)
    return Transport(encode, nearest_cells(encode, points))


def slots_of(num_cells: int, num_points: int) -> np.ndarray:
    """The point of each slot."""
    return np.repeat(np.arange(num_points), capacities_of(num_cells, num_points))


def flat_torus(grid: int) -> np.ndarray:
    return torus(grid)[0].reshape(-1, 3)


def auction(points: np.ndarray, grid: int) -> Transport:
    return with_nearest_cells(assign([points], grid)[0], points, grid)


def unscaled(points: np.ndarray, grid: int) -> Transport:
    return with_nearest_cells(assign([points], grid, (SLACK,))[0], points, grid)


def assignment(points: np.ndarray, grid: int) -> Transport:
    slots = slots_of(grid**2, len(points))
    _, chosen = linear_sum_assignment((flat_torus(grid) @ points.T)[:, slots], maximize=True)
    return with_nearest_cells(slots[chosen], points, grid)


@jax.jit
def anneal(values: jax.Array, prices: jax.Array, temperatures: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sinkhorn in the log domain with uniform weights, one sweep at each temperature: profits of cells, prices."""

    def sweep(state: tuple[jax.Array, jax.Array], temperature: jax.Array):
        _, prices = state
        profits = temperature * jax.nn.logsumexp((values - prices) / temperature, axis=1)
        share = jnp.log(values.shape[1] / values.shape[0])
        prices = temperature * (jax.nn.logsumexp((values - profits[:, None]) / temperature, axis=0) + share)
        return (profits, prices), None

    return jax.lax.scan(sweep, (jnp.zeros(values.shape[0]), prices), temperatures)[0]


def sinkhorn_prices(points: np.ndarray, grid: int, temperatures: np.ndarray) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Values of cells and points, profits, prices."""
    cells = flat_torus(grid)
    few = cells[scattered(len(cells))][::8]
    first = np.geomspace(1, temperatures[0], 60)
    profits, _ = anneal(jnp.asarray(few @ points[::8].T), jnp.zeros(len(points[::8])), jnp.asarray(first))
    # The profits of a few cells give a price to any point.
    prices = first[-1] * jax.nn.logsumexp((few @ points.T - profits[:, None]) / first[-1], axis=0)
    values = jnp.asarray(cells @ points.T)
    return values, *anneal(values, prices, jnp.asarray(temperatures))


def sinkhorn(points: np.ndarray, grid: int) -> Transport:
    values, profits, prices = sinkhorn_prices(points, grid, np.geomspace(1e-2, 1e-4, 120))
    encode = np.asarray(jnp.argmax(values - prices, axis=1)).reshape(grid, grid)
    return Transport(encode, np.asarray(jnp.argmax(values - profits[:, None], axis=0)))


def sparse(points: np.ndarray, grid: int, k: int = 24) -> Transport:
    values, profits, prices = sinkhorn_prices(points, grid, np.geomspace(1e-2, 2e-3, 15))
    reduced = np.asarray(profits[:, None] + prices - values)
    kept = np.zeros(reduced.shape, bool)
    np.put_along_axis(kept, np.argpartition(reduced, k, axis=1)[:, :k], True, axis=1)
    np.put_along_axis(kept, np.argpartition(reduced, k, axis=0)[:k], True, axis=0)
    slots = slots_of(grid**2, len(points))
    # Weight 0 would mean no edge.
    weights = csc_array(np.where(kept, reduced - reduced.min() + 1e-3, 0))[:, slots].tocsr()
    try:
        cell, chosen = min_weight_full_bipartite_matching(weights)
    except ValueError:  # no full matching among so few
        return sparse(points, grid, 2 * k)
    encode = np.empty(grid**2, int)
    encode[cell] = slots[chosen]
    return with_nearest_cells(encode, points, grid)


def bisection(points: np.ndarray, grid: int) -> Transport:
    cells, slots, encode = flat_torus(grid), slots_of(grid**2, len(points)), np.empty(grid**2, int)

    def halve(some_cells: np.ndarray, some_points: np.ndarray) -> None:
        if len(some_cells) == 1:
            encode[some_cells] = some_points
            return
        axis, half = np.argmax(np.ptp(points[some_points], axis=0)), len(some_cells) // 2
        some_cells = some_cells[np.argsort(cells[some_cells, axis], kind="stable")]
        some_points = some_points[np.argsort(points[some_points, axis], kind="stable")]
        halve(some_cells[:half], some_points[:half])
        halve(some_cells[half:], some_points[half:])

    halve(np.arange(grid**2), slots)
    return with_nearest_cells(encode, points, grid)


def swaps(points: np.ndarray, grid: int) -> Transport:
    cells, encode = flat_torus(grid), bisection(points, grid).encode.ravel()
    rng = np.random.default_rng(0)
    for _ in range(10_000):
        one, other = rng.permutation(grid**2)[: grid**2 // 2 * 2].reshape(2, -1)
        gain = np.sum((cells[one] - cells[other]) * (points[encode[other]] - points[encode[one]]), axis=1)
        one, other = one[gain > 0], other[gain > 0]
        encode[one], encode[other] = encode[other], encode[one]
    return with_nearest_cells(encode, points, grid)


CANDIDATES = {
    candidate.__name__: candidate for candidate in (auction, unscaled, assignment, sparse, sinkhorn, bisection, swaps)
}


ROWS: list[dict[str, object]] = []  # what was printed, for --json


def row(name: str, seconds: tuple[float, float] | None, result: Transport, vertices: np.ndarray) -> None:
    encode = result.encode.ravel()
    back = np.mean(encode[result.decode] == np.arange(len(vertices)))
    owned = np.bincount(encode, minlength=len(vertices))
    clock, cores = seconds or (None, None)
    ROWS.append(
        {"candidate": name, "seconds": clock, "cpu_seconds": cores, "cost": result.cost(vertices), "back": float(back)}
    )
    timed = "" if seconds is None else f"{seconds[0]:>9.3f} {seconds[1]:>9.3f}"
    print(
        f"{name:>14} {timed:>19} {result.cost(vertices):>9.4f} {back:>8.2%} {owned.min():>4} to {owned.max()}",
        flush=True,
    )


def least_seconds(call: Callable[[], object], repeats: int, shared_by: int = 1) -> tuple[float, float]:
    """On the clock and of all cores, for each of those that share a call, of calls of what has been compiled."""
    seconds, on_cores = [], []
    for _ in range(repeats):
        started, cores_started = time.perf_counter(), time.process_time()
        call()
        seconds.append(time.perf_counter() - started)
        on_cores.append(time.process_time() - cores_started)
    return min(seconds) / shared_by, min(on_cores) / shared_by


def compare(vertices: np.ndarray, grid: int, names: list[str], repeats: int) -> None:
    points = standardised(vertices, grid)
    for name in names:
        call = partial(CANDIDATES[name], points, grid)
        result = call()
        row(name, least_seconds(call, repeats), result, vertices)
    if "auction" in names and jax.default_backend() != "cpu":
        stretched = vertices * np.random.default_rng(0).uniform(0.8, 1.2, (GPU_BATCH, 1, 3))
        batch = [standardised(each, grid) for each in stretched]
        call = partial(assign, batch, grid)
        result = with_nearest_cells(call()[0], batch[0], grid)
        row(f"batch of {GPU_BATCH}", least_seconds(call, repeats, GPU_BATCH), result, stretched[0])


def main() -> None:
    parser = argparse.ArgumentParser(description="Ways to map a car onto the torus grid.")
    parser.add_argument("--grid", type=int, default=64)
    parser.add_argument("--cars", type=Path, default=Path(os.environ.get("CROSSREG_CARS", "../shared/cars")))
    parser.add_argument("--only", nargs="+", choices=list(CANDIDATES), default=list(CANDIDATES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="a file for the rows of all cars")
    asked = parser.parse_args()
    stored = asked.cars / "reference_transport.npz"
    reference = dict(np.load(stored)) if stored.exists() else {}
    cars = {key[:3]: reference[key] for key in reference if key.endswith("_target")} or {"made up": made_up_body()}
    for_cars = {}
    for car, vertices in cars.items():
        ROWS.clear()
        print(f"\ncar {car}, {len(vertices)} vertices, grid {asked.grid}², {jax.devices()[0].device_kind}")
        print(f"{'candidate':>14} {'seconds':>9} {'CPU':>9} {'cost':>9} {'back':>8} {'cells':>9}")
        compare(vertices, asked.grid, asked.only, asked.repeats)
        if reference:
            side = round(len(reference["torus"]) ** 0.5)
            encode = reference[f"{car}_ind_enc"].reshape(side, side)
            # Its torus stands upright: turned with the car it is ours.
            turned = np.stack([vertices[:, 0], vertices[:, 2], -vertices[:, 1]], axis=-1)
            row(f"reference {side}²", None, Transport(encode, reference[f"{car}_ind_dec"]), turned)
        for_cars[car] = [*ROWS]
    if asked.json:
        about = {"grid": asked.grid, "device": jax.devices()[0].device_kind, "cars": for_cars}
        asked.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
