"""What a folder holds follows from its files, finished or not, and whatever is corrupted in them."""

from pathlib import Path

import pytest

from crossreg.runs.kinds import kind_by, kind_of


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, None),
        ({"notes.txt": "x"}, None),
        ({"config.yaml": "data: {}\nmodel: {}\n"}, "run"),
        ({"config.yaml": "not: [yaml", "model.npz": ""}, "run"),
        ({"config.yaml": "cars: {}\n"}, "cars"),
        ({"config.yaml": "not: [yaml", "test_cars.npz": "", "summary.json": "{}"}, "cars"),
        ({"sweep.json": "{}"}, "sweep"),
        ({"sweep.json": "", "rows.jsonl": "", "config.yaml": "cars: {}"}, "sweep"),
        ({"summary.json": "{}"}, "quickstart"),
    ],
)
def test_a_kind_follows_from_the_files(tmp_path, files, kind):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert kind_of(tmp_path) == kind


def test_nothing_is_there():
    assert kind_of(Path("/nowhere/at/all")) is None
    assert kind_by({"config.yaml"}, {"data": {}}) == "run"
