r"""Cars as pairs: nine channels on the torus grid in, the pressure at the vertices out.

The network runs on the grid; its prediction is read at the cell `decode` of each vertex. Cars with fewer vertices than
others are padded, and padding has weight 0. Positions are normalised per channel, and the pressure as a whole, by the
mean and standard deviation over all train cars:

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
from crossreg.data.pairs import AbstractPairs, Batch, Data, MaskKey
from crossreg.data.trajectories import digest
from crossreg.data.units import Units
from crossreg.errors import InputError

_SAME_EDGES = 0.95
# Of the mean distance of random vertices, what those of one number may have at most: the real cars have at most 0.10.
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
        """The cars of the given numbers. All of a geometry is seen: there is no mask to draw."""
        car = self.rows[index]
        x = self.channels[car]
        there = jnp.arange(self.pressure.shape[-1]) < self.num_vertices[car][:, None]
        weight = (there & (index < self.num_pairs)[:, None])[:, None].astype(x.dtype)
        mask = jnp.ones((x.shape[0], 1, *x.shape[2:]), bool)
        return Batch(x, self.pressure[car], mask, weight, self.decode[car])

    def of(self, numbers: Sequence[int]) -> "CarPairs":
        index = np.asarray(numbers)
        return eqx.tree_at(
            lambda p: (p.rows, p.num_rows), self, (self.rows[index], jnp.full_like(self.num_rows, index.size))
        )


def with_all_to_train_on(data: Data[CarPairs]) -> Data[CarPairs]:
    """Train and reg cars as one train split, for what needs nothing held out; no car of reg is left that counts."""
    rows = jnp.concatenate([data.train.rows, data.reg.rows])
    size = jnp.asarray(rows.size, jnp.int32)
    return dataclasses.replace(
        data,
        train=eqx.tree_at(lambda p: (p.rows, p.num_rows), data.train, (rows, size)),
        reg=eqx.tree_at(lambda p: p.num_rows, data.reg, jnp.zeros_like(size)),
    )


class CarScale(NamedTuple):
    """Mean and standard deviation over the train cars: of each coordinate, and of the pressure."""

    position_mean: Float[np.ndarray, "3"]
    position_std: Float[np.ndarray, "3"]
    pressure_mean: float
    pressure_std: float

    def pressure(self, normalised: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """In the data's own units."""
        return self.pressure_mean + self.pressure_std * normalised


def car_scale(train: Sequence[Surface]) -> CarScale:
    """The scale of some cars."""
    vertices = np.concatenate([car.vertices for car in train])
    pressure = np.concatenate([car.pressure for car in train])
    return CarScale(vertices.mean(0), vertices.std(0), float(pressure.mean()), float(pressure.std()))


def vertices_correspond(cars: Sequence[Surface]) -> bool:
    """Whether a vertex means the same place on every car: all have one vertex count and (nearly) the same edges.

    Nearly, since a quad may be cut along either diagonal: the real cars share 99.5% of their edges. Where cars have no
    faces, vertices of one number must lie much closer to each other than any two.
    """
    if len({len(car.vertices) for car in cars}) > 1:
        return False
    if any(car.faces is None for car in cars):
        return all(_apart(cars[0], car) < _SAME_PLACE for car in cars[1:])
    first, *others = (np.unique(side_numbers(np.asarray(car.faces))) for car in cars)
    return all(np.intersect1d(first, edges).size >= _SAME_EDGES * max(first.size, edges.size) for edges in others)


def _apart(one: Surface, other: Surface) -> float:
    """The mean distance of vertices of one number, relative to that of any two; both cars with their centre at 0."""
    first, second = (car.vertices - car.vertices.mean(0) for car in (one, other))
    shuffled = np.random.default_rng(0).permutation(len(second))
    same, random = (np.linalg.norm(first - points, axis=1).mean() for points in (second, second[shuffled]))
    return float(same / random)


def make_car_data(
    cars: Cars, grid: int, *, own_maps: bool = False, progress: Callable[[int, int], None] | None = None
) -> tuple[Data[CarPairs], CarScale]:
    """The splits on the grid, and the scale they are normalised by; maps to the torus are made unless cached.

    Where vertices correspond, all cars share the map of the mean train car, unless they are to have `own_maps`: two
    maps of nearly the same car differ by a cell here and there, and a network must then learn to see through that.
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
    """Refuses a grid that has fewer cells than a car has vertices."""
    most = max(len(car.vertices) for car in cars)
    if most > grid**2:
        raise InputError(f"--grid {grid}: {grid**2} cells for a car of {most} vertices; expected at least as many")


def mean_map(train: Sequence[Surface], grid: int) -> Transport:
    """The one map of cars whose vertices correspond: that of the mean train car."""
    return transport(np.mean([car.vertices for car in train], axis=0), grid)


def pairs_of(cars: Sequence[Surface], maps: Sequence[Transport], scale: CarScale) -> CarPairs:
    """Cars on the grid, each by its map, normalised by a scale."""
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
