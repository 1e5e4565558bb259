"""`crossreg watch` under a fuzz of paths and headers: nothing outside its folder is ever read."""

import random
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import quote

import pytest
from watch_folders import SECRET

from crossreg.errors import InputError
from crossreg.report.watch.server import WatchServer


def odd_paths(rng: random.Random) -> list[str]:
    """Ways to ask for what is beside the folder."""
    targets = ["secret.txt", "outside/metrics.json", "etc/passwd", "runs/deep/one/config.yaml", "deep/one/config.yaml"]
    dots = [
        "..",
        "%2e%2e",
        "%2E.",
        ".%2e",
        "%252e%252e",
        "..%00",
        "%c0%ae%c0%ae",
        "%e0%80%ae%e0%80%ae",
        "..;",
        ". .",
        "\\..",
    ]
    slashes = ["/", "%2f", "%5c", "\\", "//", "%255c", "/./", "%c0%af", "/;/"]
    starts = [
        "/",
        "//",
        "/api/",
        "/api/curve/",
        "/api/runs/",
        "/page.css/",
        "/link/",
        "/up/",
        "/C:",
        "file://",
        "http://x/",
        "",
    ]
    paths = []
    for _ in range(350):
        climb = "".join(rng.choice(dots) + rng.choice(slashes) for _ in range(rng.randrange(6)))
        paths.append(
            rng.choice(starts) + climb + rng.choice(targets) + rng.choice(["", "%00", "?x=1", "#", "%00.css", "/"])
        )
    return paths


def test_no_path_reaches_a_file(client, tmp_path):
    rng = random.Random(0)
    paths = odd_paths(rng)
    paths += [quote(str(tmp_path / "secret.txt")), f"/api/curve/{quote(str(tmp_path / 'secret.txt'), safe='')}"]
    paths += ["/api/curve/" + "".join(rng.choices("0123456789abcdef/.%", k=16)) for _ in range(60)]
    host = f"Host: 127.0.0.1:{client.server.port}".encode()
    for path in paths:
        answer = client.raw(b"GET " + path.encode() + b" HTTP/1.1\r\n" + host + b"\r\n\r\n")
        status = answer.split(b" ")[1] if answer.startswith(b"HTTP/") else b""
        assert status in (b"404", b"400", b"505"), (path, answer[:80])
        assert SECRET.encode() not in answer
        assert b"root:" not in answer
    for path in ("/", "/page.css", "/page.js", "/draw.js", "/api/runs", "/api/live"):
        assert client.get(path)[0] == 200
        assert SECRET.encode() not in client.get(path)[2]
        assert b"4242" not in client.get(path)[2]


def test_only_its_own_address_is_answered(client):
    port = client.server.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        assert client.get("/api/runs", Host=host)[0] == 200
    others = "evil.example localhost.evil.example 127.0.0.1.evil.example 192.168.0.7 [::2] localhost. 0.0.0.0"
    refused = [
        f"{name}:{port}"
        for name in [*others.split(), "0x7f.1", "2130706433", "[fe80::1%lo]", "localhost ", "x" * 9000, ""]
    ]
    refused += [
        "evil.example",
        "localhost",
        "127.0.0.1",
        "[::1]",
        "",
        " ",
        f"localhost:{port + 1}",
        f"localhost:{port}/",
    ]
    refused += [f"localhost:{port}@evil.example", f"localhost:{port},evil.example", f"localhost:0{port}0"]
    for host in refused:
        status, _, body = client.get("/api/runs", Host=host)
        assert status == 421, host
        assert b"deep" not in body
    twice = f"GET /api/runs HTTP/1.1\r\nHost: localhost:{port}\r\nHost: evil.example\r\n\r\n".encode()
    assert b" 421 " in client.raw(twice).split(b"\r\n")[0]
    assert b" 421 " in client.raw(b"GET /api/runs HTTP/1.0\r\n\r\n").split(b"\r\n")[0]
    assert client.get("/api/runs", Origin=f"http://127.0.0.1:{port}")[0] == 200
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert client.get("/api/runs", **headers)[0] == 403
    assert client.get("/api/runs", Sec_Fetch_Site="same-origin")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "get", "G\x7fT"])
