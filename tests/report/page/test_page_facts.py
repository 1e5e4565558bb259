"""The facts and the tables of a page: each is of the setting, the split and the runs that it names."""

import re
from pathlib import Path

from made_runs import write_run

from crossreg.config import Config
from crossreg.report.page.folders import Found, Run, Sweep, find
from crossreg.report.page.lines import make_group
from crossreg.report.page.parts import scores
from crossreg.report.page.settings import what_was_run
from crossreg.report.page.unfinished import Unfinished
from crossreg.report.page.write import make_groups
from crossreg.report.shared.html import word

HERE = Path("runs")


def facts(page: str) -> dict[str, str]:
    """The first facts of a part of a page."""
    [shown, *_] = re.findall(r'<dl class="facts">(.*?)</dl>', page)
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", shown))


def rows_of(page: str, label: str) -> list[list[str]]:
    """The cells of a table of a page, without its head."""
    [inner] = re.findall(rf'aria-label="{label}">.*?<tbody>(.*?)</tbody>', page)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", inner)]


def test_facts_of_runs_are_those_of_their_settings():
    def run(name: str, device: str, **fields) -> Run:
        return Run(name, HERE / name, Config().replace(**fields), {"jax": "9.8", "device": device}, {}, [], "finished")

    one = run("one", "gpu", observed_fraction=0.4, train_size=20, reg_size=5, steps=1500, seed=3)
    two = run("two", "cpu", observed_fraction=0.9, train_size=30, reg_size=6, steps=200, seed=7)
    page = what_was_run(Found("all", runs=[one, two]))
    assert facts(page) == {
        "scenario": "diff_ks", "observed": "0.4, 0.9", "train trajectories": "20, 30", "reg trajectories": "5, 6",
        "steps": "200, 1,500", "seeds": "3, 7", "device": "cpu, gpu", "versions": "jax 9.8",
    }  # fmt: skip


def test_facts_of_a_sweep_are_those_of_its_rows_and_of_its_last_start():
    rows = [
        {"method": method, "observed_fraction": 0.7, "train_size": size, "reg_size": 9, "steps": 40, "seed": seed}
        for method, size, seed in (("xreg", 20, 1), ("dropout", 30, 2))
    ]
    starts = [{"jax": "1.2", "device": "an old one"}, {"jax": "3.4", "device": "a new one"}]
    sweep = Sweep("s", HERE, {"name": "paper", "starts": starts}, rows, {}, 5, "today")
    assert facts(what_was_run(Found("all", sweeps=[sweep]))) == {
        "sweep": "paper", "finished runs": "2, 5 missing", "methods": "dropout, xreg", "observed": "0.7",
        "train trajectories": "20, 30", "steps": "40", "seeds": "1, 2", "device": "a new one", "versions": "jax 3.4",
        "last row written": "today",
    }  # fmt: skip


def test_an_incomplete_run_says_how_far_the_furthest_of_its_trainings_is():
    histories = {"a": [{"step": 10}, {"step": 1200}], "b": [{"step": 10}, {"step": 900}]}
    item = Unfinished("half", "run", "it was stopped", {"train": {"steps": 3000}}, {}, histories)
    assert "<b>half</b> (run, 1,200 of 3,000 steps): it was stopped" in what_was_run(Found("all", unfinished=[item]))


def test_values_are_written_as_a_reader_would():
    assert [word(value) for value in (True, False, None, float("nan"), 0, [1, "a"], [])] == [
        "yes", "no", "–", "–", "0", "1, a", "–",
    ]  # fmt: skip


def test_residuals_and_both_parts_are_those_of_their_split(tmp_path):
    write_run(tmp_path / "run", Config().replace(steps=150), 0.0, with_fields=False)
    [group] = make_groups(find(tmp_path / "run"))
    cells = rows_of(scores(group), "Residuals and both parts.*?")
    found = {split: [float(text) for text in texts] for _, split, *texts in cells}
    assert found == {"train": [0.10, 0.17, 0.18], "reg": [0.07, 0.14, 0.15], "test": [0.04, 0.11, 0.12]}


def test_scores_by_time_are_means_over_the_runs_that_went_well():
    def row(seed: int, nll: float, *, diverged: bool = False) -> dict:
        times = {name: {"pairs": 4, "nll": nll + more} for name, more in (("within", 0.0), ("beyond", 1.0))}
        about = {"method": "xreg", "observed_fraction": 0.7, "train_size": 20, "reg_size": 9, "steps": 40, "seed": seed}
        scored = {split: {"nll": nll, "ece_mix": 0.1} for split in ("test", "reg", "train")}
        return about | scored | {
            "key": str(seed), "diverged": diverged, "changes": {}, "settings": {}, "sigma": {},
            "test_times": {"trained": 3, "tested": 5} | times,
        }  # fmt: skip

    rows = [row(0, 1.0), row(1, 50.0, diverged=True), row(2, 4.0)]
    page = scores(make_group("s", rows, {}, Sweep("s", HERE, {}, rows, {}, 0)))
    within, beyond = rows_of(page, "Within and beyond the times of training")
    assert (within[:4], beyond[1:4]) == (["xreg", "1–3", "4", "2.500"], ["4–5", "4", "3.500"])
