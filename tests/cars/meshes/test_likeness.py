"""Cars in another unit, turned, flipped or far away, against those that are known."""

import numpy as np
import pytest

from crossreg.cars.family.bodies import make_body, resolution
from crossreg.cars.family.make import draw_shapes
from crossreg.cars.meshes.likeness import check_alike, check_apart, check_like
from crossreg.cars.meshes.surface import Surface
from crossreg.cars.study import prepare
from crossreg.designs.car_study import car_study
from crossreg.errors import InputError


def car(vertices: np.ndarray, name: str = "mine") -> Surface:
    return Surface(name, vertices, vertices, vertices[:, 0])


BODIES = [make_body(shape, resolution(400)).vertices for shape in draw_shapes(40)]
KNOWN = [car(body) for body in BODIES[:6]]


def outcome(one: Surface) -> str:
    """The line by which a car is refused, or those that warn of it."""
    try:
        return "; ".join(check_like([one], KNOWN))
    except InputError as error:
        return str(error)


def test_other_cars_of_the_same_kind_are_taken_as_they_are():
    assert check_like([car(body) for body in BODIES[6:]], KNOWN) == []
    assert check_like([car(1.2 * BODIES[7]), car(0.9 * BODIES[8])], KNOWN) == []


@pytest.mark.parametrize(("factor", "advice"), [(1000, "0.001"), (10, "0.1"), (3.28084, "0.3"), (0.0254, "40")])
def test_another_unit_is_refused(factor, advice):
    with pytest.raises(InputError, match=rf"^car mine: has another unit: .* by about {advice}$") as raised:
        check_like([car(BODIES[7]), car(factor * BODIES[6])], KNOWN)
    lengths = " × ".join(f"{length:.4g}" for length in factor * np.ptp(BODIES[6], axis=0))
    mean = np.exp(np.mean([np.log(np.ptp(body, axis=0)) for body in BODIES[:6]], axis=0))
    theirs = " × ".join(f"{length:.4g}" for length in mean)
    assert f"{lengths} along x, y and z; the experiment's cars have {theirs} on average" in str(raised.value)


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_exchanged_axes_are_refused_and_the_advice_undoes_it(order):
    refused = 0
    for body in BODIES[6:]:
        turned = body[:, list(order)]
        said = outcome(car(turned))
        if "car mine: is turned" in said:
            advice = said.split("turn it so that its ")[1].removesuffix(" become x, y, z").split(", ")
            np.testing.assert_array_equal(turned[:, ["xyz".index(axis) for axis in advice]], body)
            refused += 1
        else:
            # Nearly as tall as wide: its lengths do not tell, but on its side it reaches below the ground.
            assert np.ptp(body[:, 1]) > 0.8 * np.ptp(body[:, 0])
            assert "car mine: reaches from" in said
            assert "along y" in said
    assert refused == 34 if order != (1, 0, 2) else refused > 20


def test_a_van_that_is_taller_than_wide_is_not_turned():
    van = BODIES[6] / np.ptp(BODIES[6], axis=0) * [1.85, 1.95, 4.6]
    assert not any("turned" in line for line in check_like([car(van)], KNOWN))


@pytest.mark.parametrize(
    ("signs", "axes"), [((1, 1, -1), "z"), ((-1, 1, -1), "z"), ((1, -1, 1), "y"), ((1, -1, -1), "y and z")]
)
def test_cars_the_other_way_round_are_warned_of(signs, axes):
    found = [check_like([car(body * signs)], KNOWN) for body in BODIES[6:]]
    said = f"car mine: seems to be turned: along {axes}, it points the opposite way to the experiment's cars"
    assert np.mean([said in lines for lines in found]) > 0.9
    assert check_like([car(body * [-1, 1, 1]) for body in BODIES[6:]], KNOWN) == []  # a car has a left like its right


def test_a_car_at_another_place_is_warned_of():
    height = max(body[:, 1].max() for body in BODIES[:6])
    [said] = check_like([car(BODIES[6] + [0, 1, 0], "high"), car(BODIES[6])], KNOWN)
    assert said.startswith(f"car high: reaches from {BODIES[6][:, 1].min() + 1:.4g} to ")
    assert f"along y, the experiment's cars from {min(b[:, 1].min() for b in BODIES[:6]):.4g} to {height:.4g};" in said


@pytest.mark.parametrize("factor", [0.4, 0.6])
def test_a_car_of_another_size_is_warned_of(factor):
    """A smaller one lies within the place of the known ones: it is told by its own lengths."""
    known = np.array([np.ptp(body, axis=0) for body in BODIES[:6]])
    for body in BODIES[6:]:
        [said] = check_like([car(factor * body)], KNOWN)
        own = factor * np.ptp(body, axis=0)
        axis = int(np.argmax(known.min(axis=0) / own))
        theirs = f"the experiment's cars {known[:, axis].min():.4g} to {known[:, axis].max():.4g};"
        assert said.startswith(f"car mine: has {own[axis]:.4g} along {'xyz'[axis]}, {theirs}")
    [said] = check_like([car(BODIES[6] * [1, 1, factor])], KNOWN)  # too short alone
    assert f"car mine: has {factor * np.ptp(BODIES[6][:, 2]):.4g} along z, the experiment's cars" in said
    [said] = check_like([car(2.5 * BODIES[6])], KNOWN)
    assert "car mine: reaches from" in said


