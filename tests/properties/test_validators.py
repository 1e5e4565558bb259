"""Every validator on any array: what passes is finite and can be used, what does not is an `InputError` in one line."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes
from outcomes import Refused, outcome

from crossreg.cars.meshes.surface import make_surface
from crossreg.config import Config
from crossreg.data.checks import check_apart, check_mask, check_trajectories, finite
from crossreg.data.split import Split
from crossreg.data.trajectories import Trajectories
from crossreg.errors import InputError
from crossreg.files.memory import available_bytes, check_room, in_words
from crossreg.runs.prediction import check_input
from crossreg.training.cohort import check_memory

ODD = np.array(["a", None, 1.0], object)
# Mostly real numbers, so that some pass.
DTYPES = st.one_of(st.sampled_from([np.dtype(n) for n in ("f4", "f8", "f2", "i8", "u1", ">f4")]), scalar_dtypes())
SPLIT = Split(range(0, 3), range(3, 5), range(0, 2))


def any_array(**shape):
    return DTYPES.flatmap(lambda dtype: arrays(dtype, array_shapes(min_dims=0, **shape)))


@given(any_array(max_dims=6, max_side=4))
@example(ODD)
@example(np.array(3.0))
@example(np.zeros((2, 0)))
def test_finite_numbers(array):
    found = outcome(finite, array, "x")
    with np.errstate(all="ignore"):
        good = array.dtype.kind in "fiu" and bool(np.isfinite(array.astype(np.float32)).all())
    assert good == isinstance(found, np.ndarray)
    if good:
        assert found.dtype == np.float32
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found, array.astype(np.float32))


@given(any_array(max_dims=5, max_side=4), st.integers(1, 3), st.integers(1, 3))
def test_prediction_inputs(array, channels, dims):
    found = outcome(check_input, array, channels, dims, "x.npy")
    if not isinstance(found, Refused):
        assert found.shape == array.shape
        assert found.ndim == dims + 2
        assert found.shape[1] == channels
        assert found.size
        assert np.isfinite(found).all()


@given(
    st.one_of(
        any_array(max_dims=2, max_side=4), arrays(np.bool_, (4,)), arrays(np.int8, (4,), elements=st.integers(0, 1))
    )
)
def test_masks(mask):
    found = outcome(check_mask, mask, (4,), "mask m.npy")
    numbers = mask.dtype.kind in "biuf" and mask.shape == (4,) and set(mask.tolist()) <= {0, 1}
    assert isinstance(found, np.ndarray) == (numbers and bool(mask.any()))
    if isinstance(found, np.ndarray):
        assert found.dtype == bool
        np.testing.assert_array_equal(found, mask != 0)


def fields(seed: int, samples: int, times: int, *rest: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(samples, times, *rest)).astype(np.float32)


@given(any_array(max_dims=6, max_side=3), any_array(max_dims=6, max_side=3))
def test_any_trajectories(train, test):
    found = outcome(check_trajectories, Trajectories(train, test, {}, ""), SPLIT)
    if not isinstance(found, Refused):
        for array in (found.train, found.test):
            assert array.dtype == np.float32
            assert 4 <= array.ndim <= 6
            assert array.shape[1] >= 2
            assert np.isfinite(array).all()
        assert found.train.shape[2:] == found.test.shape[2:]
        assert np.ptp(found.train, axis=(0, 1, *range(3, found.train.ndim))).min() > 0


@given(st.data(), st.sampled_from([np.nan, np.inf, -np.inf]), st.sampled_from(["train", "test"]))
def test_one_number_that_is_none_is_found_where_it_is(data, wrong, name):
    good = {"train": fields(0, 5, 3, 2, 7), "test": fields(1, 2, 4, 2, 7)}
    place = tuple(data.draw(st.integers(0, size - 1)) for size in good[name].shape)
    good[name][place] = wrong
    sample, time, channel, point = place
    said = f"{name} is not finite, as float32, at trajectory {sample}, time {time}, channel {channel}, point ({point},)"
    with pytest.raises(InputError) as caught:
        check_trajectories(Trajectories(good["train"], good["test"], {}, ""), SPLIT, "mine")
    assert str(caught.value) == f"mine: {said}; expected finite numbers"


@given(st.integers(0, 1), st.floats(-(2.0**99), 2.0**99, width=32), st.booleans())
def test_a_channel_without_variance_is_named(channel, value, both):
    train = fields(0, 5, 3, 2, 7)
    train[:, :, slice(None) if both else channel] = value
    with pytest.raises(InputError, match="no variance, it is" if both else f"no variance in channel {channel}"):
        check_trajectories(Trajectories(train, fields(1, 2, 4, 2, 7), {}, ""), SPLIT)


@given(st.data())
def test_a_trajectory_in_two_splits_is_found(data):
    """Whole, longer or shorter, or beginning where another is under way; and what is not there is not found."""
    splits = {"train": fields(0, 3, 3, 2, 30), "reg": fields(1, 2, 3, 2, 30), "test": fields(2, 2, 6, 2, 30)}
    check_apart(splits, "mine")
    one, other = data.draw(st.permutations(sorted(splits)))[:2]
    own = data.draw(st.integers(0, len(splits[one]) - 1))
    sample = data.draw(st.integers(0, len(splits[other]) - 1))
    time = data.draw(st.integers(0, splits[other].shape[1] - 1))
    splits[one][own, 0] = splits[other][sample, time]
    with pytest.raises(InputError, match="expected splits without a field in common"):
        check_apart(splits, "mine")
    # One value that differs makes another field; a flow at rest is the same in all.
    splits[one][own, 0, 1, data.draw(st.integers(0, 29))] += 1
    splits[one][own, 1] = splits[other][sample, time] = 0.5
    check_apart(splits, "mine")


def test_the_places_where_a_field_is_found_twice_are_named():
    """Where several trajectories start with the field, the first of them."""
    splits = {"train": fields(0, 4, 3, 2, 30), "test": fields(2, 2, 6, 2, 30)}
    splits["train"][[1, 3], 0] = splits["test"][1, 4]
    said = "trajectory 1 of train starts with the field that trajectory 1 of test has at time 4"
    with pytest.raises(InputError, match=said):
        check_apart(splits, "mine")


@given(any_array(max_dims=3, max_side=6), any_array(max_dims=2), st.none() | any_array(max_dims=2, max_side=6))
def test_any_arrays_as_a_car(vertices, pressure, faces):
    outcome(make_surface, "car", vertices, pressure, faces)


NUMBERS = st.one_of(st.floats(-10, 10, width=32), st.sampled_from([0.0, 1e-30, 1e30, -1e30, 1e38, np.nan, np.inf]))


@given(
    arrays(np.float32, (8, 3), elements=NUMBERS),
    arrays(np.float32, (8,), elements=NUMBERS),
    st.none() | arrays(np.int64, st.tuples(st.integers(0, 12), st.sampled_from([3, 4])), elements=st.integers(-1, 8)),
    st.none() | arrays(np.float32, (8, 3), elements=NUMBERS),
)
@pytest.mark.filterwarnings("ignore")
def test_any_numbers_as_a_car(vertices, pressure, faces, normals):
    found = outcome(make_surface, "car", vertices, pressure, faces, normals)
    if not isinstance(found, Refused):
        assert all(np.isfinite(a).all() for a in (found.vertices, found.pressure, found.normals))
        np.testing.assert_allclose(np.linalg.norm(found.normals, axis=1), 1, rtol=1e-6)
        assert found.faces is None or (found.faces.min() >= 0 and found.faces.max() < 8)


SIZES = st.integers(1, 2**31 - 1)


@given(SIZES, SIZES, SIZES, SIZES, st.integers(1, 1000), SIZES, st.lists(SIZES, min_size=2, max_size=4))
def test_settings_of_any_size_take_no_memory(width, batch, samples, modes, blocks, evaluated, shape):
    """A size is accepted or refused by arithmetic alone, and what is accepted does fit."""
    config = Config().replace(
        width=width, batch_size=batch, num_samples=samples, num_modes=modes, num_blocks=blocks,
        evaluation_samples=evaluated,
    )  # fmt: skip
    tracemalloc.start()
    found = outcome(check_memory, config, tuple(shape))
    assert tracemalloc.get_traced_memory()[1] < 2**18
    tracemalloc.stop()
    if found is None:
        points = math.prod(shape)
        assert 4 * batch * samples * points * width < 1e12
        assert 4 * width**2 * modes * blocks < 1e12
    else:
        assert "bytes" in found
        assert "this device has" in found


@given(st.integers(0, 10**40), st.integers(0, 2**50))
def test_room(needed, there):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crossreg.files.memory.available_bytes", lambda: there)
        found = outcome(check_room, needed, "it")
    assert (found is None) == (needed <= there)
    assume(needed < 2**20)
    assert in_words(needed) == f"{needed} bytes"


def test_there_is_some_memory_and_no_more_than_the_machine_has():
    assert 2**20 < available_bytes() < 2**60


@given(st.text(max_size=3000))
def test_an_error_is_one_line_whatever_is_in_it(text):
    said = str(InputError(text))
    assert said.isprintable()
    assert len(said) <= 1000
