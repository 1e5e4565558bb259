"""Which splits a finished run is scored on, how many of their pairs, and with how many samples."""

import jax
import pytest

from crossreg.metrics.evaluation import evaluate_all
from crossreg.nn.build import build_model
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.runs import final_scores
from crossreg.runs.final_scores import final_metrics
from crossreg.studies import train


@pytest.fixture(scope="module")
def model(data, tiny):
    return build_model(tiny.replace(log_sigma_gen_start=-1.0).model, data.train, key=jax.random.key(0))


@pytest.mark.parametrize("scored_pairs", [None, 7])
def test_each_split_is_scored_with_the_samples_of_an_evaluation(model, data, tiny, scored_pairs):
    metrics = final_metrics(model, data, tiny.replace(scored_pairs=scored_pairs))
    jobs = [(SurrogatePredictor(model, 5), pairs) for pairs in (data.test, data.reg, data.train)]
    expected = evaluate_all(jobs, most_pairs=lambda pairs: scored_pairs)
    for name, scores in zip(("test", "reg", "train"), expected, strict=True):
        assert {key: metrics[name][key] for key in scores} == scores


def test_forecasts_are_scored_as_far_as_asked_and_as_test_goes(model, data, tiny, monkeypatch):
    asked = []
    monkeypatch.setattr(final_scores, "rollout_scores", lambda predictor, data, steps: asked.append(steps) or {})
    length = data.test.pairs_per_row
    for steps in (2, length + 1, 0):
        found = final_metrics(model, data, tiny.replace(rollout_steps=steps, scored_pairs=2))
        assert ("rollouts" in found) == (steps > 0)
    assert asked == [2, length]


def test_fields_that_a_run_keeps_are_of_test_with_the_samples_of_an_evaluation(
    model, data, tiny, tmp_path, monkeypatch
):
    class StoppedError(Exception):
        pass

    def computed(predictor, pairs, **_):
        raise StoppedError(predictor.num_samples, pairs)

    monkeypatch.setattr(train, "compute_test_fields", computed)
    with pytest.raises(StoppedError) as stopped:
        train._score(model, data, tiny, tmp_path, progress=False)
    num_samples, pairs = stopped.value.args
    assert num_samples == 5
    assert pairs is data.test