@pytest.mark.parametrize("degrees", [-10, 10])
@pytest.mark.parametrize(("axis", "named"), [(2, "z"), (0, "x")])
def test_a_car_that_is_tilted_is_warned_of(degrees, axis, named):
    """With its nose or one side up."""
    for body in BODIES[6:]:
        cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        tilted, middle = body.copy(), body.mean(axis=0)
        y, along = (body - middle)[:, 1], (body - middle)[:, axis]
        tilted[:, 1] = cosine * y + sine * along + middle[1]
        tilted[:, axis] = cosine * along - sine * y + middle[axis]
        [said] = [line for line in check_like([car(tilted)], KNOWN) if "tilted" in line]
        found = float(said.removeprefix("car mine: seems to be tilted, its underside rises by ").partition("°")[0])
        assert found == pytest.approx(degrees, abs=4.5)
        assert f"° along {named}, that of the experiment's cars by 0.0° to 0.{'3' if axis else '0'}°" in said


def test_axes_are_those_of_the_known_cars():
    """Cars that lie along x are as good, if all do."""
    assert check_like([car(BODIES[7][:, ::-1])], [car(body[:, ::-1]) for body in BODIES[:6]]) == []
    with pytest.raises(InputError, match="is turned"):
        check_like([car(BODIES[7])], [car(body[:, ::-1]) for body in BODIES[:6]])


def test_the_cars_of_an_experiment_are_alike():
    assert check_alike([car(body, str(number)) for number, body in enumerate(BODIES)]) == []


@pytest.mark.parametrize(("factor", "advice"), [(1000, "0.001"), (10, "0.1"), (0.0254, "40")])
def test_a_car_in_another_unit_than_the_others_of_an_experiment_is_refused(factor, advice):
    with pytest.raises(InputError, match=rf"^car odd: has another unit, .* by about {advice}$"):
        check_alike([*KNOWN, car(factor * BODIES[6], "odd"), *KNOWN])


def test_a_car_that_is_turned_or_flipped_in_an_experiment_is_warned_of():
    [said] = check_alike([*KNOWN, car(BODIES[6][:, [2, 1, 0]], "odd")])
    assert said.startswith("car odd: is turned, ")
    assert said.endswith(": its z, y, x seem to be x, y, z")
    [said] = check_alike([car(BODIES[7] * [1, 1, -1], "odd"), *KNOWN])
    assert said == "car odd: seems to be turned, along z it is the other way round than most"


@pytest.mark.parametrize("factor", [1e5, 240, 1 / 240])
def test_a_pressure_in_another_unit_than_the_others_is_warned_of(factor):
    one = car(BODIES[6], "odd")
    odd = Surface("odd", one.vertices, one.normals, factor * one.pressure)
    [said] = check_alike([*KNOWN, odd])
    spread = np.median([np.std(other.pressure) for other in [*KNOWN, odd]])
    assert said == (
        f"car odd: its pressure varies by {np.std(odd.pressure):.3g}, that of most others by about {spread:.3g}; is it"
        " in another unit?"
    )


def test_a_car_in_two_splits_is_warned_of():
    names = [car(body, name) for body, name in zip(BODIES, "abcdef", strict=False)]
    assert check_apart({"train": names[:2], "reg": names[2:4], "test": names[4:]}) == []
    again = [car(BODIES[number], name) for number, name in ((1, "x"), (2, "y"))]
    [said] = check_apart({"train": names[:2], "reg": [names[2]], "test": [names[4], *again]})
    assert said == (
        "car x of test is the same as car b of train (and 1 more): scores on cars that were learned from are too good"
    )
    assert check_apart({"train": [names[0], names[0]], "reg": [], "test": [names[1]]}) == []


def test_an_experiment_reads_no_car_in_another_unit(tmp_path, capsys):
    bodies = [make_body(shape, resolution(400)) for shape in draw_shapes(5)]
    for number, body in enumerate(bodies):
        vertices = body.vertices.astype(float)
        np.savez(tmp_path / f"{number}.npz", vertices=vertices, pressure=body.vertices[:, 1], faces=body.faces)
    body = bodies[-1]
    vertices, height = body.vertices.astype(float), body.vertices[:, 1]
    study = car_study("quick").replace(data=str(tmp_path), train_size=3, reg_size=1, test_size=1, grid=24)
    np.savez(tmp_path / "3.npz", vertices=vertices, pressure=1e5 * height, faces=body.faces)
    prepare(study, progress=False)
    assert "car 3: its pressure varies by" in capsys.readouterr().err
    np.savez(tmp_path / "3.npz", vertices=1000 * vertices, pressure=height, faces=body.faces)
    with pytest.raises(InputError, match=r"^car 3: has another unit"):
        prepare(study, progress=False)
