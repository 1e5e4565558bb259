"""Runs pytest in a copy of the tree, each time in a process of its own that is quick to start.

What is not of the tree is imported once; then each run is a fork. Reads lines of JSON, {"arguments": [...], "log":
path}; answers each with the process id, and with its status when it has ended. Nothing that runs threads is started
before a fork, and nothing of the tree but the environment of its tests is imported.
"""

import gc
import json
import os
import signal
import sys
from pathlib import Path

sys.path[0] = str(Path.cwd())  # as `python -m pytest` has it
sys.path.insert(0, str(Path.cwd() / "tests"))
import environment  # noqa: F401

sys.path.pop(0)
del sys.modules["environment"]

import beartype.door  # noqa: F401
import equinox  # noqa: F401
import h5py  # noqa: F401
import jax._src.xla_bridge as bridge
import jaxtyping  # noqa: F401
import matplotlib.pyplot  # noqa: F401
import numpy.testing  # noqa: F401
import optax  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import tyro  # noqa: F401

assert not bridge.backends_are_initialized(), "a fork would take over threads that it has not"
assert "crossreg" not in sys.modules, "what is imported here is not changed by a mutant"
gc.collect()
gc.freeze()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it; tests send it

for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        os.setsid()
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        status = 99
        try:
            status = int(pytest.main(asked["arguments"]))
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
