r"""The costs of a sweep on a device of another machine: its steps, and everything around them.

`training/cost.json` has the measurements of each device: the rates of steps (`training/cost.py`, measured by
`benchmarks/growth.py`), and under "around" (`Around`, measured by `benchmarks/planning.py`) all other costs:

$$ t_{look} = l_0 + R \, l_1 f, \qquad t_{row} = s_0 + s_1 f, \qquad m = m_0 + R \, m_1 m_{est} $$

Here f are seconds of forward passes by the rates of steps, and $m_{est}$ is the estimate of memory by which sweeps
choose how many replicas train side by side.
"""

import dataclasses
import functools
import json
import math
from typing import Any, NamedTuple

import numpy as np

from crossreg.config import Config
from crossreg.errors import InputError
from crossreg.studies.sweep.programs import bytes_beside, most_replicas
from crossreg.training.cohort import MONITOR_SAMPLES, bytes_of
from crossreg.training.cost import RATES, features, work_of

_NEVER = 2**31 - 1


class Around(NamedTuple):
    """Measured seconds and bytes other than those of steps.

    Attributes:
        memory: Bytes of a device.
        start: Seconds to start a command or a worker.
        new: Seconds until a new program is ready, without and with updates of ρ.
        known: The same for a program that is in the cache.
        ahead: The same for a program that was compiled while another trained, newly or from the cache.
        replica: Seconds to build and write a replica.
        look: l₀ and l₁ of an evaluation on reg.
        row: s₀ and s₁ of the scoring of a row.
        held: m₀ and m₁ of the memory of a job.
        compilers: How many threads compile ahead.
        crowding: How many times as long a compilation takes while another program trains.
    """

    memory: int
    start: float
    new: tuple[float, float]
    known: tuple[float, float]
    ahead: tuple[float, float]
    replica: float
    look: tuple[float, float]
    row: tuple[float, float]
    held: tuple[float, float]
    compilers: int
    crowding: float


@dataclasses.dataclass(frozen=True)
class Device:
    """A kind of device with its costs; in all methods, `field_shape` is (channel, *space).

    Attributes:
        kind: The name that JAX gives it.
        rates: The rates of steps.
        off: The median and the largest relative error of times by these rates.
        around: All other costs.
        processor: For a CPU, the processor and the number of cores that were measured, as in
            `machine.processor.describe_processor`.
    """

    kind: str
    rates: tuple[float, ...]
    off: tuple[float, float]
    around: Around
    processor: str | None = None

    @property
    def platform(self) -> str:
        return "cpu" if self.kind == "cpu" else "gpu"

    def step_seconds(self, config: Config, field_shape: tuple[int, ...], replicas: int) -> float:
        """Return the seconds of one step of replicas side by side."""
        return float(np.dot(self.rates, features(work_of(config, field_shape[1:], self.platform), replicas)))

    def forward_seconds(self, config: Config, field_shape: tuple[int, ...], pairs: int, samples: int) -> float:
        """Return the seconds of updates that see these pairs once, launches aside; a forward pass is a fitted part."""
        one = config.replace(batch_size=1, num_samples=samples, train_samples=None, k_reg=_NEVER, settle=0.0)
        work = work_of(one, field_shape[1:], self.platform)
        return pairs * float(np.dot(self.rates[1:], np.asarray(work[1:])))

    def training_seconds(self, config: Config, field_shape: tuple[int, ...], replicas: int) -> float:
        """Return the seconds of a training once its program is ready: steps, evaluations on reg, building, writing."""
        train = config.train
        _, reg_size, test_size = config.data.sizes
        looked_at = reg_size * config.data.reg_pairs_per_row or test_size * config.data.horizons[1]
        samples = min(train.evaluation_samples, MONITOR_SAMPLES)
        look, per_forward = self.around.look
        look += per_forward * replicas * self.forward_seconds(config, field_shape, looked_at, samples)
        looks = math.ceil(train.steps / train.record_every)
        steps = train.steps * self.step_seconds(config, field_shape, replicas)
        return steps + looks * look + replicas * self.around.replica

    def row_seconds(self, config: Config, field_shape: tuple[int, ...], *, members: int, more_reg: int = 0) -> float:
        """Return the seconds of scoring a row on all splits, and `more_reg` times on reg for wrappers and choices."""
        (train_size, reg_size, test_size), (train_horizon, test_horizon) = config.data.sizes, config.data.horizons
        pairs = test_size * test_horizon + train_size * train_horizon
        pairs += (1 + more_reg) * reg_size * config.data.reg_pairs_per_row
        forward = self.forward_seconds(config, field_shape, pairs, config.train.evaluation_samples)
        constant, per_forward = self.around.row
        return constant + per_forward * max(members, 1) * forward

    def program_seconds(self, config: Config) -> tuple[float, float]:
        """Return the seconds until a program is ready: a new one, and one that is in the cache."""
        reg = int(config.model.learns_on_reg)
        return self.around.new[reg], self.around.known[reg]

    def most(self, config: Config, field_shape: tuple[int, ...]) -> int:
        """Return how many replicas a sweep would train side by side."""
        return most_replicas(config, math.prod(field_shape), self.around.memory, devices=1)

    def compiles_ahead(self, config: Config, field_shape: tuple[int, ...], replicas: int) -> bool:
        """Return whether a sweep compiles a program of so many replicas while another trains."""
        return replicas * bytes_of(config, math.prod(field_shape)) <= bytes_beside(self.around.memory)

    def held_bytes(self, config: Config, field_shape: tuple[int, ...], replicas: int) -> float:
        """Return the bytes that a job of so many replicas holds while it trains."""
        constant, share = self.around.held
        return constant + share * replicas * bytes_of(config, math.prod(field_shape))


@functools.cache
def known_devices() -> dict[str, Device]:
    """Return the devices with all measurements that planning needs, by their short names."""
    devices = {}
    for kind, measured in json.loads(RATES.read_text()).items():
        if "around" in measured:
            values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in measured["around"].items()}
            off = (measured["relative_error"]["median"], measured["relative_error"]["largest"])
            processor = measured.get("processor")
            devices[short_name(kind)] = Device(kind, tuple(measured["rates"]), off, Around(**values), processor)
    return devices


def short_name(kind: str) -> str:
    """Return the name of a device on the command line: `NVIDIA H200` is h200."""
    return kind.lower().removeprefix("nvidia ").replace(" ", "-")


def devices_of(text: str) -> tuple[Device, int]:
    """Return the device and the number of devices that NAME:COUNT stands for."""
    name, _, count = text.partition(":")
    known = known_devices()
    if name.lower() not in known:
        raise InputError(f"on is {text}: no device {name or 'of that name'} was measured; there are {', '.join(known)}")
    if not count.isdecimal() or not 1 <= int(count) <= 10**5:
        raise InputError(f"on is {text}: expected NAME:COUNT with 1 to 100000 devices, as {name}:8")
    return known[name.lower()], int(count)
