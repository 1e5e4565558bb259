"""The main program of a local worker: `python -m crossreg.studies.launchers.process FD`.

It receives jobs and returns outcomes over the connection with the file descriptor FD. If the driver disappears, it
saves its training and ends, as after SIGTERM.
"""

import os
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection

from crossreg.machine.stopping import code_of, stops_in_time
from crossreg.studies.launchers.base import Job


def main() -> int:
    """Do jobs until the driver closes the connection; return the exit code."""
    connection = Connection(int(sys.argv[1]))
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while True:
                jobs.put(connection.recv())
        except (EOFError, OSError):
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        with stops_in_time("crossreg: worker stopped"):
            threading.Thread(target=listen, daemon=True).start()
            from crossreg.studies.launchers.work import work  # imports JAX, when signals are handled already

            while True:
                connection.send(work(jobs.get()))
    except KeyboardInterrupt as stop:
        return code_of(stop)
    except OSError:  # the driver is gone
        return 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # an orderly exit crashes while a thread still compiles
