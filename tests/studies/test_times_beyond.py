"""Test times beyond those trained on: both parts are scored apart, and commands and pages say so."""

import json

import jax
import numpy as np
import pytest

from crossreg.cli.main import main
from crossreg.config import DataConfig, to_yaml
from crossreg.data.files.load import load_file
from crossreg.data.keys import evaluation_key
from crossreg.data.load import make_data
from crossreg.designs.grids import plan
from crossreg.metrics.calibration import coverage, ece_from_coverage
from crossreg.metrics.evaluation import evaluate, point_scores
from crossreg.metrics.test_times import scores_by_time, trained_steps
from crossreg.nn.build import build_model
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.report.page.rows import row_of_run, scored_row
from crossreg.report.page.write import write_report
from crossreg.report.tables.scores import mean_times, times_cells, times_sentence, times_sentences
from crossreg.runs.final_scores import final_metrics
from crossreg.runs.sweep_folder import read_rows, sealed_row
from crossreg.studies.sweep.scoring import score_trials
from made_fields import fields

TRAINED, TESTED, TRAJECTORIES = 3, 5, 4


@pytest.fixture(scope="module")
def predictor(data, tiny):
    model = build_model(tiny.replace(log_sigma_gen_start=-1.0).model, data.train, key=jax.random.key(4))
    return SurrogatePredictor(model, 5)


def test_both_parts_are_scored_as_their_pairs_are_in_all_of_test(data, tiny, predictor):
    found = scores_by_time(predictor, data, tiny.data)
    assert found is not None
    assert (found["trained"], found["tested"]) == (TRAINED, TESTED)
    points = point_scores(predictor, data.test, key=evaluation_key(0))
    step = np.tile(np.arange(TESTED), TRAJECTORIES)  # pairs are numbered trajectory by trajectory
    whole = evaluate(predictor, data.test)
    for name, chosen in (("within", step < TRAINED), ("beyond", step >= TRAINED)):
        scores = found[name]
        assert scores["pairs"] == chosen.sum() == {"within": 12, "beyond": 8}[name]
        assert scores["nll"] == pytest.approx(np.mean(points.nll[chosen]), rel=1e-5)
        error = np.asarray(points.mean)[chosen] - np.asarray(points.truth)[chosen]
        assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
        covered = coverage(points.pit[chosen], points.weight[chosen])
        assert scores["ece_mix"] == pytest.approx(float(ece_from_coverage(np.asarray(covered))), abs=1e-6)
        assert scores["std_mu"] == pytest.approx(np.mean(points.std_mu[chosen]), rel=1e-5)
        assert scores.keys() - {"pairs"} == whole.keys()
        assert scores["nll"] != pytest.approx(whole["nll"], rel=1e-3)
    both = (12 * found["within"]["nll"] + 8 * found["beyond"]["nll"]) / 20
    assert whole["nll"] == pytest.approx(both, rel=1e-5)


def test_only_times_beyond_those_of_train_are_set_apart(trajectories, tiny, predictor):
    cut = trajectories._replace(test=trajectories.test[:, : TRAINED + 1])
    same = make_data(cut, DataConfig(train_size=7, reg_size=6, test_size=4), check=False)
    assert trained_steps(same, tiny.data) is None
    assert scores_by_time(predictor, same, tiny.data) is None
    assert "test_times" not in final_metrics(predictor.model, same, tiny)


def test_pairs_that_are_not_scored_are_in_no_part(data, tiny, predictor):
    """Of 20 pairs 4 evenly spaced ones are all at the first step: nothing of them lies beyond."""
    found = scores_by_time(predictor, data, tiny.data, most_pairs=lambda pairs: 4)
    assert found is not None
    assert found["within"]["pairs"] == 4
    assert found["beyond"] is None
    assert found["within"]["nll"] == final_metrics(predictor.model, data, tiny.replace(scored_pairs=4))["test"]["nll"]


