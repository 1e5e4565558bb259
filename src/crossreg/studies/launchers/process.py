"""The main program of a local worker: `python -m crossreg.studies.launchers.process FD`.

Jobs come and outcomes go over a connection whose file descriptor it is given. Where the driver is gone, it saves what
it trains and ends, as after SIGTERM.
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
    """Does jobs until there are no more."""
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
            from crossreg.studies.launchers.work import work  # JAX, when stops are already heard

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
    os._exit(code)  # a compilation that goes on in a thread crashes an interpreter that takes itself apart
