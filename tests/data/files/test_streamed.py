"""Data in files: the same batches, training and scores as in memory, and no more of the file than needed."""

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import equinox as eqx
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import crossreg as xr
from crossreg.data.files.streamed import StreamedPairs, evenly_spaced
from crossreg.data.formats.source import Source
from crossreg.metrics import evaluation
from crossreg.nn.build import scale_pairs
from crossreg.predictors import batches
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.runs.fields.test_fields import compute_test_fields
from crossreg.training import feeding
from made_fields import fields

SMALL = xr.ModelConfig(width=4, num_blocks=2, num_modes=4)
TRAIN: dict[str, Any] = {
    "steps": 23,
    "batch_size": 3,
    "num_samples": 4,
    "evaluate_every": 10,
    "k_reg": 4,
    "settle": 0.3,
}


@pytest.fixture
def path(tmp_path):
    u = fields(1)
    u[2, 3, 0, ::4] = np.nan
    mask = np.random.default_rng(0).random((11, 6, 20)) < 0.8
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_dataset("u", data=u * 30 + 500, chunks=(1, 2, 2, 20))
        file["mask"] = mask
    return tmp_path / "u.h5"


def both(path, **options):
    return [xr.load(path, in_memory_gib=gib, **options) for gib in (1.0, 0.0)]


@pytest.mark.parametrize("mask_per", ["run", "trajectory", "pair", "step"])
def test_batches_are_those_of_data_in_memory(path, mask_per):
    options = {"mask_per": mask_per, "observed_fraction": 0.6, "mask_channel": True, "score_on": "observed"}
    memory, files = both(path, **options)
    for split in ("train", "reg", "test"):
        there, streamed = getattr(memory, split), getattr(files, split)
        assert isinstance(streamed, StreamedPairs)
        assert (streamed.in_channels, streamed.field_shape) == (there.in_channels, there.field_shape)
        numbers = np.random.default_rng(1).permutation(int(there.num_pairs))[:7]
        held = streamed.hold(numbers, capacity=9)
        for key in (None, jax.random.key(3)):
            expected, found = (p.gather(jnp.asarray(numbers), mask_key=key) for p in (there, held))
            for name in ("x", "y", "mask", "weight"):
                shape = np.broadcast_shapes(getattr(expected, name).shape, getattr(found, name).shape)
                np.testing.assert_array_equal(
                    *(np.broadcast_to(getattr(batch, name), shape) for batch in (expected, found)), err_msg=name
                )
    same = files.run_mask is None if memory.run_mask is None else (files.run_mask == memory.run_mask).all()
    assert same
    assert files.digest == memory.digest


@pytest.mark.parametrize("options", [{"time_stride": 2}, {"split": "time"}, {"train_horizon": 2, "test_horizon": 4}])
def test_steps_are_those_of_data_in_memory(path, options):
    """Whatever times of the file a split has: every pair is a step and the next of its own split."""
    memory, files = both(path, **options)
    for split in ("train", "reg", "test"):
        there, streamed = getattr(memory, split), getattr(files, split)
        assert (streamed.horizon, int(streamed.num_pairs)) == (there.horizon, int(there.num_pairs))
        numbers = np.arange(int(there.num_pairs))
        expected, found = (p.gather(jnp.asarray(numbers)) for p in (there, streamed.hold(numbers)))
        np.testing.assert_array_equal(found.x, expected.x)
        np.testing.assert_array_equal(found.y, expected.y)
        np.testing.assert_array_equal(found.weight, np.broadcast_to(expected.weight, found.weight.shape))
    assert files.train.units == memory.train.units


def test_rows_by_number_keep_their_masks(path):
    memory, files = both(path, mask_per="trajectory", observed_fraction=0.5)
    rows = [4, 1]
    expected = memory.train.of(rows).gather(jnp.arange(10))
    found = files.train.of(rows).hold(np.arange(10)).gather(jnp.arange(10))
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.mask, expected.mask)


@pytest.mark.parametrize("steps_per_block", [1, 5, 100])
def test_training_gives_the_same_numbers(path, monkeypatch, steps_per_block):
    """Whatever the size of blocks: parameters, history and scores of a training in memory."""
    memory, files = both(path, observed_fraction=0.7, mask_per="pair")
    monkeypatch.setattr(feeding, "_BLOCK_BYTES", steps_per_block * TRAIN["batch_size"] * 2 * 4 * 40)
    fits = []
    for data in (memory, files):
        model = xr.build_model(SMALL, data.train, key=jax.random.key(0))
        fits.append(xr.fit(data, model, progress=False, **TRAIN))
    leaves = [jax.tree.leaves(eqx.filter(fit.model, eqx.is_inexact_array)) for fit in fits]
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
    for one, other in zip(fits[0].history, fits[1].history, strict=True):
        for name in ("train_loss", "reg_loss", "reg_nll", "reg_ece"):
            assert other[name] == pytest.approx(one[name], rel=1e-4, abs=1e-4)
    scores = [xr.evaluate(fits[0].model, data.test, num_samples=5) for data in (memory, files)]
    for name, value in scores[0].items():
        np.testing.assert_allclose(np.asarray(scores[1][name]), np.asarray(value), rtol=1e-5, atol=1e-6, err_msg=name)


