"""Compare cars with those a network was trained on, or with each other: their unit, orientation, size and place.

The network reads coordinates and predicts a pressure for any of them, also for a car in millimetres, on its side or
with its nose at the rear, which is unlike every car it has seen.

A tilt is detected at the underside, which is nearly level along every car: within 0.3° in 200 cars of the built-in
family, and within 1.2° in four of ShapeNet-Car. A turn about the vertical by a few degrees is not detected.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from crossreg.cars.meshes.surface import Surface
from crossreg.errors import InputError

# Lengths of cars differ by less than this factor, units by more: a metre has 3.28 feet.
_OTHER_UNIT = 3.0
# A car is turned if exchanging its axes, or flipping it, reduces its distance to the known cars by these factors. The
# first keeps a van that is taller than wide; flipping reduces none of 170 built-in cars' distances below 0.96 times.
_TURNED, _FLIPPED = 0.5, 0.75
# How far a car may reach beyond the known ones before a warning, relative to their extent along that axis.
_BEYOND = 0.25
# The factor by which a length, and the degrees by which the underside's slope, may lie outside the known range: with
# three known cars each, none of 1200 built-in cars does.
_OTHER_SIZE, _TILTED = 1.4, 4.0
# Pressures of cars in the same wind differ by less than this factor, those in Cp, Pa, hPa or bar by more.
_OTHER_PRESSURE = 10.0
_SLICES = 8
_FLIPS = {"y": np.array([1, -1, 1]), "z": np.array([1, 1, -1]), "y and z": np.array([1, -1, -1])}


def check_alike(cars: Sequence[Surface]) -> list[str]:
    """Compare the cars of an experiment with each other.

    A network that learns from a few cars in another unit, or turned, learns that pressure depends on it.

    Args:
        cars: the cars of all splits.

    Returns:
        Warnings for each car with its axes exchanged, that is flipped along one of them, or whose pressure has another
        unit than that of most others.

    Raises:
        InputError: if a car has vertices in another unit than most others.
    """
    extents = np.array([np.ptp(car.vertices, axis=0) for car in cars])
    sizes, typical = np.linalg.norm(extents, axis=1), np.median(np.log(extents), axis=0)
    size, outlines = float(np.median(sizes)), [_outline(car.vertices) for car in cars]
    spreads = np.array([np.std(car.pressure) for car in cars])
    outline, spread = np.median(outlines, axis=0), float(np.median(spreads))
    warnings = []
    for car, extent, own, varies in zip(cars, extents, sizes, spreads, strict=True):
        theirs = f"{_shown(extent)} along x, y and z; most others have about {_shown(np.exp(typical))}"
        if not 1 / _OTHER_UNIT < own / size < _OTHER_UNIT:
            by = float(f"{size / own:.1g}")
            raise InputError(f"car {car.name}: has another unit, {theirs}: multiply its vertices by about {by:g}")
        best = _order_of_axes(extent, typical)
        if best != "xyz":
            warnings.append(f"car {car.name}: is turned, {theirs}: its {', '.join(best)} seem to be x, y, z")
        elif (flip := _flipped(car.vertices, outline)) is not None:
            warnings.append(f"car {car.name}: seems to be turned, along {flip} it is the other way round than most")
        if not 1 / _OTHER_PRESSURE < varies / spread < _OTHER_PRESSURE:
            warnings.append(
                f"car {car.name}: its pressure varies by {varies:.3g}, that of most others by about {spread:.3g}; is it"
                " in another unit?"
            )
    return warnings


def check_apart(splits: Mapping[str, Sequence[Surface]]) -> list[str]:
    """Return a warning if cars of two splits are the same: the first two, and the number of others."""
    seen, twice = dict[bytes, tuple[str, str]](), []
    for split, cars in splits.items():
        for car in cars:
            first = seen.setdefault(car.vertices.tobytes() + car.pressure.tobytes(), (split, car.name))
            if first[0] != split:
                twice.append(f"car {car.name} of {split} is the same as car {first[1]} of {first[0]}")
    if not twice:
        return []
    more = f" (and {len(twice) - 1} more)" if len(twice) > 1 else ""
    return [f"{twice[0]}{more}: scores on cars that were learned from are too good"]


def check_like(cars: Sequence[Surface], known: Sequence[Surface]) -> list[str]:
    """Compare cars to predict for with known ones.

    Args:
        cars: cars to predict for.
        known: the cars that a network was trained on.

    Returns:
        Warnings for each car that seems to be flipped or tilted, that reaches far beyond the known cars, or that is
        much smaller or larger than any of them.

    Raises:
        InputError: if a car has another unit or other axes than the known ones.
    """
    extents = np.array([np.ptp(car.vertices, axis=0) for car in known])
    size = float(np.median(np.linalg.norm(extents, axis=1)))
    typical = np.log(extents).mean(axis=0)
    outline = np.mean([_outline(car.vertices) for car in known], axis=0)
    slopes = np.array([_slopes(car.vertices) for car in known])
    warnings = []
    for car in cars:
        extent = np.ptp(car.vertices, axis=0)
        theirs = f"{_shown(extent)} along x, y and z; the experiment's cars have {_shown(np.exp(typical))} on average"
        factor = float(np.linalg.norm(extent)) / size
        if not 1 / _OTHER_UNIT < factor < _OTHER_UNIT:
            by = float(f"{1 / factor:.1g}")
            raise InputError(f"car {car.name}: has another unit: {theirs}; multiply its vertices by about {by:g}")
        best = _order_of_axes(extent, typical)
        if best != "xyz":
            axes = ", ".join(best)
            raise InputError(f"car {car.name}: is turned: {theirs}; turn it so that its {axes} become x, y, z")
        if (flip := _flipped(car.vertices, outline)) is not None:
            warnings.append(
                f"car {car.name}: seems to be turned: along {flip}, it points the opposite way to the experiment's cars"
            )
        seems = [_tilted(car, slopes), _far_out(car, known, extents.mean(axis=0)) or _other_size(car, extents)]
        warnings += [f"car {car.name}: {warning}" for warning in seems if warning]
    return warnings


def _order_of_axes(extent: Float[np.ndarray, "3"], typical: Float[np.ndarray, "3"]) -> str:
    """Return the axes of a car that are x, y and z of others: another order only if lengths fit much better so."""
    apart = {order: _apart(np.log(extent)[list(order)], typical) for order in itertools.permutations(range(3))}
    best = min(apart, key=lambda order: apart[order])
    return "".join("xyz"[axis] for axis in best) if apart[best] < _TURNED * apart[0, 1, 2] else "xyz"


def _shown(extent: Float[np.ndarray, "3"]) -> str:
    return " × ".join(f"{length:.4g}" for length in extent)


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.sqrt(np.mean((one - other) ** 2)))


def _lowest(vertices: Float[np.ndarray, "vertex 3"], axis: int) -> Float[np.ndarray, "2 slice"]:
    """Return the place along an axis of each slice that has vertices, and the height of its lowest one."""
    along = vertices[:, axis] - vertices[:, axis].min()
    width = along.max() / _SLICES
    number = np.minimum((along / width).astype(int), _SLICES - 1)
    there = np.unique(number)
    return np.array([(there + 0.5) * width, [vertices[number == own, 1].min() for own in there]])


def _slopes(vertices: Float[np.ndarray, "vertex 3"]) -> Float[np.ndarray, "2"]:
    """Return the angles in degrees by which the underside rises along x and along z."""
    found = []
    for axis in (0, 2):
        place, height = _lowest(vertices, axis)
        found.append(np.degrees(np.arctan(np.polyfit(place, height, 1)[0])))
    return np.round(found, 1) + 0.0  # a zero has no sign then


def _tilted(car: Surface, slopes: Float[np.ndarray, "car 2"]) -> str | None:
    own, low, high = _slopes(car.vertices), slopes.min(axis=0), slopes.max(axis=0)
    number = int(np.argmax(np.maximum(low - own, own - high)))
    if low[number] - _TILTED <= own[number] <= high[number] + _TILTED:
        return None
    return (
        f"seems to be tilted, its underside rises by {own[number]:.1f}° along {'xz'[number]},"
        f" that of the experiment's cars by {low[number]:.1f}° to {high[number]:.1f}°"
    )


def _outline(vertices: Float[np.ndarray, "vertex 3"]) -> Float[np.ndarray, "side slice"]:
    """Return the highest and lowest vertex in slices along z, in units of the height; empty slices are interpolated."""
    shares = (vertices - vertices.min(axis=0)) / np.ptp(vertices, axis=0)
    number = np.minimum((_SLICES * shares[:, 2]).astype(int), _SLICES - 1)
    there = np.unique(number)  # has the first and the last slice, which hold the ends of the car
    heights = [shares[number == own, 1] for own in there]
    sides = [[own.max() for own in heights], [own.min() for own in heights]]
    return np.array([np.interp(range(_SLICES), there, side) for side in sides])


def _flipped(vertices: Float[np.ndarray, "vertex 3"], outline: Float[np.ndarray, "side slice"]) -> str | None:
    """Return the axes along which flipping the car brings its outline much closer to the known one, or None."""
    apart = {name: _apart(_outline(vertices * signs), outline) for name, signs in _FLIPS.items()}
    best = min(apart, key=lambda name: apart[name])
    return best if apart[best] < _FLIPPED * _apart(_outline(vertices), outline) else None


def _far_out(car: Surface, known: Sequence[Surface], extent: Float[np.ndarray, "3"]) -> str | None:
    low = np.min([other.vertices.min(axis=0) for other in known], axis=0)
    high = np.max([other.vertices.max(axis=0) for other in known], axis=0)
    own_low, own_high = car.vertices.min(axis=0), car.vertices.max(axis=0)
    beyond = np.maximum(low - own_low, own_high - high) / extent
    axis = int(np.argmax(beyond))
    if beyond[axis] <= _BEYOND:
        return None
    return (
        f"reaches from {own_low[axis]:.4g} to {own_high[axis]:.4g} along {'xyz'[axis]}, the experiment's cars from"
        f" {low[axis]:.4g} to {high[axis]:.4g}; far from them, predictions are guesses"
    )


def _other_size(car: Surface, extents: Float[np.ndarray, "car 3"]) -> str | None:
    own, low, high = np.ptp(car.vertices, axis=0), extents.min(axis=0), extents.max(axis=0)
    axis = int(np.argmax(np.maximum(low / own, own / high)))
    if low[axis] / _OTHER_SIZE <= own[axis] <= high[axis] * _OTHER_SIZE:
        return None
    return (
        f"has {own[axis]:.4g} along {'xyz'[axis]}, the experiment's cars {low[axis]:.4g} to {high[axis]:.4g};"
        " for cars of another size, predictions are guesses"
    )