def test_it_only_reads(client, method):
    sent = f"{method} / HTTP/1.1\r\nHost: localhost:{client.server.port}\r\nContent-Length: 3\r\n\r\nabc"
    answer = client.raw(sent.encode())
    assert answer.startswith(b"HTTP/1.0 405 ")
    assert b"Allow: GET, HEAD" in answer


def test_every_answer_is_guarded(client):
    for path in ("/", "/api/runs", "/nothing", "/page.js"):
        _, headers, body = client.get(path)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert not any(name.lower().startswith("access-control") for name in headers)
        status, alone, empty = client.get(path, "HEAD")
        assert (alone["Content-Length"], empty) == (str(len(body)), b"")
        assert status == client.get(path)[0]


def test_requests_that_are_none(client, capfd):
    port = client.server.port
    assert client.raw(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 414 ")
    assert client.raw(f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nX: {'a' * 70_000}\r\n\r\n".encode())[9:12] == b"431"
    many = "".join(f"X{n}: 1\r\n" for n in range(300))
    assert client.raw(f"GET / HTTP/1.1\r\n{many}\r\n".encode())[9:12] == b"431"
    for junk in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n",
    ):
        answer = client.raw(junk)
        assert b"Traceback" not in answer
        assert not answer or answer[9:10] in b"45"
    rng = random.Random(1)
    for _ in range(100):
        assert b"deep" not in client.raw(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200))) + b"\r\n\r\n")
    assert client.get("/")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_visitors_who_say_nothing_are_shown_out(client):
    """More half-open connections than there is room for, one of which sends a byte now and then."""
    waiting = [socket.create_connection(("127.0.0.1", client.server.port)) for _ in range(40)]
    slow = waiting[0]
    begun = time.monotonic()
    slow.settimeout(0.1)
    while time.monotonic() - begun < 5:
        try:
            slow.sendall(b"G")
            if slow.recv(100) == b"":
                break
        except TimeoutError:
            continue
        except OSError:
            break
    assert time.monotonic() - begun < 4
    time.sleep(1.5)  # by then all of them are
    assert client.get("/")[0] == 200
    for one in waiting:
        one.close()


def test_where_it_listens(tmp_path):
    with WatchServer(tmp_path) as server:
        assert server.is_local
        assert server.url == f"http://127.0.0.1:{server.port}/"
        with pytest.raises(InputError, match=r"port is \d+: cannot listen"):
            WatchServer(tmp_path, port=server.port)
    with WatchServer(tmp_path, "0.0.0.0") as server:
        assert not server.is_local
        # A number cannot be pointed elsewhere; a name can.
        assert server.serves(f"192.168.0.7:{server.port}")
        assert server.serves(f"localhost:{server.port}")
        assert not server.serves(f"evil.example:{server.port}")
    for host, port in (("127.0.0.1", -1), ("127.0.0.1", 65536), ("no host", 0)):
        with pytest.raises(InputError, match=f"host is {host} and port is 0: cannot|port is {port}: must lie"):
            WatchServer(tmp_path, host, port)
    with pytest.raises(InputError, match="no such folder"):
        WatchServer(tmp_path / "nothing")


def test_ctrl_c_ends_it(tmp_path):
    # A shell starts what runs in its background deaf to Ctrl-C, and children inherit that.
    program = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from crossreg.cli.main import run; run()"
    command = [sys.executable, "-c", program, "watch", str(tmp_path), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "http://127.0.0.1:" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()  # a test that fails must not wait for it
    assert process.returncode == 130
    assert said == "crossreg: stopped\n"
