"""Settings and splits, whatever they are asked for: they survive YAML, or are refused in one line."""

import dataclasses
import typing
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from outcomes import Refused, outcome

from crossreg.cars.meshes.car_set import CarSet, split_cars
from crossreg.config import Config, DataConfig, ModelConfig, TrainConfig, from_dict, load_yaml, to_dict, to_yaml
from crossreg.data.split import POOL_SIZE, REG_POOL, TEST_POOL, TRAIN_POOL, split_trajectories
from crossreg.errors import InputError
from crossreg.files.yaml_files import parse_settings

PARTS: dict[str, Any] = {"data": DataConfig, "model": ModelConfig, "train": TrainConfig}
FIELDS = {(part, field.name): field for part, kind in PARTS.items() for field in dataclasses.fields(kind)}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def plausible(kind: Any) -> st.SearchStrategy:
    """Values of a field's type, many of them allowed."""
    if typing.get_origin(kind) is typing.Literal:
        return st.sampled_from(typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return st.lists(st.sampled_from(["block1", "block2", "pre_head", "nowhere"]), max_size=2)
    options = typing.get_args(kind) or (kind,)
    simple: dict[Any, st.SearchStrategy] = {
        int: st.integers(-1, 40) | st.integers(),
        float: st.floats(-9, 9) | st.floats(0, 1),
        bool: st.booleans(),
        str: st.text(max_size=9),
        type(None): st.none(),
    }
    return st.one_of(*(simple[option] for option in options))


@st.composite
def settings(draw) -> dict[str, dict[str, Any]]:
    chosen = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=5, unique=True))
    values: dict[str, dict[str, Any]] = {}
    for part, name in chosen:
        values.setdefault(part, {})[name] = draw(plausible(FIELDS[part, name].type))
    return values


@given(settings())
def test_what_is_accepted_survives_yaml(tmp_path, values):
    config = outcome(from_dict, values)
    if isinstance(config, Refused):
        return
    (tmp_path / "c.yaml").write_text(to_yaml(config))
    assert load_yaml(tmp_path / "c.yaml") == config
    assert from_dict(to_dict(config)) == config
    for part, fields in values.items():
        for name, value in fields.items():
            kept = getattr(getattr(config, part), name)
            assert kept == (tuple(value) if isinstance(value, list) else value)


@given(ANYTHING)
def test_anything_as_settings(value):
    for values in (value, {"data": value}, {"train": {"steps": value}}, {"model": {"dropout_rate": value}}):
        outcome(from_dict, values)


@given(ANYTHING)
def test_anything_that_yaml_writes_is_read_again(value):
    text = yaml.safe_dump({"value": value})
    found = outcome(parse_settings, text.encode(), "c.yaml")
    if isinstance(found, Refused):
        assert "alias" in found  # which stands for a value that was written before
        return
    assert yaml.safe_dump(found) == text


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_as_settings(text):
    outcome(parse_settings, text if isinstance(text, bytes) else text.encode(errors="replace"), "c.yaml")


@given(st.sampled_from(sorted(FIELDS)), ANYTHING)
def test_any_value_of_any_field(place, value):
    """In Python too: a config holds values of its types, or is refused."""
    config = outcome(Config().replace, **{place[1]: value})
    if not isinstance(config, Refused):
        yaml.safe_dump(to_dict(config))


def test_numbers_of_numpy_are_numbers():
    config = Config().replace(width=np.int64(7), learning_rate=np.float32(0.5), seed=np.uint8(3))
    assert (config.model.width, config.train.learning_rate, config.train.seed) == (7, 0.5, 3)
    assert {type(v) for v in (config.model.width, config.train.seed)} == {int}
    for wrong in ({"width": True}, {"width": 8.0}, {"width": "8"}, {"one_pool": 1}, {"scenario": 3}):
        with pytest.raises(InputError, match="expected"):
            Config().replace(**wrong)


# Splits.


@given(st.integers(-2, 160), st.integers(-2, 160), st.integers(-2, 40), st.booleans())
def test_splits_of_trajectories(train, reg, test, one_pool):
    split = outcome(split_trajectories, train, reg, test, one_pool=one_pool)
    if isinstance(split, Refused):
        fits = (
            train + reg <= POOL_SIZE if one_pool else train <= len(TRAIN_POOL) and reg <= len(REG_POOL)
        ) and test <= len(TEST_POOL)
        assert not (fits and train >= 1 and reg >= 0 and test >= 1)
        return
    assert (len(split.train), len(split.reg), len(split.test)) == (train, reg, test)
    assert not set(split.train) & set(split.reg)
    assert set(split.train) | set(split.reg) <= set(range(POOL_SIZE))
    # A smaller split is the beginning of a larger one.
    if train > 1 and not one_pool:
        smaller = split_trajectories(train - 1, reg, test)
        assert (list(smaller.train), smaller.reg, smaller.test) == (list(split.train)[:-1], split.reg, split.test)


def car_set(train: int, test: int) -> CarSet:
    def read(name: str):
        raise AssertionError(f"{name}: names are enough to split")

    return CarSet("cars", tuple(f"a{n:02}" for n in range(train)), tuple(f"b{n:02}" for n in range(test)), read)


@given(*[st.integers(0, 12)] * 2, *[st.integers(0, 9)] * 3, st.integers(0, 2**32))
def test_splits_of_cars(there, own_test, train, reg, test, seed):
    cars = car_set(there, own_test)
    sizes = {"train_size": train, "reg_size": reg, "test_size": test}
    split = outcome(split_cars, cars, **sizes, seed=seed)
    if isinstance(split, Refused):
        assert min(train, reg, test) < 1 or there < (2 if own_test else 3)
        return
    parts = (split.train, split.reg, split.test)
    assert all(part == tuple(sorted(set(part))) for part in parts)
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert all(1 <= len(part) <= size for part, size in zip(parts, (train, reg, test), strict=True))
    assert set(split.test) <= set(cars.test or cars.train)
    assert set(split.train) | set(split.reg) <= set(cars.train)
    if not own_test and train + reg + test >= there:
        assert set().union(*parts) == set(cars.train)
    assert (split.note is None) == ([len(part) for part in parts] == [train, reg, test])
    assert split_cars(cars, **sizes, seed=seed) == split
