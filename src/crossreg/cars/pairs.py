r"""Cars as pairs: nine channels on the torus grid in, the pressure at the vertices out.

The network runs on the grid, and its prediction is read at the cell `decode` of each vertex. Cars are padded to the
largest number of vertices; padding has weight 0. Positions are normalised per channel, and the pressure as a whole, by
the mean and standard deviation over all train cars:

$$ x \mapsto (x - \bar x_{train}) / s_{train}. $$
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from crossreg.cars.grid.channels import latent_channels
from crossreg.cars.grid.transport import Transport, transport, transports
from crossreg.cars.meshes.normals import side_numbers
from crossreg.cars.meshes.readers import Cars
from crossreg.cars.meshes.surface import Surface
from crossreg.data.dataset import Data
from crossreg.data.pairs import AbstractPairs, Batch, MaskKey
from crossreg.data.trajectories import digest
from crossreg.data.units import Units
from crossreg.errors import InputError

_SAME_EDGES = 0.95
# The largest mean distance of vertices with equal numbers, relative to that of random vertices; real cars reach 0.10.
_SAME_PLACE = 0.25
_POSITIONS = slice(0, 3)  # which of the nine channels are the car's own coordinates


class CarPairs(AbstractPairs):
    """The cars of one split, one pair each."""

    channels: Float[Array, "car in grid grid"]
    decode: Int[Array, "car vertex"]
    pressure: Float[Array, "car 1 vertex"]
    num_vertices: Int[Array, " car"]
    rows: Int[Array, " row"]
    num_rows: Int[Array, ""]
    units: Units | None = eqx.field(static=True, default=None)
    shared: ClassVar[tuple[str, ...]] = ("channels", "decode", "pressure", "num_vertices")

    @property
    def pairs_per_row(self) -> int:
        return 1

    @property
    def in_channels(self) -> int:
        return self.channels.shape[1]

    @property
    def field_shape(self) -> tuple[int, ...]:
        return (1, *self.channels.shape[2:])

    def gather(self, index: Int[Array, " batch"], *, mask_key: MaskKey = None) -> Batch:
        """Return the cars with the given indices. A geometry is fully observed, so no mask is drawn."""
        car = self.rows[index]
        x = self.channels[car]
        there = jnp.arange(self.pressure.shape[-1]) < self.num_vertices[car][:, None]
        weight = (there & (index < self.num_pairs)[:, None])[:, None].astype(x.dtype)
        mask = jnp.ones((x.shape[0], 1, *x.shape[2:]), bool)
        return Batch(x, self.pressure[car], mask, weight, self.decode[car])

    def of(self, numbers: Sequence[int]) -> "CarPairs":
        index = np.asarray(numbers)
        return self._with_rows(self.rows[index], index.size)

    def _with_rows(self, rows: Int[Array, " row"], num_rows: int) -> "CarPairs":
        return eqx.tree_at(lambda p: (p.rows, p.num_rows), self, (rows, jnp.asarray(num_rows, jnp.int32)))


def with_all_to_train_on(data: Data[CarPairs]) -> Data[CarPairs]:
    """Merge train and reg cars into the train split, for methods that need no held-out cars; reg is then empty."""
    rows = jnp.concatenate([data.train.rows, data.reg.rows])
    train, reg = data.train._with_rows(rows, rows.size), data.reg._with_rows(data.reg.rows, 0)
    return dataclasses.replace(data, train=train, reg=reg)


class CarScale(NamedTuple):
    """Mean and standard deviation over the train cars: of each coordinate, and of the pressure."""

    position_mean: Float[np.ndarray, "3"]
    position_std: Float[np.ndarray, "3"]
    pressure_mean: float
    pressure_std: float

    def pressure(self, normalised: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return normalised pressure in the data's units."""
        return self.pressure_mean + self.pressure_std * normalised


def car_scale(train: Sequence[Surface]) -> CarScale:
    """Return the scale of some cars."""
    vertices = np.concatenate([car.vertices for car in train])
    pressure = np.concatenate([car.pressure for car in train])
    return CarScale(vertices.mean(0), vertices.std(0), float(pressure.mean()), float(pressure.std()))


