"""The display of a sweep by workers: what it says of them, to a person and to `crossreg watch`."""

import io
import json

from crossreg.progress.jobs_display import JobsDisplay, Part


def test_it_says_what_goes_on(tmp_path):
    (tmp_path / "trained").mkdir()
    out = io.StringIO()
    lines = {name: tmp_path / "trained" / f"{name}.jsonl" for name in "ab"}
    parts = {"a": Part("xreg × 4", 100, 3.0, lines["a"]), "b": Part("dropout × 4", 100, 1.0, lines["b"])}
    display = JobsDisplay(parts, work=4.0, programs=2, trials=8, folder=tmp_path, stream=out)

    def state() -> tuple[str, int, float]:
        display._show(force=True)
        said = json.loads((tmp_path / "progress.json").read_text())
        return said["now"], said["step"], said["trained"]

    with display:
        display.look(2)
        assert state() == ("compiling", 0, 0.0)
        lines["a"].write_text('{"step": 50}\n')
        display._looked = float("-inf")
        display.look(2)
        assert state() == ("step", 50, 3 / 8)
        display.ended("b")
        display.scored(4)
        assert state() == ("step", 50, 5 / 8)
        display.ended("a")
        assert state()[0] == "scoring"
        assert out.getvalue().splitlines()[-1].endswith("left 0:00 + scoring  programs 2/2  jobs open 2")
        display.scored(4)
        display.look(0)
    assert out.getvalue().splitlines()[-1].endswith("scored 8/8  left 0:00  programs 2/2  jobs open 0")
    assert not (tmp_path / "progress.json").exists()
