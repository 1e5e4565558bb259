"""Enough of Slurm to run submitit's job arrays on one machine: `sbatch`, `srun`, `sacct`, `scancel` and `scontrol`.

The first argument is which of them. What runs is kept in the folder FAKE_SLURM: ID.sh, ID_TASK.pid and ID_TASK.state.
"""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(os.environ.get("FAKE_SLURM", "."))


def sbatch(script: str) -> None:
    number = str(1000 + len(list(FOLDER.glob("*.sh"))))
    (FOLDER / f"{number}.sh").write_text(Path(script).read_text())
    print(f"Submitted batch job {number}")
    if "FAKE_SLURM_FULL" in os.environ:  # nothing ever begins
        return
    subprocess.Popen(
        [sys.executable, __file__, "array", number],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def array(number: str) -> None:
    """All tasks of an array, so many at a time as it says."""
    found = re.search(r"--array=0-(\d+)%(\d+)", (FOLDER / f"{number}.sh").read_text())
    tasks = [f"{number}_{i}" for i in range(int(found[1]) + 1)] if found else [number]
    with ThreadPoolExecutor(int(found[2]) if found else 1) as pool:
        list(pool.map(run_task, tasks))


def run_task(name: str) -> None:
    state, (number, _, index) = FOLDER / f"{name}.state", name.partition("_")
    if state.exists():  # cancelled before it began
        return
    state.write_text("RUNNING")
    about = {
        "SLURM_JOB_ID": number,
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": "1",
    }
    if index:
        about |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index}
    while True:
        task = subprocess.Popen(["bash", str(FOLDER / f"{number}.sh")], env=os.environ | about, start_new_session=True)
        (FOLDER / f"{name}.pid").write_text(str(task.pid))
        code = task.wait()
        if state.read_text() != "REQUEUED":
            break
        state.write_text("RUNNING")
    if state.read_text() == "RUNNING":
        state.write_text("COMPLETED" if code == 0 else "FAILED")


def scontrol(_: str, name: str) -> None:
    """`scontrol requeue`: the task begins again when it has ended."""
    (FOLDER / f"{name}.state").write_text("REQUEUED")
    with (FOLDER / "requeued").open("a") as file:
        file.write(f"{name}\n")


def preempt(pid: int) -> None:
    """Takes a running task's place for good, as PreemptMode=CANCEL does: SIGTERM, and nobody queues it again."""
    [file] = [file for file in FOLDER.glob("*.pid") if int(file.read_text()) == os.getpgid(pid)]
    file.with_suffix(".state").write_text("PREEMPTED")
    os.killpg(os.getpgid(pid), signal.SIGTERM)


def srun(*arguments: str) -> None:
    at = next(i for i, word in enumerate(arguments) if word.endswith("python") or word.endswith("python3"))
    values = dict(itertools.pairwise(arguments[:at]))
    names = {"%A": "SLURM_ARRAY_JOB_ID", "%a": "SLURM_ARRAY_TASK_ID", "%j": "SLURM_JOB_ID", "%t": "SLURM_PROCID"}
    for option, stream in (("--output", 1), ("--error", 2)):
        path = re.sub("%[Aajt]", lambda found: os.environ[names[found[0]]], values[option])
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.execvp(arguments[at], arguments[at:])


def sacct(*_: str) -> None:
    print("JobID|State|NodeList")
    for state in sorted(FOLDER.glob("*.state")):
        print(f"{state.stem}|{state.read_text()}|here")


def scancel(*numbers: str) -> None:
    with (FOLDER / "cancelled").open("a") as file:
        file.write(" ".join(numbers) + "\n")
    for number in numbers:
        script = FOLDER / f"{number}.sh"  # none for a single task of an array
        found = re.search(r"0-(\d+)%", script.read_text()) if script.exists() else None
        for name in [f"{number}_{i}" for i in range(int(found[1]) + 1)] if found else [number]:
            state, pid = FOLDER / f"{name}.state", FOLDER / f"{name}.pid"
            if not state.exists() or state.read_text() == "RUNNING":
                state.write_text("CANCELLED")
                if pid.exists():
                    os.killpg(int(pid.read_text()), signal.SIGTERM)
                    time.sleep(0.1)


if __name__ == "__main__":
    commands = (sbatch, srun, sacct, scancel, scontrol, array)
    {command.__name__: command for command in commands}[sys.argv[1]](*sys.argv[2:])
