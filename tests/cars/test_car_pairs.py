"""Cars on the torus grid: padding, normalisation, and each car's own answer in a batch of different ones."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trimesh

from crossreg.cars.grid.transport import transport
from crossreg.cars.meshes.readers import Cars, find_cars
from crossreg.cars.meshes.surface import Surface, make_surface
from crossreg.cars.pairs import car_scale, make_car_data, pairs_of, vertices_correspond, with_all_to_train_on
from crossreg.config import ModelConfig
from crossreg.data.pairs import stack_pairs
from crossreg.errors import InputError
from crossreg.nn.build import build_model, data_scale
from crossreg.nn.surrogate import predict
from crossreg.training.replicas import make_task, stack_tasks


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path_factory.getbasetemp() / "cars"))


def ellipsoid(name: str, subdivisions: int, stretch: float) -> Surface:
    """42, 162, … vertices, and a pressure of its own."""
    sphere = trimesh.creation.icosphere(subdivisions=subdivisions)
    vertices = np.asarray(sphere.vertices) * [0.5, 0.4, stretch]
    return make_surface(name, vertices, 3 + 20 * vertices[:, 2] ** 2 - 5 * vertices[:, 1], np.asarray(sphere.faces))


COARSE, FINE, LONG = (ellipsoid(*spec) for spec in (("coarse", 1, 1.0), ("fine", 2, 1.3), ("long", 1, 1.7)))
GRID = 13
MODEL = ModelConfig(width=3, num_blocks=2, num_modes=2)


def test_a_batch_of_different_cars_gives_each_its_own_answer():
    together, scale = make_car_data(Cars((COARSE, FINE, LONG), (FINE,), (LONG, COARSE), None), GRID)
    model = build_model(MODEL, together.train, key=jax.random.key(1))
    # Noise that can be seen.
    model = eqx.tree_at(lambda m: m.stages[3].scale.raw, model, replace_fn=jnp.zeros_like)
    keys = jax.random.split(jax.random.key(2), 3)
    batch = together.train.gather(jnp.arange(3))
    assert batch.y.shape == (3, 1, 162)
    assert batch.weight.sum(axis=(1, 2)).tolist() == [42, 162, 42]
    all_three = predict(model, batch.x, at=batch.at, key=keys, num_samples=4).means

    def loss(model, batch, keys):
        """The summed NLL over all vertices."""
        mixture = predict(model, batch.x, at=batch.at, key=keys, num_samples=4)
        return -jnp.sum(batch.weight * mixture.log_prob(batch.y))

    value_and_gradient = eqx.filter_value_and_grad(loss)
    found = value_and_gradient(model, batch, keys)
    total = jax.tree.map(jnp.zeros_like, found)
    for row, car in enumerate((COARSE, FINE, LONG)):
        # A set of this car alone has no padding.
        alone = pairs_of([car], [transport(car.vertices, GRID)], scale).gather(jnp.arange(1))
        assert alone.y.shape == (1, 1, len(car.vertices))
        means = predict(model, alone.x, at=alone.at, key=keys[row : row + 1], num_samples=4).means
        own = all_three[:, row, 0, : len(car.vertices)]
        np.testing.assert_allclose(own, means[:, 0, 0], atol=1e-5)
        assert np.std(own, axis=0).min() > 0
        total = jax.tree.map(jnp.add, total, value_and_gradient(model, alone, keys[row : row + 1]))
    for whole, parts in zip(jax.tree.leaves(found), jax.tree.leaves(total), strict=True):
        np.testing.assert_allclose(whole, parts, rtol=1e-3, atol=1e-4 * max(1.0, float(jnp.abs(parts).max())))


def test_predictions_are_those_of_the_vertices_cells():
    data, _ = make_car_data(Cars((COARSE,), (FINE,), (LONG,), None), GRID)
    model = build_model(MODEL, data.train, key=jax.random.key(1))
    batch = data.reg.gather(jnp.asarray([0]))
    assert batch.at is not None
    on_grid = predict(model, batch.x, key=jax.random.key(3), num_samples=2)
    at_vertices = predict(model, batch.x, at=batch.at, key=jax.random.key(3), num_samples=2)
    for name in ("means", "vars_predictive", "vars_generalization"):
        expected = getattr(on_grid, name).reshape(2, -1)[:, batch.at[0]]
        np.testing.assert_array_equal(getattr(at_vertices, name)[:, 0, 0], expected)


def test_pressure_and_positions_are_normalised_on_train_alone():
    cars = Cars((COARSE, FINE), (LONG,), (LONG, FINE), None)
    data, scale = make_car_data(cars, GRID)
    for found, expected in zip(scale, car_scale(cars.train), strict=True):
        np.testing.assert_array_equal(found, expected)
    both = data.train.gather(jnp.arange(2))
    inside = np.asarray(both.y)[np.asarray(both.weight) > 0]
    np.testing.assert_allclose([inside.mean(), inside.std()], [0, 1], atol=1e-5)
    test = data.test.gather(jnp.asarray([0]))
    np.testing.assert_allclose(scale.pressure(np.asarray(test.y)[0, 0, :42]), LONG.pressure, rtol=1e-5)
    # What a network is started on leaves the padding out.
    np.testing.assert_allclose(data_scale(data.train).target_std, 1, atol=0.02)
    # Channels 0 to 2 are the car's own positions: at its vertices' cells, its vertices.
    positions = np.asarray(test.x)[0, :3].reshape(3, -1)[:, np.asarray(test.at)[0, :42]].T
    np.testing.assert_allclose(positions * scale.position_std + scale.position_mean, LONG.vertices, atol=1e-4)


def test_cars_whose_vertices_correspond_share_a_map():
    longer = ellipsoid("longer", 1, 2.0)
    assert vertices_correspond([COARSE, LONG, longer])
    assert not vertices_correspond([COARSE, FINE])
    # Without faces, by where they are: in another order they do not.
    bare, long = (dataclasses.replace(car, faces=None) for car in (COARSE, ellipsoid("longer", 1, 1.2)))
    order = np.random.default_rng(3).permutation(len(long.vertices))
    assert vertices_correspond([bare, long])
    assert not vertices_correspond([bare, dataclasses.replace(long, vertices=long.vertices[order])])
    cars = Cars((COARSE, LONG, ellipsoid("longest", 1, 3.5)), (longer,), (LONG,), None)
    shared, _ = make_car_data(cars, GRID)
    own, _ = make_car_data(cars, GRID, own_maps=True)
    assert len(np.unique(shared.train.decode, axis=0)) == 1
    # It is that of the mean train car: of reg and test nothing is known then.
    of_train, of_all, of_the_middle = (
        transport(np.mean([car.vertices for car in part], axis=0), GRID).decode
        for part in (cars.train, [*cars.train, *cars.reg, *cars.test], [LONG])
    )
    np.testing.assert_array_equal(shared.train.decode[0], of_train)
    assert (of_train != of_all).any()
    assert (of_train != of_the_middle).any()
    assert len(np.unique(own.train.decode, axis=0)) > 1


def test_a_test_car_with_its_vertices_in_another_order_gives_every_car_a_map_of_its_own():
    order = np.random.default_rng(4).permutation(42)
    other = dataclasses.replace(LONG, vertices=LONG.vertices[order], faces=np.argsort(order)[LONG.faces])
    data, _ = make_car_data(Cars((COARSE,), (COARSE,), (other,), None), GRID)
    np.testing.assert_array_equal(data.test.decode[data.test.rows[0]], transport(other.vertices, GRID).decode)


def test_vertices_correspond_as_long_as_95_percent_of_the_edges_do():
    """A closed grid of 10 × 10 quads has 200 sides and, cut into triangles, 100 diagonals."""
    numbers = np.arange(100).reshape(10, 10)
    corners = [numbers, np.roll(numbers, -1, 0), np.roll(numbers, -1, (0, 1)), np.roll(numbers, -1, 1)]
    quads = np.stack(corners, axis=-1).reshape(100, 4)

    def cut(other_way: int) -> Surface:
        """So many quads are cut along the other diagonal."""
        turned = np.concatenate([np.roll(quads[:other_way], 1, axis=1), quads[other_way:]])
        faces = turned[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)
        nowhere = np.zeros((100, 3))
        return Surface("grid", nowhere, nowhere, np.zeros(100), faces)

    assert vertices_correspond([cut(0), cut(15)])
    assert not vertices_correspond([cut(0), cut(16)])
    # Edges that only one of them has count against either.
    whole = cut(0).faces
    assert whole is not None
    half = dataclasses.replace(cut(0), faces=whole[100:])
    assert not vertices_correspond([cut(0), half])
    assert not vertices_correspond([half, cut(0)])


def test_a_car_that_stands_elsewhere_has_the_same_vertices():
    bare = dataclasses.replace(COARSE, faces=None)
    assert vertices_correspond([bare, dataclasses.replace(bare, vertices=bare.vertices + np.array([9.0, 0, -4]))])


def test_released_cars_correspond_also_without_faces(released_cars):
    cars = find_cars(released_cars)
    bare = [dataclasses.replace(cars.read(name), faces=None) for name in (*cars.train, *cars.test)]
    assert vertices_correspond(bare)
    along = [dataclasses.replace(car, vertices=car.vertices[np.argsort(car.vertices[:, 2])]) for car in bare]
    assert not vertices_correspond(along)


def test_replicas_share_the_cars():
    data, _ = make_car_data(Cars((COARSE, LONG), (FINE, LONG, COARSE), (LONG,), None), GRID)
    tasks = stack_tasks([make_task(data, seed) for seed in range(3)])
    assert tasks.reg.rows.shape == (3, 3)
    assert tasks.reg.in_channels == 9
    kept = data.split_off_calibration(5)
    assert kept.calibration is not None
    assert sorted([*kept.reg.rows.tolist(), *kept.calibration.rows.tolist()]) == [2, 3, 4]
    other, _ = make_car_data(Cars((COARSE,), (FINE,), (LONG,), None), GRID)
    with pytest.raises(ValueError, match="share one array of channels, decode, pressure, num_vertices"):
        stack_pairs([data.train, other.train])


def test_all_cars_but_those_of_test_may_be_trained_on():
    data, _ = make_car_data(Cars((COARSE, LONG), (FINE,), (LONG,), None), GRID)
    every = with_all_to_train_on(data)
    assert (int(every.train.num_pairs), int(every.reg.num_pairs)) == (3, 0)
    batch, reg = every.train.gather(jnp.arange(3)), data.reg.gather(jnp.arange(1))
    np.testing.assert_array_equal(batch.y[2], reg.y[0])
    assert batch.weight.sum(axis=(1, 2)).tolist() == [42, 42, 162]
    assert not every.reg.gather(jnp.arange(1)).weight.any()
    np.testing.assert_array_equal(every.test.rows, data.test.rows)


def test_a_grid_with_fewer_cells_than_vertices_is_refused():
    with pytest.raises(InputError, match="grid is 12: 144 cells for a car of 162 vertices"):
        make_car_data(Cars((COARSE,), (FINE,), (LONG,), None), 12)
