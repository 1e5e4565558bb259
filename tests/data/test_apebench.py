"""Real APEBench data: the protocol's facts, other scenarios, and the cache."""

import builtins
import dataclasses
import sys
from typing import Any

import numpy as np
import pytest

from crossreg.config import DataConfig
from crossreg.data import cache
from crossreg.data.apebench import cached_file, generate, load_trajectories
from crossreg.data.load import load
from crossreg.data.trajectories import Trajectories, digest
from crossreg.errors import InputError


@pytest.fixture(scope="module")
def ks():
    return load_trajectories(DataConfig())


def one_step_rmse(array):
    return float(np.sqrt(np.mean((array[:, 1:] - array[:, :-1]) ** 2)))


def test_the_protocols_facts(ks):
    assert ks.train.shape == (150, 11, 1, 160)
    assert ks.test.shape == (30, 201, 1, 160)
    # The system is chaotic and in float32, so a machine of another kind has other trajectories with the
    # same statistics: the tolerances are the spread over subsets of this size.
    assert ks.train[:50].std() == pytest.approx(0.342, abs=0.02)
    assert ks.test.std() == pytest.approx(0.320, abs=0.02)
    assert np.abs(ks.train.mean(-1)).max() < 1e-5
    assert one_step_rmse(ks.train) == pytest.approx(0.0097, abs=5e-4)
    assert one_step_rmse(ks.test) == pytest.approx(0.0095, abs=5e-4)


def test_persistence_at_full_observation_scores_what_the_protocol_says(ks):

    from crossreg.data.load import make_data
    from crossreg.metrics.evaluation import evaluate
    from crossreg.predictors.persistence import fit_persistence

    data = make_data(ks, DataConfig(observed_fraction=1.0))
    scores = evaluate(fit_persistence(data.train), data.test)
    assert scores["nll"] == pytest.approx(-3.24, abs=0.05)
    assert scores["rmse"] == pytest.approx(0.0095, abs=5e-4)


def test_another_scenario_in_two_dimensions(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path))
    data = load("diff_burgers", num_spatial_dims=2, num_points=12, train_horizon=2, test_horizon=3, train_size=4)
    assert data.train.trajectories.shape == (150, 3, 2, 12, 12)
    assert data.test.trajectories.shape == (30, 4, 2, 12, 12)
    assert len(list(tmp_path.glob("*.npz"))) == 1
    apebench = pytest.importorskip("apebench", reason="made by APEBench")
    sizes = {"num_train_samples": 150, "train_temporal_horizon": 2, "num_test_samples": 30, "test_temporal_horizon": 3}
    own = apebench.scenarios.scenario_dict["diff_burgers"](num_spatial_dims=2, num_points=12, **sizes)
    np.testing.assert_array_equal(data.train.trajectories, own.get_train_data())
    np.testing.assert_array_equal(data.test.trajectories, own.get_test_data())
    # Other starts, not only more steps from the same ones.
    assert not np.isclose(data.test.trajectories[:, 0], data.train.trajectories[:30, 0]).all((1, 2, 3)).any()


def test_trajectories_of_other_settings_have_a_file_of_their_own():
    changes: list[dict[str, Any]] = [{"num_points": 96}, {"num_spatial_dims": 2}, {"train_horizon": 7}]
    changes += [{"test_horizon": 7}, {"scenario": "diff_adv"}]
    files = [cached_file(DataConfig(**change)) for change in ({}, *changes)]
    assert len(set(files)) == 6
    # Sizes of splits and masks choose among the same trajectories.
    assert cached_file(DataConfig(train_size=20, reg_size=3, test_size=5, mask_seed=4, one_pool=True)) == files[0]
    # Train and reg share their trajectories, so that the longer of the two decides.
    assert cached_file(DataConfig(reg_steps=25)) == cached_file(DataConfig(train_horizon=25))
    assert cached_file(DataConfig(reg_steps=7)) == files[0]


def test_an_unknown_scenario_is_named_with_its_neighbours():
    with pytest.raises(
        InputError, match="scenario is diff_sk: not one of APEBench's 60 scenarios; did you mean diff_ks"
    ):
        generate(DataConfig(scenario="diff_sk"))
    with pytest.raises(InputError, match="not the name of an APEBench scenario"):
        load_trajectories(DataConfig(scenario="../etc"))


