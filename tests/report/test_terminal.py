"""Commands in a terminal and in a script: progress with the time left, tables, and JSON where a script wants it."""

import io
import json

import numpy as np
import pytest

from crossreg.cli.main import main
from crossreg.config import to_yaml
from crossreg.progress import display as progress
from crossreg.progress.display import CountDisplay


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def counted(stream: io.StringIO, clock: Clock, **options) -> str:
    """Ten things of 3 s each, behind 20 s of compilation."""
    with CountDisplay("things done", stream=stream, **options) as display:
        clock.now += 17
        add = display.adder(10)
        for _ in range(10):
            clock.now += 3
            add(1)
    return stream.getvalue()


def test_counts_have_the_time_left(clock):
    shown = counted(Terminal(), clock)
    assert "\rthings done 2/10  left 0:24 " in shown
    assert shown.endswith("things done 10/10  left 0:00   \n")
    lines = counted(io.StringIO(), clock).splitlines()
    # One line in ten seconds, and none of it moves the cursor.
    assert lines == ["things done 1/10  left –", "things done 5/10  left 0:15", "things done 9/10  left 0:03"]
    assert counted(Terminal(), clock, enabled=False) == ""


def test_nothing_is_shown_of_what_is_soon_done(clock):
    stream = Terminal()
    with CountDisplay("things done", stream=stream) as display:
        for number in range(10):
            clock.now += 0.15
            display.update(number + 1, 10)
    assert stream.getvalue() == ""


def test_evaluate_for_a_script(trained, capsys, monkeypatch):
    monkeypatch.setenv("CROSSREG_CACHE", str(trained.parents[1] / "cache"))
    assert main(["evaluate", str(trained), "--json", "--quiet"]) == 0
    said = capsys.readouterr()
    scores, stored = json.loads(said.out), json.loads((trained / "metrics.json").read_text())
    assert scores["test"]["nll"] == pytest.approx(stored["test"]["nll"])
    assert said.err == ""


def test_predict_says_what_it_has_written(trained, tmp_path, capsys):
    fields = json.loads((trained / "fields.json").read_text())
    x = np.random.default_rng(0).uniform(-0.9, 0.9, (3, fields["channels"], *fields["space"]))
    np.save(tmp_path / "x.npy", x)
    files = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npz")]
    assert main(["predict", str(trained), *files, "--quiet"]) == 0
    said = capsys.readouterr()
    assert f"mean {(3, fields['channels'], *fields['space'])}" in said.out
    assert said.err == ""


def test_a_training_ends_with_what_to_do_next(trained, tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CROSSREG_CACHE", str(trained.parents[1] / "cache"))
    (tmp_path / "c.yaml").write_text(to_yaml(tiny))
    out = tmp_path / "a run"
    flags = ["--config", str(tmp_path / "c.yaml"), "--steps", "20", "--quiet"]
    assert main(["train", "--out", str(out), *flags]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{out}: `crossreg report '{out}'` makes a page of it"
    assert main(["train", "--out", str(tmp_path / "b"), *flags, "--json"]) == 0
    json.loads(capsys.readouterr().out)
