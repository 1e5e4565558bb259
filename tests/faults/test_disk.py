"""Disks that are full, read-only or gone: noticed, said in a line, and gone on from once they are back."""

import contextlib
import os
import platform
import resource
import shutil
import subprocess
import threading
import time

import pytest
from harness import state_hash

from crossreg.cli.main import main
from crossreg.errors import InputError
from crossreg.files import whole as files
from crossreg.machine.stopping import Stopped
from crossreg.runs.run_writer import check_same
from crossreg.runs.safeguards.locks import locked
from crossreg.runs.safeguards.saving import Saving
from crossreg.studies import train as module
from crossreg.studies.launchers import work
from crossreg.studies.train import train_run

OFTEN = Saving(every=0.0)


@contextlib.contextmanager
def tmpfs(folder, size: str):
    """A file system of its own size, where the system lets us have one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(scope="module")
def whole(waves, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    train_run(tiny, folder, progress=False)
    return folder


class AtLook(module.TrainingDisplay):
    """Does something at the first look of a training."""

    act = staticmethod(lambda: None)

    def update(self, name, report):
        super().update(name, report)
        if report.step == 10:
            AtLook.act()


@pytest.fixture
def at_look(monkeypatch):
    monkeypatch.setattr(module, "TrainingDisplay", AtLook)

    def set_act(act):
        AtLook.act = staticmethod(act)

    yield set_act
    set_act(lambda: None)


def test_a_disk_that_fills_up_is_said_and_the_training_goes_on_when_there_is_room(
    whole, config_file, tiny, tmp_path, at_look, capsys
):
    mine = tmp_path / "disk"
    with tmpfs(mine, "1m"):
        blocker = mine / "blocker"

        def fill():
            with contextlib.suppress(OSError), blocker.open("wb") as file:
                while True:
                    file.write(b"x" * 4096)
                    file.flush()

        at_look(fill)
        arguments = ["train", "--config", str(config_file), "--evaluate-every", "10", "--out", str(mine / "run")]
        assert main([*arguments, "--quiet", "--save-every", "0"]) == 3
        said = capsys.readouterr().err
        assert "not written (No space left on device); training continues" in said
        assert said.splitlines()[-1].startswith(f"crossreg: {mine / 'run'}")
        assert said.splitlines()[-1].endswith(": No space left on device; the same command resumes from here")
        assert not list((mine / "run").rglob("*.tmp"))
        at_look(lambda: None)
        blocker.unlink()
        assert main([*arguments, "--quiet"]) == 0
        assert "resumes from step" in capsys.readouterr().err
        shutil.copytree(mine / "run", tmp_path / "copy")
    assert state_hash(tmp_path / "copy") == state_hash(whole)


def test_a_read_only_folder_is_refused(waves, config_file, tmp_path, capsys):
    mine = tmp_path / "disk"
    with tmpfs(mine, "1m"):
        subprocess.run(["mount", "-o", "remount,ro", mine], check=True)
        for name in (["train"], ["sweep", "grid", "--grid", "mask_seed=3", "--methods", "persistence"]):
            assert main([*name, "--config", str(config_file), "--out", str(mine / "run"), "--quiet"]) == 2
            said = capsys.readouterr().err
            assert "cannot write here (Read-only file system)" in said
            assert said.count("\n") == 1


def test_a_folder_that_vanishes_ends_the_training(waves, config_file, tmp_path, at_look, capsys):
    folder = tmp_path / "run"
    at_look(lambda: shutil.rmtree(folder))
    arguments = ["train", "--config", str(config_file), "--evaluate-every", "10", "--out", str(folder)]
    assert main([*arguments, "--quiet", "--save-every", "0"]) == 3
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"crossreg: {folder}: the folder has vanished;"
        " the same command resumes once the folder is back, and starts anew without it"
    )


def test_files_that_may_not_grow_leave_the_snapshot_before_them(whole, tiny, tmp_path, at_look, capsys):
    """A limit on the size of files, as a quota sets it; for those who may not mount anything too."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    folder = tmp_path / "run"
    at_look(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard)))
    try:
        with pytest.raises(OSError, match="File too large"):
            train_run(tiny, folder, progress=False, saving=OFTEN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert "training continues" in capsys.readouterr().err
    at_look(lambda: None)
    train_run(tiny, folder, progress=False)
    assert state_hash(folder) == state_hash(whole)


def test_folders_outlive_a_power_cut_as_their_files_do(tmp_path, monkeypatch):
    """The entry of a new folder is in the one above it."""
    synced = []
    monkeypatch.setattr(files, "_sync_folder", synced.append)
    with locked(tmp_path / "a" / "b", "training"):
        assert synced == [tmp_path, tmp_path / "a"]
        files.make_folder(tmp_path / "a" / "b" / "snapshots")
        assert synced[2:] == [tmp_path / "a" / "b"]
    with pytest.raises(FileNotFoundError):  # a run folder that has vanished is not made again for its snapshots
        files.make_folder(tmp_path / "none" / "snapshots")


def test_only_what_a_kill_has_left_is_removed(tiny, tmp_path):
    theirs = {"notes.tmp", "model.npz.12.tmp", "a.2026-0123abcd.tmp", "b.1-0123abcd.crossreg.tmp"}
    for name in (*theirs, "model.npz.1-0123abcd.crossreg.tmp"):
        if name.startswith("b"):
            (tmp_path / name).symlink_to(tmp_path / "notes.tmp")
        else:
            (tmp_path / name).write_text("x")
    with pytest.raises(InputError, match="is not empty"):
        check_same(tmp_path, tiny)
    with locked(tmp_path, "training"):
        assert {path.name for path in tmp_path.iterdir()} == {*theirs, "lock"}


def test_a_stop_while_a_snapshot_is_written_leaves_a_good_one(whole, tiny, tmp_path, at_look):
    """Another thread saves at the same time, as it does where the main thread cannot."""
    threads = []

    def act():
        from crossreg.machine import stopping

        threads.extend(threading.Thread(target=stopping._savers[-1]) for _ in range(4))
        for thread in threads:
            thread.start()
        time.sleep(0.001)
        raise Stopped

    at_look(act)
    with pytest.raises(Stopped):
        train_run(tiny, tmp_path / "run", progress=False, saving=OFTEN)
    for thread in threads:
        thread.join()
    at_look(lambda: None)
    train_run(tiny, tmp_path / "run", progress=False)
    assert state_hash(tmp_path / "run") == state_hash(whole)


def test_what_a_lock_says_is_never_written_over(tmp_path):
    """The name may be that of a link to somebody's file, of their file, or of a pipe that nobody reads."""
    theirs = tmp_path / "thesis.tex"
    theirs.write_text("years of work")
    for number, make in enumerate((lambda path: path.symlink_to(theirs), os.mkfifo, os.mkdir)):
        folder = tmp_path / str(number)
        folder.mkdir()
        make(folder / "lock")
        with pytest.raises(InputError, match=r"cannot be locked \(lock: "), locked(folder, "training"):
            pass
        with pytest.raises(OSError, match=r"is not a file|symbolic link|directory"), work._alone(folder / "lock"):
            pass
    (tmp_path / "hard").mkdir()
    (tmp_path / "hard" / "lock").hardlink_to(theirs)
    with locked(tmp_path / "hard", "training"):
        pass
    with work._alone(tmp_path / "hard" / "lock"):
        pass
    assert theirs.read_text() == "years of work"
    # A worker says in the lock of a program who it is, where nobody but a worker has said anything.
    lock = tmp_path / "p.lock"
    for held in ("", f"{'another':<64} 4194303   \n"):
        lock.write_text(held)
        with work._alone(lock):
            assert lock.read_text().split() == [platform.node()[:64], str(os.getpid())]
    for theirs in (b"another 12\nmore\n", b"12", b"\xff\xfe"):
        lock.write_bytes(theirs)
        with work._alone(lock):
            pass
        assert lock.read_bytes() == theirs
