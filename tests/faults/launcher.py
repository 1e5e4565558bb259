"""Starts crossreg commands as processes of their own that are quick to start: all is imported once, then forked.

Reads lines of JSON, {"arguments": [...], "log": path}; answers each with the process id, and with its status when it
has ended. Nothing that runs threads is started before a fork.
"""

import json
import os
import sys

import jax._src.xla_bridge as bridge

import crossreg.cars.study
import crossreg.report.figures.write
import crossreg.studies.sweep.extract
import crossreg.studies.sweep.run
import crossreg.studies.train  # noqa: F401
from crossreg.cli.main import run

assert not bridge.backends_are_initialized(), "a fork would take over threads that it has not"

for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(log, stream)
        sys.argv = ["crossreg", *asked["arguments"]]
        try:
            run()
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 1)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(99)
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