def test_rollouts_give_the_same_numbers(path, monkeypatch):
    """Windows of three pairs of a row of reg, and of two of a row of train, half as many as pairs of a batch.

    Settling begins inside a block of steps.
    """
    monkeypatch.setattr(feeding, "_BLOCK_BYTES", 3 * 2 * 3 * 2 * 4 * 40)
    how: dict[str, Any] = TRAIN | {"reg_horizon": 3, "train_rollout_steps": 2, "num_samples": 3, "batch_size": 4}
    config = dataclasses.replace(SMALL, lead_growth=True)
    fits = [
        xr.fit(data, xr.build_model(config, data.train, key=jax.random.key(0)), progress=False, **how)
        for data in both(path, observed_fraction=0.7, mask_per="step", reg_size=3)
    ]
    growth = fits[0].model.growth
    assert growth is not None
    assert growth.spread.all()
    leaves = [jax.tree.leaves(eqx.filter(fit.model, eqx.is_inexact_array)) for fit in fits]
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
    for one, other in zip(fits[0].history, fits[1].history, strict=True):
        for name in ("reg_loss", "train_loss"):
            assert other[name] == pytest.approx(one[name], rel=1e-4, abs=1e-4)


def test_test_fields_are_the_same(path):
    memory, files = both(path)
    model = xr.build_model(SMALL, memory.train, key=jax.random.key(0))
    predictor = SurrogatePredictor(model, 4)
    expected, found = (compute_test_fields(predictor, data.test) for data in (memory, files))
    for name in ("truth", "error", "std", "observed", "pit"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5, atol=1e-5)


def test_a_share_of_the_pairs_is_scored_evenly_spaced(path):
    memory, files = both(path)
    assert evenly_spaced(10, 4).tolist() == [0, 2, 5, 7]
    assert evenly_spaced(3, 4).tolist() == evenly_spaced(3, None).tolist() == [0, 1, 2]
    model = xr.build_model(SMALL, memory.train, key=jax.random.key(0))
    predictor = SurrogatePredictor(model, 4)
    some = [next(evaluation.evaluate_all([(predictor, d.train)], most_pairs=lambda _: 7)) for d in (memory, files)]
    assert some[0]["rmse"] == pytest.approx(some[1]["rmse"], rel=1e-5)
    points = evaluation.point_scores(predictor, memory.train, key=evaluation.evaluation_key(0))
    chosen = evenly_spaced(int(memory.train.num_pairs), 7)
    weight, error = (np.asarray(part, np.float64)[chosen] for part in (points.weight, points.mean - points.truth))
    assert some[0]["rmse"] == pytest.approx(np.sqrt((weight * error**2).sum() / weight.sum()), rel=1e-5)


def test_points_to_sort_are_kept_of_some_batches_alone(path, monkeypatch):
    memory, files = both(path)
    model = xr.build_model(SMALL, memory.train, key=jax.random.key(0))
    predictor = SurrogatePredictor(model, 4)
    whole = xr.evaluate(model, memory.test, num_samples=4)
    monkeypatch.setitem(batches._POINTS_PER_CALL, "cpu", 2 * 40)
    monkeypatch.setattr(evaluation, "_SORTED_POINTS", 5 * 40)
    launched = evaluation._launch(predictor, files.test, evaluation.evaluation_key(0))
    assert [batch.error.shape[0] for batch in launched] == [2, 0, 2, 0, 2]
    scores = evaluation._summarize(launched)
    for name in ("nll", "rmse", "crps", "ece_mix"):
        assert scores[name] == pytest.approx(whole[name], rel=1e-4)


def test_nothing_is_read_but_what_is_asked_for(path, monkeypatch):
    _, files = both(path)
    read = []
    original = Source.frames

    def counting(self, sample, times):
        read.append((sample, times))
        return original(self, sample, times)

    monkeypatch.setattr(Source, "frames", counting)
    files.train.hold(np.array([3, 3, 0, 7]))
    assert len(read) == 3
    assert all(times.stop - times.start == 2 for _, times in read)


def test_pairs_that_are_not_held_are_refused(path):
    _, files = both(path)
    with pytest.raises(ValueError, match="`hold` them first"):
        files.train.gather(jnp.arange(2))
    held = files.train.hold(np.array([0, 3]))
    for use in (held.gather, held.known):
        use(jnp.asarray([3, 0, 10**6]))  # what is beyond the last pair does not count
        with pytest.raises(ValueError, match="pair 1 is in a file and not held"):
            use(jnp.asarray([0, 1, 3]))


def test_a_split_may_be_empty(path):
    _, files = both(path, reg_size=0)
    plain = xr.ModelConfig(width=4, num_blocks=2, num_modes=4, feature_noise="none", generalization_head=False)
    model = xr.build_model(plain, files.train, key=jax.random.key(0))
    fit = xr.fit(files, model, steps=4, batch_size=2, progress=False)
    assert not fit.diverged