def vertices_correspond(cars: Sequence[Surface]) -> bool:
    """Return whether a vertex marks the same place on every car: equal vertex counts and nearly the same edges.

    Edges may differ because a quad may be cut along either diagonal: the real cars share 99.5% of their edges. Without
    faces, vertices with equal numbers must be much closer to each other than random ones.
    """
    if len({len(car.vertices) for car in cars}) > 1:
        return False
    if any(car.faces is None for car in cars):
        return all(_apart(cars[0], car) < _SAME_PLACE for car in cars[1:])
    first, *others = (np.unique(side_numbers(np.asarray(car.faces))) for car in cars)
    return all(np.intersect1d(first, edges).size >= _SAME_EDGES * max(first.size, edges.size) for edges in others)


def _apart(one: Surface, other: Surface) -> float:
    """Return the mean distance of vertices with equal numbers, relative to random pairs, after centring both cars."""
    first, second = (car.vertices - car.vertices.mean(0) for car in (one, other))
    shuffled = np.random.default_rng(0).permutation(len(second))
    same, random = (np.linalg.norm(first - points, axis=1).mean() for points in (second, second[shuffled]))
    return float(same / random)


def make_car_data(
    cars: Cars, grid: int, *, own_maps: bool = False, progress: Callable[[int, int], None] | None = None
) -> tuple[Data[CarPairs], CarScale]:
    """Map cars to the grid.

    If vertices correspond, all cars share the map of the mean train car: the maps of two similar cars differ in single
    cells, which the network would have to learn to ignore.

    Args:
        cars: train, reg and test cars.
        grid: cells of the torus along each axis.
        own_maps: give every car its own map, even if vertices correspond.
        progress: called with the numbers of finished and of all maps.

    Returns:
        The splits, and the scale by which they are normalised.

    Raises:
        InputError: if the grid has fewer cells than a car has vertices.
    """
    listed = [*cars.train, *cars.reg, *cars.test]
    check_grid(listed, grid)
    scale = car_scale(cars.train)
    if vertices_correspond(listed) and not own_maps:
        maps = [mean_map(cars.train, grid)] * len(listed)
        if progress is not None:
            progress(1, 1)
    else:
        maps = transports([car.vertices for car in listed], grid, progress)
    every = pairs_of(listed, maps, scale)
    ends = np.cumsum([0, len(cars.train), len(cars.reg), len(cars.test)])
    content = digest(*(np.asarray(getattr(every, name)) for name in CarPairs.shared), ends)
    train, reg, test = (every.of(range(*ends[number : number + 2])) for number in range(3))
    return Data(train, reg, test, content), scale


def check_grid(cars: Sequence[Surface], grid: int) -> None:
    """Raise InputError if the grid has fewer cells than a car has vertices."""
    most = max(len(car.vertices) for car in cars)
    if most > grid**2:
        raise InputError(f"grid is {grid}: {grid**2} cells for a car of {most} vertices; expected at least as many")


def mean_map(train: Sequence[Surface], grid: int) -> Transport:
    """Return the shared map of cars whose vertices correspond, that of the mean train car."""
    return transport(np.mean([car.vertices for car in train], axis=0), grid)


def pairs_of(cars: Sequence[Surface], maps: Sequence[Transport], scale: CarScale) -> CarPairs:
    """Return cars on the grid, each by its map, normalised by a scale."""
    most = max(len(car.vertices) for car in cars)
    channels = np.stack([latent_channels(car, found) for car, found in zip(cars, maps, strict=True)])
    mean, std = (part[:, None, None] for part in (scale.position_mean, scale.position_std))
    channels[:, _POSITIONS] = (channels[:, _POSITIONS] - mean) / std
    decode, pressure = np.zeros((len(cars), most), np.int32), np.zeros((len(cars), 1, most), np.float32)
    for row, (car, found) in enumerate(zip(cars, maps, strict=True)):
        decode[row, : len(car.vertices)] = found.decode
        pressure[row, 0, : len(car.vertices)] = (car.pressure - scale.pressure_mean) / scale.pressure_std
    return CarPairs(
        channels=jnp.asarray(channels, jnp.float32),
        decode=jnp.asarray(decode),
        pressure=jnp.asarray(pressure),
        num_vertices=jnp.asarray([len(car.vertices) for car in cars], jnp.int32),
        rows=jnp.arange(len(cars), dtype=jnp.int32),
        num_rows=jnp.asarray(len(cars), jnp.int32),
    )
