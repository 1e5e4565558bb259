"""Folders as runs, sweeps and car experiments write them, and a client: shared by the tests of `crossreg watch`."""

import http.client
import json
import socket
from pathlib import Path

from crossreg.config import Config, to_dict, to_yaml
from crossreg.designs.grids import plan
from crossreg.methods.names import config_of
from crossreg.report.watch.server import WatchServer
from crossreg.runs.programs import Program, describe_program
from crossreg.runs.sweep_folder import trial_key
from crossreg.studies.sweep.scoring import trainings_of

SECRET = "a secret that no run holds"
SITES = ("block1", "pre_head")


def history(step: int, shift: float = 0.0, diverged_at: int = -1) -> dict:
    return {
        "step": step,
        "train_loss": -1.0 - step / 1000 + shift,
        "reg_loss": None,
        "reg_nll": 0.5 + shift,
        "reg_ece": 0.1 + shift / 100,
        "reg_std_mu": 0.01,
        "sigma": {"block1": [0.01, 1.0], "pre_head": [0.5]},
        "diverged_at": diverged_at,
    }


def jsonl(*lines: dict) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


SCORES = {"nll": -2.25, "ece_mix": 0.0125, "crps": 0.03, "rmse": 0.07, "std_mu": 0.01, "coverage": [0.1] * 9}


def write_run(folder: Path, config: Config, *lines: dict, finished: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    (folder / "metrics.jsonl").write_text(jsonl(*lines))
    if finished:
        (folder / "metrics.json").write_text(json.dumps({"test": SCORES, "reg": SCORES, "train": SCORES, "sigma": {}}))
    return folder


def write_sweep(folder: Path) -> tuple[list, Path]:
    """Two methods with two seeds, all trained as one program; rows of the first method alone."""
    trials = plan("grid", methods="xreg,ensemble-2", seeds=2, steps=20, grid=["observed_fraction=0.4"])
    trainings = [(t.key("d"), t) for p in trials for members in trainings_of(p) for t in members]
    (folder / "trained").mkdir(parents=True)
    described = describe_program(Program("abc", dict(trainings)))
    (folder / "trained" / "abc.json").write_text(json.dumps(described))
    lines = [
        {"training": key} | history(step, shift=float(number), diverged_at=15 if number == 1 and step == 20 else -1)
        for step in (10, 20)
        for number, (key, _) in enumerate(trainings)
    ]
    (folder / "trained" / "abc.jsonl").write_text(jsonl(*lines))
    asked = {"name": "grid", "methods": "xreg,ensemble-2", "seeds": 2, "steps": 20, "grid": ["observed_fraction=0.4"]}
    (folder / "sweep.json").write_text(json.dumps(asked | {"config": to_dict(Config()), "data": "d"}))
    rows = [
        {
            "key": trial_key(trial, "d"),
            "method": trial.method.name,
            "observed_fraction": 0.4,
            "train_size": 50,
            "reg_size": 50,
            "seed": trial.config.train.seed,
            "steps": 20,
            "diverged": False,
            "test": SCORES,
            "reg": None,
        }
        for trial in trials
    ]
    (folder / "rows.jsonl").write_text(jsonl(*rows))
    return trials, folder


def write_car(folder: Path) -> Path:
    (folder / "history").mkdir(parents=True)
    (folder / "config.yaml").write_text("cars: {train_size: 20, reg_size: 7}\ntrain: {steps: 300}\n")
    (folder / "history" / "xreg.jsonl").write_text(jsonl(history(150), history(300)))
    summary = {"methods": {"xreg": {"test": SCORES | {"relative_l2": 0.16}}, "vertex-mean": {"test": SCORES}}}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def write_all(tmp_path: Path) -> Path:
    """Runs of every kind, a secret beside them, and links to it."""
    (tmp_path / "secret.txt").write_text(SECRET)
    outside = write_run(tmp_path / "outside", Config(), history(10))
    (outside / "metrics.json").write_text(json.dumps({"test": {"nll": 4242.5}, "note": SECRET}))
    root = tmp_path / "runs"
    write_run(root / "deep" / "one", Config().replace(steps=500), history(250), history(500))
    write_run(
        root / "two", config_of("dropout", Config()).replace(steps=750), history(250, diverged_at=99), finished=False
    )
    write_sweep(root / "sweep")
    write_car(root / "cars")
    (root / "link").symlink_to(outside, target_is_directory=True)
    (root / "up").symlink_to(tmp_path, target_is_directory=True)
    linked = root / "linked-files"
    linked.mkdir()
    for name in ("config.yaml", "metrics.json", "metrics.jsonl"):
        (linked / name).symlink_to(outside / name)
    half = write_run(root / "half", Config(), history(250), finished=False)
    (half / "metrics.json").symlink_to(outside / "metrics.json")
    return root


class Client:
    """Asks a server as no browser would: any bytes, any headers."""

    def __init__(self, server: WatchServer):
        self.server = server

    def raw(self, sent: bytes, *, seconds: float = 10) -> bytes:
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=seconds) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            # An answer may come before all that was sent is read.
            try:
                while part := connection.recv(65536):
                    received += part
            except ConnectionResetError:
                pass
            return received

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def json(self, path: str):
        status, _, body = self.get(path)
        assert status == 200
        return json.loads(body)

    def runs(self) -> dict:
        return {(run["name"], run["method"], run["regime"].get("seed")): run for run in self.json("/api/runs")["runs"]}