def test_what_goes_wrong_while_reading_ahead_is_told(path, monkeypatch):
    _, files = both(path)
    model = xr.build_model(SMALL, files.train, key=jax.random.key(0))
    monkeypatch.setattr(feeding, "_BLOCK_BYTES", 1)
    original, calls = Source.frames, []

    def failing(self, sample, times):
        calls.append(sample)
        if len(calls) > 60:
            raise xr.InputError("u.h5: not readable (gone)")
        return original(self, sample, times)

    monkeypatch.setattr(Source, "frames", failing)
    with pytest.raises(xr.InputError, match="gone"):
        xr.fit(files, model, progress=False, steps=100, batch_size=3, num_samples=4)


def test_a_model_starts_on_pairs_without_any_target(tmp_path):
    """So sparse that none of the pairs that are looked at was measured: standardised fields have a spread of 1."""
    u = fields(1, samples=4, times=502)
    u[:, 1:501:2] = np.nan  # of the 1,002 pairs of train every other one is looked at, whose targets these are
    np.save(tmp_path / "u.npy", u)
    data = xr.load(tmp_path / "u.npy")
    assert not (data.train.gather(scale_pairs(data.train)).weight > 0).any()
    model = xr.build_model(SMALL, data.train, key=jax.random.key(0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


def test_twenty_gigabytes_are_not_read(tmp_path, monkeypatch):
    """Of a sparse file of 21 GB with few real chunks, a training reads some hundred megabytes at most."""
    samples, times, points = 10_000, 512, 1024
    with h5py.File(tmp_path / "large.hdf5", "w") as file:
        shape, chunks = (samples, times, points), (1, 16, points)
        tensor = file.create_dataset("tensor", shape, "f4", chunks=chunks, fillvalue=np.nan)
        file["t-coordinate"] = np.arange(times + 1.0)
        x = 2 * np.pi * np.arange(points) / points
        for row in range(0, samples, 100):
            tensor[row, :32] = np.sin(x + row + 0.2 * np.arange(32)[:, None])
    assert (tmp_path / "large.hdf5").stat().st_size < 20e6
    read = []
    original = Source.frames

    def counting(self, sample, times):
        values = original(self, sample, times)
        read.append(values.nbytes)
        return values

    monkeypatch.setattr(Source, "frames", counting)
    data = xr.load(tmp_path / "large.hdf5", train_horizon=31)
    assert isinstance(data.train, StreamedPairs)
    assert int(data.train.num_pairs) == 7000 * 31
    model = xr.build_model(SMALL, data.train, key=jax.random.key(0))
    fit = xr.fit(data, model, steps=3, batch_size=4, num_samples=4, evaluation_samples=2, progress=False)
    assert not fit.diverged
    assert data.digest
    assert sum(read) < 100e6


def test_of_a_large_file_it_is_not_said_that_all_of_it_is_missing(tmp_path):
    with h5py.File(tmp_path / "large.hdf5", "w") as file:
        file.create_dataset("tensor", (20_000, 1024, 256), "f4", chunks=(1, 64, 256), fillvalue=np.nan)
        file["t-coordinate"] = np.arange(1025.0)
    with pytest.raises(xr.InputError, match=r"tensor has no value in the 2,048 fields of train that were looked at"):
        xr.load(tmp_path / "large.hdf5")


IN_A_PROCESS = """
import json, re, sys
import jax
import crossreg as xr

def peak():
    # Not `ru_maxrss`: that of a new process is at least that of the one which started it.
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

jax.numpy.zeros(3).block_until_ready()
before = peak()
data = xr.load(sys.argv[1], train_horizon=63)
model = xr.build_model(xr.ModelConfig(width=4, num_blocks=2, num_modes=4), data.train, key=jax.random.key(0))
fit = xr.fit(data, model, steps=3, batch_size=4, num_samples=2, evaluation_samples=2, progress=False)
print(json.dumps({"kind": type(data.train).__name__, "diverged": bool(fit.diverged), "growth": peak() - before}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says how much memory a process took")
def test_twenty_gigabytes_are_trained_on_in_one(tmp_path):
    """The largest resident set of a process, with its programs; `benchmarks/large_file.py` has a whole training."""
    samples, times, points = 20_000, 1024, 256
    x = 2 * np.pi * np.arange(points) / points
    with h5py.File(tmp_path / "large.hdf5", "w") as file:
        shape, chunks = (samples, times, points), (1, 64, points)
        tensor = file.create_dataset("tensor", shape, "f4", chunks=chunks, fillvalue=np.nan)
        file["t-coordinate"] = np.arange(times + 1.0)
        for row in range(0, samples, 100):
            tensor[row, :64] = np.sin(x + row + 0.2 * np.arange(64)[:, None])
    assert 4 * samples * times * points > 20e9
    quick = os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3"}
    command = [sys.executable, "-c", IN_A_PROCESS, str(tmp_path / "large.hdf5")]
    done = subprocess.run(command, env=quick, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], found["diverged"]) == ("StreamedPairs", False)
    assert 5e7 < found["growth"] < 1e9
