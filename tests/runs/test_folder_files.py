"""A folder's lock and its manifest by themselves."""

import subprocess
import sys

import pytest

from crossreg.errors import InputError
from crossreg.files.whole import replacing
from crossreg.runs.safeguards import manifest
from crossreg.runs.safeguards.locks import locked
from crossreg.runs.safeguards.manifest import (
    check_files,
    drop,
    entered,
    file_digest,
    is_sound,
    read_manifest,
    recorded,
    vouch,
)
from crossreg.runs.safeguards.saving import USUAL
from crossreg.runs.safeguards.snapshots import SnapshotStore


def test_a_folder_has_one_process_at_a_time(tmp_path):
    """Not a second block of this process, and not another process; then again."""
    ask = (
        "import sys, pathlib; from crossreg.runs.safeguards.locks import locked\n"
        "with locked(pathlib.Path(sys.argv[1]), 'training'): print('inside')"
    )
    command = [sys.executable, "-c", ask, str(tmp_path)]
    with locked(tmp_path, "training"):
        with pytest.raises(InputError, match="in use by another training"), locked(tmp_path, "training"):
            pass
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.stdout == ""
        assert "in use by another training" in refused.stderr
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "inside\n"


def write(folder, name: str, text: str) -> None:
    with recorded(folder, name) as file:
        file.write(text.encode())


def test_a_file_is_as_it_was_written_or_refused(tmp_path):
    write(tmp_path, "a", "one")
    write(tmp_path, "b", "two")
    check_files(tmp_path, ["a", "b", "missing"])
    (tmp_path / "b").write_text("twp")  # as long as before
    check_files(tmp_path, ["a"])
    assert (is_sound(tmp_path, "a"), is_sound(tmp_path, "b"), is_sound(tmp_path, "missing")) == (True, False, False)
    with pytest.raises(InputError, match="b: is corrupted"):
        check_files(tmp_path, ["a", "b"])
    # One file in place of another is harm, too.
    (tmp_path / "b").write_text("one")
    with pytest.raises(InputError, match="b: is corrupted"):
        check_files(tmp_path, ["b"])
    (tmp_path / "c").write_text("of somebody else")
    with pytest.raises(InputError, match=r"c: is not listed in manifest\.json"):
        check_files(tmp_path, ["c"])
    check_files(tmp_path, [], growing=["c"])
    vouch(tmp_path, "c")
    (tmp_path / "c").write_text("changed since")
    with pytest.raises(InputError, match="c: is corrupted"):
        check_files(tmp_path, [], growing=["c"])


def test_while_a_file_is_replaced_both_contents_are_sound_and_then_the_new_one_alone(tmp_path):
    write(tmp_path, "a", "one")
    before = file_digest(tmp_path / "a")
    with entered(tmp_path, "a") as entry:
        with replacing(tmp_path / "a", announce=entry) as file:
            file.write(b"two")
        after = file_digest(tmp_path / "a")
        assert read_manifest(tmp_path) == {"a": [before, after]}
    assert read_manifest(tmp_path) == {"a": [after]}
    (tmp_path / "a").write_text("one")
    assert not is_sound(tmp_path, "a")


def test_entries_come_and_go_by_name(tmp_path):
    for name in ("a", "b", "c"):
        write(tmp_path, name, name)
    drop(tmp_path, "b")
    files = read_manifest(tmp_path)
    assert files is not None
    assert list(files) == ["a", "c"]
    manifest.begin_again(tmp_path, "c")
    assert read_manifest(tmp_path) == {"c": [file_digest(tmp_path / "c")]}


def test_a_manifest_that_somebody_has_changed_vouches_for_nothing(tmp_path):
    write(tmp_path, "a", "one")
    write(tmp_path, "b", "two")
    path = tmp_path / "manifest.json"
    text = path.read_text()
    one, two = (file_digest(tmp_path / name) for name in ("a", "b"))
    for changed in (text.replace(one, two), text.replace('"b"', '"x"'), text.replace("\n ", "\n"), text[:-2]):
        assert changed != text
        path.write_text(changed)
        with pytest.raises(InputError, match=r"manifest\.json: is corrupted"):
            read_manifest(tmp_path)


def test_snapshots_are_those_of_their_training_the_newest_first(tmp_path):
    kept = SnapshotStore(tmp_path, "a", "identity", USUAL)
    (tmp_path / "snapshots").mkdir()
    for name in ("a.000000020", "a.000000100", "a.000000003", "ab.000000500", "a.b.000000600", "a.12"):
        (tmp_path / "snapshots" / f"{name}.npz").touch()
    assert kept.steps() == [100, 20, 3]
    kept.clear(but=20)
    assert kept.steps() == [20]
    assert len(list((tmp_path / "snapshots").iterdir())) == 4