def test_a_copied_cache_file_is_enough_without_apebench(cached_waves, tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "apebench", None)
    loaded = load_trajectories(tiny.data)
    np.testing.assert_array_equal(loaded.train, cached_waves.train)
    assert loaded.origin == {"source": "travelling waves"}


def test_without_cache_and_without_apebench_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path))
    real_import = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "apebench":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InputError, match=r"no cached data .* apebench is not installed"):
        load_trajectories(DataConfig())


def test_data_are_generated_once(tmp_path, monkeypatch, trajectories):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path / "deep" / "er"))
    calls = []

    def make():
        calls.append(1)
        return trajectories

    first = cache.load_or_generate("waves", make)
    second = cache.load_or_generate("waves", make)
    assert calls == [1]
    np.testing.assert_array_equal(first.test, second.test)
    assert second.digest == digest(second.train, second.test)


@pytest.mark.parametrize("damage", ["flip", "truncate", "other file"])
def test_a_damaged_cache_file_is_noticed_and_made_again(tmp_path, monkeypatch, trajectories, damage, capsys):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path))
    cache.load_or_generate("waves", lambda: trajectories)
    path = tmp_path / "waves.npz"
    if damage == "flip":
        with np.load(path) as file:
            arrays = dict(file)
        arrays["train"][3, 1, 0, 4] += 1e-3
        np.savez(path, **arrays)
    else:
        path.write_bytes(path.read_bytes()[:5000] if damage == "truncate" else b"no archive")
    with pytest.raises(InputError, match=r"waves\.npz"):
        cache.read(path)
    again = cache.load_or_generate("waves", lambda: trajectories)
    np.testing.assert_array_equal(again.train, trajectories.train)
    assert "making it again" in capsys.readouterr().err
    assert cache.read(path).digest == trajectories.digest


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"num_points": 10**9},
            r"num_points is 1000000000.* would take \d+ bytes \(\d+\.\d TiB\) of memory; .* are available",
        ),
        ({"num_points": 10**6, "num_spatial_dims": 3, "scenario": "diff_diff"}, r"would take 10\^\d+ bytes of memory"),
        ({"test_horizon": 2 * 10**9}, "test_horizon is 2000000000: .* would take"),
    ],
)
def test_trajectories_that_no_memory_holds_are_not_begun(fields, said):
    pytest.importorskip("apebench", reason="made by APEBench")
    with pytest.raises(InputError, match=said):
        generate(DataConfig(**fields))


def test_a_copied_file_is_looked_at(cached_waves, tiny, tmp_path):
    """Its content matches its hash, and is not finite all the same."""
    [path] = (tmp_path / "cache").iterdir()
    cached_waves.train[3, 1, 0, 7] = np.nan
    cache.write(path, cached_waves)
    with pytest.raises(InputError, match="train is not finite, as float32, at trajectory 3, time 1, channel 0, point"):
        load_trajectories(tiny.data)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scenario": "diff_adv"}, "holds apebench diff_ks on .* is named for others"),
        ({"train_horizon": 3}, "with 4 steps to learn from"),
        ({"test_horizon": 4}, "and 5 to test"),
        ({"num_points": 9}, r"on \(8,\) points"),
        ({"num_spatial_dims": 2}, r"on \(8,\) points"),
    ],
)
def test_a_cached_file_under_another_name_is_refused(changes, said, tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSREG_CACHE", str(tmp_path))
    own = DataConfig(train_horizon=4, test_horizon=5)
    rng = np.random.default_rng(0)
    train, test = (rng.normal(size=(n, steps, 1, 8)).astype(np.float32) for n, steps in ((150, 5), (30, 6)))
    cache.write(cached_file(own), Trajectories(train, test, {"source": "apebench diff_ks"}, digest(train, test)))
    assert load_trajectories(own).train.shape == (150, 5, 1, 8)
    other = dataclasses.replace(own, **changes)
    cached_file(own).rename(cached_file(other))
    with pytest.raises(InputError, match=said):
        load_trajectories(other)
