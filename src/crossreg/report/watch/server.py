"""Serves the page and its numbers over HTTP: read-only, for one folder, on the loopback address unless told otherwise.

    GET /                    the page, with its styles and scripts beside it
    GET /api/live            what is training, and the version of the list of runs
    GET /api/runs            every run
    GET /api/curve/ID        the curves of one of them

The path of a request is looked up in a table and never reaches the file system: ID is a name that the server made up.
Other sites cannot read any of it through a visitor's browser: a request is refused if its `Host` is not an address that
is served (such as a name that someone has pointed here), or if it comes from a page of another origin.
"""

import io
import ipaddress
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from crossreg.errors import InputError, say
from crossreg.files.whole import check_is_folder
from crossreg.report.shared import SCRIPTS, STYLES, package_file
from crossreg.report.watch.inside import Inside
from crossreg.report.watch.listing import Listing

_SECONDS_FOR_A_REQUEST = 10.0
_MOST_CONNECTIONS = 32
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_FILES = {
    "crossreg.report.shared": (*STYLES, "theme.js", *SCRIPTS),
    "crossreg.report.watch": ("static/page.html", "static/page.css", "static/live.js", "static/page.js"),
}
_CURVE = re.compile(r"/api/curve/([0-9a-f]{16})", re.ASCII)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SAME_SITE = (None, "same-origin", "none")
_WORDS = {400: "bad request", 403: "refused", 404: "not found", 405: "only GET and HEAD", 421: "not this host"}


class _Deadline(io.RawIOBase):
    """The bytes of a connection for at most so many seconds, even if it sends a byte now and then."""

    def __init__(self, connection: socket.socket, seconds: float):
        self._connection = connection
        self._end = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    server: "WatchServer"  # pyright: ignore[reportIncompatibleVariableOverride]

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Deadline(self.connection, self.server.seconds))

    def do_GET(self) -> None:
        if (refusal := self._refusal()) is not None:
            self._answer(refusal)
            return
        try:
            found = self.server.find(self.path)
        except Exception as error:  # whatever a file held: the next request may find it whole
            say(f"{type(error).__name__} while answering: {error}")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        if found is None:
            self._answer(HTTPStatus.NOT_FOUND)
        else:
            self._answer(HTTPStatus.OK, *found)

    do_HEAD = do_GET  # noqa: N815

    def _refusal(self) -> HTTPStatus | None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not self.server.serves(hosts[0]):
            return HTTPStatus.MISDIRECTED_REQUEST
        origins = self.headers.get_all("Origin") or []
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return HTTPStatus.FORBIDDEN
        sites = self.headers.get_all("Sec-Fetch-Site") or [None]
        return HTTPStatus.FORBIDDEN if any(site not in _SAME_SITE for site in sites) else None

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # http.server calls this for a line that is too long, and for a version or a method that it does not know.
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code))

    def _answer(self, status: HTTPStatus, body: bytes | None = None, kind: str = "text/plain") -> None:
        body = f"{_WORDS.get(status, status.phrase.lower())}\n".encode() if body is None else body
        self.close_connection = True
        self.request_version = "HTTP/1.0"  # also where none was understood: every answer has its headers
        self.connection.settimeout(self.server.seconds)
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "crossreg"

    def log_message(self, format: str, *_) -> None:  # noqa: A002
        """Print nothing: the terminal belongs to the user."""


class WatchServer(ThreadingHTTPServer):
    """A server of the runs below a folder.

    Args:
        folder: The folder; nothing outside it is read.
        host: The address to listen on, by default one that only this machine can reach.
        port: The port, by default any that is free.
        seconds: How long a visitor may take to send a request.

    Raises:
        InputError: If there is no such folder, or the address or the port cannot be listened on.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0, *, seconds: float | None = None):
        check_is_folder(folder)
        if not 0 <= port <= 65535:
            raise InputError(f"port is {port}: must lie between 0 (any that is free) and 65535")
        self.seconds = _SECONDS_FOR_A_REQUEST if seconds is None else seconds
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._host = host.strip("[]").lower()
        self._listing = Listing(Inside(folder))
        self._pages = {
            f"/{name.removeprefix('static/')}": (package_file(package, name).encode(), _KINDS[name.split(".")[-1]])
            for package, names in _FILES.items()
            for name in names
        }
        self._pages["/"] = self._pages.pop("/page.html")
        self._answers: dict[str, Callable[[], dict[str, Any]]] = {
            "/api/live": self._listing.live,
            "/api/runs": self._listing.runs,
        }
        try:
            found = socket.getaddrinfo(self._host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family, address = found[0][0], found[0][4]
            super().__init__(address[:2], _Handler)  # pyright: ignore[reportArgumentType]
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"host is {host} and port is {port}: cannot listen there ({reason})") from error
        self.port = int(self.server_address[1])
        self._bound = ipaddress.ip_address(str(self.server_address[0]).split("%")[0])

    def server_bind(self) -> None:
        # In place of the method of http.server, which asks the name service for the name of this machine.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self._bound.is_loopback

    @property
    def url(self) -> str:
        shown = "localhost" if self._bound.is_unspecified else self._host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}/"

    def serves(self, host: str) -> bool:
        """Return whether a `Host` header is an address of this server.

        Anyone can have a name point here, but not a number: so every number passes if the server listens on every
        address.
        """
        match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", host, re.ASCII)
        if match is None or int(match[2] or 80) != self.port:
            return False
        name = match[1].strip("[]").lower()
        if name == self._host and not self._bound.is_unspecified:
            return True
        if name == "localhost":
            return self.is_local or self._bound.is_unspecified
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address == self._bound or self._bound.is_unspecified or (address.is_loopback and self.is_local)

    def find(self, path: str) -> tuple[bytes, str] | None:
        """Return the answer to a request and its type, or None where there is none."""
        if path in self._pages:
            return self._pages[path]
        value = None
        if path in self._answers:
            value = self._answers[path]()
        elif match := _CURVE.fullmatch(path):
            value = self._listing.curve(match[1])
        return None if value is None else (json.dumps(value, allow_nan=False).encode(), "application/json")

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread is left
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless the visitor has left."""
        error = sys.exception()
        if not isinstance(error, OSError):
            say(f"{type(error).__name__} while answering: {error}")


def watch(folder: Path, *, host: str = "127.0.0.1", port: int = 0, open_browser: bool = False) -> None:
    """Serve the runs below a folder until Ctrl-C, and print the address.

    Args:
        folder: The folder; nothing outside it is read.
        host: The address to listen on, by default one that only this machine can reach.
        port: The port, by default any that is free.
        open_browser: Whether to open the page in the browser.

    Raises:
        InputError: If there is no such folder, or the address or the port cannot be listened on.
    """
    with WatchServer(folder, host, port) as server:
        if not server.is_local:
            say(f"{server.url}: anyone who reaches port {server.port} can read the runs")
        print(f"{folder} at {server.url} (Ctrl-C ends)", flush=True)
        if open_browser:
            import webbrowser

            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        server.serve_forever(poll_interval=0.2)
