"""The loop: deterministic, the same alone and among replicas, frozen where a number is not finite."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossreg.config import DataConfig, TrainConfig
from crossreg.data.keys import evaluation_key
from crossreg.data.load import make_data
from crossreg.data.pairs import Pairs
from crossreg.fitting import fit
from crossreg.methods.names import config_of
from crossreg.metrics.calibration import ece
from crossreg.nn.build import build_model
from crossreg.nn.heads import make_heads
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.objectives import mixture_nll
from crossreg.training import compiled, loop, step
from crossreg.training.cohort import start_cohort
from crossreg.training.compiled import split_scores
from crossreg.training.loop import train_replicas
from crossreg.training.packed import Packed
from crossreg.training.replicas import stack, unstack
from crossreg.training.step import _rate_factor, train_step


def run(configs, data, **fields):
    """Trains a cohort; returns its last report and all records."""
    configs = [config.replace(**fields) for config in configs]
    reports = list(train_replicas(*start_cohort(configs, data)))
    return reports[-1], [r.record for r in reports if r.record is not None]


def arrays(model):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array))]


def assert_equal(a, b):
    for x, y in zip(arrays(a), arrays(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def cohort(trajectories, tiny):
    """Three replicas that differ in seed, mask and sizes; their last step is no multiple of what they look at."""
    base = tiny.replace(steps=25)
    configs = [
        base.replace(seed=4),
        base.replace(seed=5, train_size=3, observed_fraction=0.4),
        base.replace(seed=6, reg_size=2, mask_seed=1),
    ]
    return configs, [make_data(trajectories, c.data) for c in configs]


@pytest.fixture(scope="module")
def trained(cohort):
    return run(*cohort)


@pytest.mark.parametrize("method", ["dropout", "unregularized", "xreg"])
def test_one_seed_gives_one_result(method, data, tiny):
    config = config_of(method, tiny)
    first, second = (run([config], [data])[0].models for _ in range(2))
    assert_equal(first, second)
    other = run([config], [data], seed=1)[0].models
    assert any((a != b).any() for a, b in zip(arrays(first), arrays(other), strict=True))


def test_a_run_is_the_same_alone_and_among_replicas(cohort, trained):
    configs, data = cohort
    for i, (config, split) in enumerate(zip(configs, data, strict=True)):
        alone, records = run([config], [split])
        for a, b in zip(arrays(unstack(alone.models, 0)), arrays(unstack(trained[0].models, i)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
        np.testing.assert_allclose(records[-1].reg_nll[0], trained[1][-1].reg_nll[i], rtol=1e-4)
        points = int(split.reg.num_pairs) * math.prod(split.reg.field_shape)
        np.testing.assert_allclose(records[-1].reg_ece[0], trained[1][-1].reg_ece[i], atol=2 / points)


def test_where_the_host_looks_changes_no_number(cohort, trained, monkeypatch):
    monkeypatch.setattr(loop, "_CHUNK_SECONDS", 1e-9)  # one step at a time
    report, records = run(*cohort)
    assert_equal(report.models, trained[0].models)
    for a, b in zip(records, trained[1], strict=True):
        np.testing.assert_array_equal(a.train_loss, b.train_loss)
        np.testing.assert_array_equal(a.reg_nll, b.reg_nll)


def test_history_has_a_line_per_evaluation(trained, tiny):
    _, records = trained
    assert [r.step for r in records] == [10, 20, 25]
    line = records[0].of(1)
    assert set(line["sigma"]) == {"block1", "block2", "block3_pre", "pre_head"}
    assert len(line["sigma"]["block1"]) == tiny.model.width
    assert line["diverged_at"] == -1


def test_reg_scores_are_those_of_the_mixture(cohort, trained):
    """The in-loop evaluation, on padded splits, against the mixture under the same noise: one key for every pair."""
    _configs, data = cohort
    report, records = trained
    i = 2  # the split that is padded most
    model = unstack(report.models, i)
    index = jnp.arange(int(data[i].reg.num_pairs))
    batch = data[i].reg.gather(index)
    keys = jax.vmap(lambda number: jax.random.fold_in(evaluation_key(0), number))(index)
    mixture = eqx.filter_jit(predict)(model, batch.x, key=keys, num_samples=4, antithetic=True)
    assert records[-1].reg_nll[i] == pytest.approx(float(mixture_nll(mixture, batch.y)), abs=1e-5)
    one_point = 1 / batch.y.size  # by rounding it may cross a level
    assert records[-1].reg_ece[i] == pytest.approx(float(ece(mixture.cdf(batch.y))), abs=one_point)
    assert records[-1].reg_std_mu[i] == pytest.approx(float(jnp.mean(jnp.sqrt(mixture.var_of_means))), rel=1e-4)


def test_rho_moves_every_k_reg_steps_only(data, tiny):
    for settle, due in ((0.0, [4, 8]), (0.4, [4, 8, 9, 10, 11]), (0.45, [4, 7, 8, 9, 10, 11])):
        config = tiny.replace(k_reg=4, steps=11, evaluate_every=1, settle=settle)
        records = run([config], [data])[1]
        sigma = np.stack([r.sigma["block1"][0].ravel() for r in records])
        moved = (np.diff(sigma, axis=0) != 0).any(axis=1)
        assert [i + 2 for i in np.flatnonzero(moved)] == due
        assert [np.isfinite(r.reg_loss[0]) for r in records] == [t in due for t in range(1, 12)]
        assert config.train.reg_updates_until(11) == len(due)


def test_reg_updates_are_counted():
    """Every fourth of 40 steps, and all of the last quarter: 4, 8, …, 28, and 31 to 40."""
    config = TrainConfig(steps=40, k_reg=4, settle=0.25)
    assert config.settled_after == 30
    assert [config.reg_updates_until(step) for step in (0, 3, 4, 11, 28, 30, 31, 40)] == [0, 0, 1, 2, 7, 7, 8, 17]


def test_updates_of_rho_do_not_depend_on_where_the_host_looks(data, tiny):
    """Settling begins off the multiples of k_reg; evaluations, and with them chunks, end anywhere."""
    config = tiny.replace(k_reg=4, steps=11, settle=0.45)
    fine, coarse = (run([config.replace(evaluate_every=every)], [data])[0] for every in (1, 11))
    assert_equal(fine.models, coarse.models)


@pytest.mark.parametrize("settle", [0.0, 0.45])
def test_loops_of_known_length_take_the_same_steps(data, tiny, monkeypatch, settle):
    """As a GPU runs it: whole periods of k_reg steps, and what does not fill one, behind each evaluation."""
    config = tiny.replace(k_reg=3, steps=23, evaluate_every=10, settle=settle)
    expected = run([config], [data])
    for module in (compiled, loop):
        monkeypatch.setattr(module, "has_periods", lambda state, config: True)
    found = run([config], [data])
    for a, b in zip(arrays(found[0].models), arrays(expected[0].models), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert [r.step for r in found[1]] == [10, 20, 23]
    monkeypatch.setattr(loop, "_CHUNK_SECONDS", 1e-9)  # a slow machine
    again = run([config], [data])
    assert_equal(found[0].models, again[0].models)


@pytest.mark.parametrize("k_reg", [3, 4, 5, 7, 60])
def test_which_program_takes_a_step_does_not_depend_on_the_speed_of_a_machine(tiny, k_reg):
    config = tiny.replace(k_reg=k_reg, evaluate_every=50, steps=430, settle=0.2).train

    def by_periods(chunk):
        taken, step = set(), 0
        while step < config.steps:
            stop = loop._next_stop(step, chunk, config, periods=True)
            assert stop <= (step // 50 + 1) * 50  # it looks at every evaluation
            if step % k_reg == 0 and stop % k_reg == 0 and stop <= config.settled_after:
                taken |= set(range(step, stop))
            step = stop
        return taken

    expected = by_periods(1)
    assert all(by_periods(chunk) == expected for chunk in (2, 8, 40, 1000))
    # All periods but those that an evaluation cuts.
    periods = range(0, config.settled_after - k_reg + 1, k_reg)
    whole = [first for first in periods if first // 50 == (first + k_reg - 1) // 50]
    assert expected == {step for first in whole for step in range(first, first + k_reg)}


def test_the_faster_engine_is_chosen_by_the_number_of_replicas(tiny, monkeypatch):
    assert step.with_engine(tiny.train, 512).engine == "reference"  # a CPU interprets kernels
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [step.with_engine(tiny.train, count).engine for count in (1, 3, 4, 512)] == ["reference"] * 2 + ["fused"] * 2
    fixed = tiny.replace(engine="fused").train
    assert step.with_engine(fixed, 1) is fixed


def test_what_is_compiled_ahead_is_what_trains(cohort, monkeypatch):
    traced = []
    monkeypatch.setattr(compiled, "train_step", lambda *args: traced.append(1) or train_step(*args))
    monkeypatch.setattr(compiled, "split_scores", lambda *args, **how: traced.append(2) or split_scores(*args, **how))
    configs, data = cohort
    started = start_cohort([config.replace(steps=3, batch_size=5) for config in configs], data)
    loop.compile_for(*started)
    assert set(traced) == {1, 2}
    traced.clear()
    list(train_replicas(*started))
    assert not traced


def test_training_learns(data, tiny):
    records = run([tiny], [data], steps=400, evaluate_every=100)[1]
    assert records[-1].train_loss[0] < records[0].train_loss[0] - 0.1


def test_a_diverged_replica_freezes_and_the_others_go_on(cohort):
    configs, data = cohort
    # Batches so small that the first bad one comes after some that are good.
    models, tasks, config = start_cohort([config.replace(batch_size=2) for config in configs], data)
    # Pairs of trajectory 3 are not finite; only replicas that train on it can meet them.
    assert isinstance(tasks.train, Pairs)
    spoiled = tasks.train.trajectories.at[3].set(jnp.inf)
    bad_tasks = eqx.tree_at(lambda t: t.train.trajectories, tasks, spoiled)
    healthy = list(train_replicas(models, tasks, config))[-1]
    reports = list(train_replicas(models, bad_tasks, config))
    report, records = reports[-1], [r.record for r in reports if r.record is not None]
    diverged = records[-1].diverged_at
    assert diverged[0] > 0
    assert diverged[2] > 0
    assert diverged[1] == -1  # has trajectories 0 to 2 only
    assert_equal(unstack(report.models, 1), unstack(healthy.models, 1))
    for model in (unstack(report.models, 0), unstack(report.models, 2)):
        assert all(np.isfinite(leaf).all() for leaf in arrays(model))
    assert records[-1].of(0)["train_loss"] is None
    # It stands where it stood before the first bad step.
    before = int(diverged[0]) - 1
    assert before > 0
    constant = dataclasses.replace(config, schedule="constant")
    stopped = list(train_replicas(models, tasks, dataclasses.replace(constant, steps=before)))[-1]
    frozen = list(train_replicas(models, bad_tasks, constant))[-1]
    assert_equal(unstack(stopped.models, 0), unstack(frozen.models, 0))


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("constant", [1, 1, 1, 1, 1, 1]),
        ("decay", [1, 1, 1, 0.75, 0.5, 0.005]),  # linear to 0 over the last fifth
        ("cosine", [1, 0.5, *(0.5 + 0.5 * np.cos(np.pi * np.array([0.8, 0.85, 0.9, 0.999])))]),
    ],
)
def test_schedules_are_their_formulas(name, factors, tiny):
    config = tiny.replace(schedule=name, steps=1000).train
    found = [float(_rate_factor(jnp.asarray(t), config)) for t in (1, 501, 801, 851, 901, 1000)]
    np.testing.assert_allclose(found, factors, atol=1e-6)


def test_a_cohort_must_share_its_program(cohort):
    configs, data = cohort
    with pytest.raises(ValueError, match="must share"):
        start_cohort([configs[0], configs[1].replace(width=5)], data[:2])


def test_fit_gives_the_model_and_its_history(data, tiny, capsys):
    from crossreg.nn.build import build_model

    model = build_model(tiny.model, data.train, key=jax.random.key(0))
    result = fit(data, model, tiny.train, steps=25)
    assert [line["step"] for line in result.history] == [10, 20, 25]
    assert not result.diverged
    assert predict(result.model, data.test.gather(jnp.arange(3)).x, key=jax.random.key(0)).mean.shape == (3, 2, 20)
    shown = capsys.readouterr()
    assert "reg ECE" in shown.err
    assert shown.out == ""
    fit(data, model, tiny.train, steps=25, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("fields", [{"mask_per": "step"}, {"mask_channel": True, "score_on": "observed"}])
def test_mask_options_train(trajectories, tiny, fields):
    config = tiny.replace(**fields)
    data = make_data(trajectories, config.data)
    assert np.isfinite(run([config], [data])[1][-1].reg_nll).all()


def test_arrays_that_are_not_trained_stay_as_they_are(data, tiny):
    class Shuffle(eqx.Module):
        order: jax.Array

        def __call__(self, h):
            return h[:, self.order]

    def model(stage):
        heads = make_heads(2, 2, key=jax.random.key(0))
        return Surrogate((stage,), heads)

    order = jnp.asarray(np.random.default_rng(0).permutation(20))
    held = fit(data, model(Shuffle(order)), tiny.train, progress=False)
    closed_over = fit(data, model(lambda h: h[:, order]), tiny.train, progress=False)
    assert held.history == closed_over.history
    assert held.model.stages[0].order.shape == (20,)  # pyright: ignore[reportFunctionMemberAccess]
    with pytest.raises(ValueError, match="equal in all that is not trained"):
        stack([model(Shuffle(order)), model(Shuffle(order[::-1]))])


def test_two_dimensions_train(tiny):
    rng = np.random.default_rng(0)
    from crossreg.data.trajectories import Trajectories

    fields = rng.normal(size=(150, 3, 1, 12, 14)).astype(np.float32)
    data = make_data(Trajectories(fields, fields[120:], {}, ""), DataConfig(train_size=3, reg_size=2, test_size=2))
    report, records = run([tiny], [data])
    assert np.isfinite(records[-1].reg_nll).all()
    assert unstack(report.models, 0).stages[1].spectral.weight_real.shape == (5, 10, 4, 4)


def test_what_fit_and_predict_cannot_use_is_named(data, tiny):
    model = build_model(tiny.model, data.train, key=jax.random.key(0))
    # Under the tests' own type checks, those speak first.
    with pytest.raises(TypeError):
        fit(data.train, model)  # pyright: ignore[reportArgumentType]
    with pytest.raises((ValueError, TypeError), match="batch"):
        predict(model, jnp.zeros((4, 40)), key=jax.random.key(0))


def test_a_gradient_far_longer_than_usual_is_shortened():
    optimizer = step._ADAM.init(jnp.zeros(5))
    usual = jnp.array([0.3, -2.0, 0.1, 0.0, 1.0])
    for _ in range(3):
        _, optimizer = step._ADAM.update(usual, optimizer)
    np.testing.assert_array_equal(step.shorten(3.9 * usual, optimizer, 4.0), 3.9 * usual)
    long = jnp.array([5.0, 0.0, 1e5, -3e5, 7.0])
    shortened = step.shorten(long, optimizer, 4.0)
    np.testing.assert_allclose(jnp.linalg.norm(shortened), 4 * jnp.linalg.norm(usual), rtol=1e-4)
    np.testing.assert_allclose(shortened / jnp.linalg.norm(shortened), long / jnp.linalg.norm(long), rtol=1e-4)


@pytest.mark.parametrize("first", [0.0, 1e-25])
def test_after_gradients_of_nothing_any_is_usual(first):
    """Their squares are 0: a limit of 0 would hold for ever."""
    optimizer = step._ADAM.init(jnp.zeros(3))
    gradient = jnp.array([3.0, -4.0, 0.0])
    np.testing.assert_array_equal(step.shorten(gradient, optimizer, 10.0), gradient)
    _, optimizer = step._ADAM.update(jnp.full(3, first), optimizer)
    np.testing.assert_array_equal(step.shorten(gradient, optimizer, 10.0), gradient)
    assert not step.shorten(jnp.zeros(3), optimizer, 10.0).any()


def test_a_gradient_whose_square_overflows_is_shortened_too():
    optimizer = step._ADAM.init(jnp.zeros(3))
    _, optimizer = step._ADAM.update(jnp.array([3.0, 0.0, 4.0]), optimizer)
    np.testing.assert_allclose(step.shorten(jnp.array([0.0, -1e30, 0.0]), optimizer, 10.0), [0, -50, 0], rtol=1e-4)


@pytest.mark.parametrize(("clip", "is_learned"), [(10.0, True), (0.0, False)])
def test_one_spike_does_not_end_learning(clip, is_learned, tiny):
    """Descent on (w - 3)², with one gradient 10⁶ times too long on the way."""
    config = tiny.replace(clip=clip).train
    w, optimizer = Packed.of({"w": jnp.zeros(2)}), step._ADAM.init(jnp.zeros(2))
    descend = jax.jit(lambda w, g, o: step._descend(w, dataclasses.replace(w, vector=g), o, 0.02, config))
    for t in range(600):
        w, optimizer = descend(w, 2 * (w.vector - 3) * (1e6 if t == 20 else 1.0), optimizer)
    assert bool(jnp.all(jnp.abs(w.vector - 3) < 0.1)) is is_learned


@pytest.mark.parametrize(
    ("steps", "every", "expected"), [(10_000, 250, 250), (2500, 250, 250), (300, 250, 30), (7, 250, 1), (300, 100, 100)]
)
def test_a_short_run_is_looked_at_ten_times_unless_asked_otherwise(steps, every, expected):
    assert TrainConfig(steps=steps, evaluate_every=every).record_every == expected