def test_train_evaluate_and_the_page_say_it(tiny, cached_waves, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(to_yaml(tiny.replace(steps=10)))
    out = tmp_path / "run"
    assert main(["train", "--config", str(tmp_path / "c.yaml"), "--out", str(out), "--quiet"]) == 0
    said = capsys.readouterr().out
    stored = json.loads((out / "metrics.json").read_text())
    times = stored["test_times"]
    assert [row[:2] for row in times_cells(times)] == [["test steps", "pairs"], ["1–3", "12"], ["4–5", "8"]]
    assert f"{times['beyond']['nll']:.3f}" in times_cells(times)[2]
    sentence = times_sentence(times)
    assert sentence.startswith("Train and reg have 3 steps of each trajectory, test has 5: where the system changes")
    lines = said.splitlines()
    assert sentence in lines
    assert lines[lines.index(sentence) - 1].split() == times_cells(times)[2]
    assert main(["evaluate", str(out), "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == stored
    page = write_report(out, None, progress=False).read_text()
    assert sentence in page
    assert f"<td>4–5</td><td>8</td><td>{times['beyond']['nll']:.3f}</td>" in page
    # Test that ends with train has nothing to say.
    cut = cached_waves._replace(test=cached_waves.test[:, :4])
    np.savez(tmp_path / "own.npz", u=np.concatenate([cut.train[:9], cut.test[:3]]))
    own = ["train", "--data", str(tmp_path / "own.npz"), "--config", str(tmp_path / "own.yaml"), "--quiet"]
    shape = "model: {width: 4, num_blocks: 2, num_modes: 5}\ntrain: {steps: 10, evaluation_samples: 3}\n"
    (tmp_path / "own.yaml").write_text(shape)
    assert main([*own, "--out", str(tmp_path / "same")]) == 0
    assert "Train and reg have" not in capsys.readouterr().out
    assert "test_times" not in json.loads((tmp_path / "same" / "metrics.json").read_text())


def test_a_sweep_says_it_and_its_rows_have_both_parts(tiny, cached_waves, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(to_yaml(tiny))
    out = tmp_path / "s"
    sweep = ["sweep", "grid", "--grid", "observed_fraction=0.5", "--steps", "10", "--config", str(tmp_path / "c.yaml")]
    sweep += ["--methods", "xreg,persistence", "--quiet", "--out", str(out), "--seeds"]
    assert main([*sweep, "1"]) == 0
    row = next(row for row in read_rows(out) if row["method"] == "xreg")
    times = row["test_times"]
    assert (times["trained"], times["tested"]) == (TRAINED, TESTED)
    assert [times[part]["pairs"] for part in ("within", "beyond")] == [12, 8]
    both = (12 * times["within"]["nll"] + 8 * times["beyond"]["nll"]) / 20
    assert row["test"]["nll"] == pytest.approx(both, rel=1e-5)
    assert times["beyond"]["ece_mix"] != times["within"]["ece_mix"]
    # The model of the row scores the same as a run.
    assert main(["extract", str(out), "--out", str(tmp_path / "run"), "--method", "xreg"]) == 0
    alone = json.loads((tmp_path / "run" / "metrics.json").read_text())["test_times"]
    assert times["beyond"]["nll"] == pytest.approx(alone["beyond"]["nll"], rel=1e-5)
    sentence = times_sentence(times)
    assert sentence in capsys.readouterr().out.splitlines()
    assert f"- {sentence}" in (out / "table.md").read_text().splitlines()
    # A row of before stays as it is; the others of a sweep that goes on have both parts.
    _, first = (out / "rows.jsonl").read_text().splitlines()
    old = {key: value for key, value in json.loads(first).items() if key not in ("test_times", "sha256")}
    with (out / "rows.jsonl").open("w") as file:
        file.write(sealed_row(old))
    assert main([*sweep, "2"]) == 0
    rows = {(row["method"], row["seed"]): row for row in read_rows(out)}
    assert rows.pop((old["method"], old["seed"])) == old
    assert [row["test_times"]["tested"] for row in rows.values()] == 3 * [TESTED]
    assert capsys.readouterr().out.splitlines().count(f"- {sentence}") == 1
    page = write_report(out, None, progress=False).read_text()
    ours = [row["test_times"] for row in rows.values() if row["method"] == "xreg"]
    beyond = np.mean([times["beyond"]["nll"] for times in ours])
    shown = page.partition("Within and beyond the times of training</h4>")[2].partition("</table>")[0]
    assert "<span>0.5 observed, 7 trajectories</span>" in shown
    assert f'<th scope="row">xreg</th><td>4–5</td><td>8</td><td>{beyond:.3f}</td>' in shown
    assert shown.count('<th scope="row">') == 4
    assert page.count(sentence) == 1


def test_a_sweep_without_later_times_has_nothing_to_say(tiny, trajectories, tmp_path, monkeypatch):
    cut = trajectories._replace(test=trajectories.test[:, : TRAINED + 1])
    trials = plan("grid", methods="persistence", seeds=1, grid=["observed_fraction=0.5"], base=tiny)
    [(_, row)] = score_trials({"k": trials[0]}, {}, cut)
    assert "test_times" not in row
    assert times_sentences([row, {"test_times": None}, {"test_times": {"trained": "3", "tested": 5}}]) == []


def test_means_over_runs_are_those_of_what_they_have():
    one = {"trained": 3, "tested": 5, "within": {"pairs": 12, "nll": 1.0, "rmse": 3.0}, "beyond": None}
    other = one | {"within": {"pairs": 12, "nll": 2.0, "rmse": None}, "beyond": {"pairs": 8, "nll": 7.0}}
    assert mean_times([one, other]) == {
        "trained": 3,
        "tested": 5,
        "within": {"pairs": 12, "nll": 1.5, "rmse": 3.0},
        "beyond": {"pairs": 8, "nll": 7.0},
    }


def test_splits_in_time_say_that_test_is_later(tiny, tmp_path, capsys):
    np.save(tmp_path / "own.npy", fields(samples=2, times=13))
    split = load_file(tmp_path / "own.npy", split="time")
    config = DataConfig(data=str(tmp_path / "own.npy"), split="time", train_size=None, reg_size=None, test_size=None)
    assert trained_steps(split, config) == 0
    model = build_model(tiny.model, split.train, key=jax.random.key(0))
    found = scores_by_time(SurrogatePredictor(model, 2), split, config)
    assert found == {"trained": 0, "tested": split.test.pairs_per_row, "within": None, "beyond": None}
    assert found is not None
    assert "split by time" in times_sentence(found)
    assert times_cells(found) == []
    assert main(["data", "check", str(tmp_path / "own.npy"), "--picture", str(tmp_path / "p.png")]) == 0
    assert "test is then later than anything that is learned from" in capsys.readouterr().out


def test_a_page_takes_no_times_but_numbers(tiny):
    """Files may hold anything, and may be of before there were parts."""
    metrics = {name: {"nll": 1.0} for name in ("test", "reg", "train")}
    for given, kept in (
        (None, None),
        ("x", None),
        ({"trained": "3", "tested": 5}, None),
        ({"trained": 3, "tested": 5, "within": {"nll": 1.0}, "beyond": 7}, (None, None)),
        ({"trained": 3, "tested": 5, "within": {"nll": "x", "pairs": 4}, "beyond": None}, (4.0, None)),
    ):
        row = row_of_run("r", tiny, metrics | {"test_times": given}, [])
        times = scored_row(row)["test_times"]
        if kept is None:
            assert times is None
        else:
            parts = [part and part["pairs"] for part in (times["within"], times["beyond"])]
            assert tuple(parts) == kept
            times_cells(times)
