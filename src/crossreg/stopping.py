"""Ctrl-C and SIGTERM: what trains is saved, and the process ends within seconds, whatever it is doing.

The signal raises `Stopped` in the main thread, which is usually between two looks at a training and unwinds from
there. While a compiler or a long program runs, no exception gets through: then a thread that waits for signals saves
the state of the last look and ends the process itself. No JAX here.
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
_savers: list[Callable[[], None]] = []
_saving = threading.RLock()


class Stopped(KeyboardInterrupt):
    """A stop that was asked for. `code` is what a shell says of a process that the signal has ended."""

    def __init__(self, number: int = signal.SIGINT):
        super().__init__()
        self.code = 128 + number


def code_of(stop: KeyboardInterrupt) -> int:
    """The exit code of a stop: 130 after Ctrl-C, 143 after SIGTERM."""
    return stop.code if isinstance(stop, Stopped) else 128 + signal.SIGINT


@contextlib.contextmanager
def saved_on_stop(save: Callable[[], None]) -> Iterator[None]:
    """A block that can be stopped anywhere; `save` is then called, once or twice, perhaps by another thread."""
    _savers.append(save)
    try:
        yield
    except KeyboardInterrupt:
        with _saving:
            save()
        raise
    finally:
        _savers.remove(save)


@contextlib.contextmanager
def stops_in_time(last_words: str) -> Iterator[None]:
    """A block that SIGINT and SIGTERM end within seconds; `last_words` are said where nobody else can say them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting, woken = socket.socketpair()
    woken.setblocking(False)
    over = threading.Event()
    came: list[int] = []

    def handle(number: int, _) -> None:
        if not came:  # whoever asks twice gets it no sooner: seconds are left
            came.append(number)
            raise Stopped(number)

    def watch() -> None:
        while number := waiting.recv(1):
            if number[0] not in SIGNALS:
                continue
            if over.wait(_GRACE):
                return
            with _saving:  # not in the middle of what the main thread saves
                try:
                    for save in list(_savers):
                        save()
                    print(last_words, file=sys.stderr, flush=True)
                except OSError as error:  # a folder that has vanished, a reader who has left
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
