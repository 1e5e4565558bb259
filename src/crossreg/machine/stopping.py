"""Ctrl-C and SIGTERM: trainings are saved, and the process ends within seconds, whatever it is doing.

The signal raises `Stopped` in the main thread, which is usually between two looks at a training and unwinds from there.
While a compiler or a long program runs, no exception gets through. Then a thread that waits for signals saves the state
of the last look and ends the process itself. Of several processes that train together none may leave alone: there a
stop waits for the next look, where all hear of it (`hosts.py`). No JAX here.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE = 2.0
# Less than the 30 s that a cluster leaves between SIGTERM and SIGKILL.
_GRACE_TOGETHER = 20.0
_savers: list[Callable[[], None]] = []
_saving = threading.RLock()
_together = threading.Event()
_at_once = threading.Event()
# The signal that `stops_in_time` has received: some libraries turn `Stopped` into another exception.
_came: list[int] = []


class Stopped(KeyboardInterrupt):
    """A stop that was asked for. `code` is the exit code of a process that the signal has ended."""

    def __init__(self, number: int = signal.SIGINT):
        super().__init__()
        self.code = 128 + number


def code_of(stop: KeyboardInterrupt) -> int:
    """Return the exit code of a stop: 130 after Ctrl-C, 143 after SIGTERM."""
    return stop.code if isinstance(stop, Stopped) else 128 + (_came[-1] if _came else signal.SIGINT)


@contextlib.contextmanager
def stopped_together(several: bool) -> Iterator[None]:
    """A block in which, with several processes, a signal raises nothing: the code in it checks `asked_to_stop`."""
    if several:
        _together.set()
    try:
        yield
    finally:
        _together.clear()


def end_at_once() -> None:
    """Make this process end without cleaning up from now on, since that could wait for other processes."""
    _at_once.set()


def ends_at_once() -> bool:
    """Return whether this process must end without cleaning up."""
    return _at_once.is_set()


def asked_to_stop() -> int:
    """Return the signal that has come, or 0."""
    return _came[0] if _came else 0


@contextlib.contextmanager
def saved_on_stop(save: Callable[[], None]) -> Iterator[None]:
    """A block that may be stopped anywhere; `save` is then called, once or twice, perhaps from another thread."""
    _savers.append(save)
    try:
        yield
    except KeyboardInterrupt:
        with _saving:
            save()
        raise
    finally:
        _savers.remove(save)


def save_now() -> None:
    """Save all trainings, and return."""
    with _saving:
        for save in list(_savers):
            save()


@contextlib.contextmanager
def stops_in_time(last_words: str) -> Iterator[None]:
    """A block that SIGINT and SIGTERM end within seconds; `last_words` are printed if the main thread cannot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting, woken = socket.socketpair()
    woken.setblocking(False)
    over = threading.Event()
    _came.clear()

    def handle(number: int, _) -> None:
        if not _came:  # a second signal changes nothing: the process ends within seconds
            _came.append(number)
            if not _together.is_set():
                raise Stopped(number)

    def watch() -> None:
        while number := waiting.recv(1):
            if number[0] not in SIGNALS:
                continue
            if over.wait(_GRACE_TOGETHER if _together.is_set() else _GRACE):
                return
            with _saving:  # not while the main thread saves
                try:
                    save_now()
                    print(last_words, file=sys.stderr, flush=True)
                except OSError as error:  # a vanished folder, or a closed standard error
                    with contextlib.suppress(OSError):
                        print(f"crossreg: not saved ({error.strerror})", file=sys.stderr, flush=True)
                finally:
                    os._exit(128 + number[0])

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    wakeup = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        woken.close()
