"""What each replica of a car study is trained on: its seed, its member, its split, and its cars."""

import numpy as np
import pytest

from crossreg.cars import training as car_training
from crossreg.cars.meshes.readers import Cars
from crossreg.cars.meshes.surface import Surface, make_surface
from crossreg.cars.pairs import make_car_data
from crossreg.cars.study import prepare
from crossreg.cars.training import train_or_load, trainings_of
from crossreg.designs.car_study import car_study
from crossreg.errors import InputError
from crossreg.methods.names import parse_methods


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path_factory.getbasetemp() / "cars"))


def box(number: int) -> Surface:
    corners = np.array([[x, y, z] for x in (0, 1.0) for y in (0, 0.9) for z in (0, 3.0 + number)])
    points = np.concatenate([corners, corners.mean(axis=0) + 0.6 * (corners - corners.mean(axis=0)) * [1, 1, 2]])
    return make_surface(f"box{number}", points, points @ [1.0, 2.0, 3.0 + number])


def test_every_replica_has_its_own_seed_member_and_part_of_reg(monkeypatch, tmp_path):
    boxes = [box(number) for number in range(10)]
    data, _ = make_car_data(Cars((*boxes[:2],), (*boxes[2:9],), (boxes[9],), None), 5)
    seen = []

    def record(configs, splits, members):
        seen.append((configs, splits, members))
        raise InputError("seen")

    monkeypatch.setattr(car_training, "start_cohort", record)
    config = car_study("quick").config
    for training in trainings_of(parse_methods("ensemble-2,xreg+conformal", for_cars=True), config).values():
        with pytest.raises(InputError, match="seen"):
            train_or_load(training, data, 3, tmp_path, progress=False)
    (configs, splits, members), (own_configs, own_splits, own_members) = seen
    assert [(c.train.seed, m) for c, m in zip(configs, members, strict=True)] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1),
    ]  # fmt: skip
    assert all(split is data for split in splits)  # it learns nothing on reg, so that all of it calibrates
    assert [c.train.seed for c in own_configs] == [0, 1, 2]
    assert own_members == [0, 0, 0]
    for seed, split in enumerate(own_splits):
        expected = data.split_off_calibration(seed)
        assert split.reg.rows.tolist() == expected.reg.rows.tolist()
        assert split.held_out.rows.tolist() == expected.held_out.rows.tolist()
    assert len({tuple(split.held_out.rows.tolist()) for split in own_splits}) > 1


def test_built_in_cars_are_in_one_split_each_and_test_cars_do_not_depend_on_the_others():
    def names(train_size: int) -> tuple[list[str], ...]:
        sizes = {"train_size": train_size, "reg_size": 2, "test_size": 3}
        cars = prepare(car_study("quick").replace(split_seed=3, points=400, grid=23, **sizes), progress=False).cars
        return tuple([car.name for car in part] for part in (cars.test, cars.reg, cars.train))

    expected = [f"family-3-{number:03d}" for number in range(7)]
    assert names(2) == (expected[:3], expected[3:5], expected[5:])
    assert names(1) == (expected[:3], expected[3:5], expected[5:6])
