r"""What a sweep takes on a device that need not be here: steps, and all that is around them.

`cost.json` has what was measured on each device: rates of steps (`training/cost.py`, by `benchmarks/growth.py`), and
under "around" (by `benchmarks/planning.py`) seconds to start a command or a worker, to have a program ready (new, or
found compiled, in a new process; without updates of ρ, or with them; or compiled in this one while another trained), to
build and write a replica, to look at reg, to score a row, and bytes:

$$ t_{look} = l_0 + R \, l_1 f, \qquad t_{row} = s_0 + s_1 f, \qquad m = m_0 + R \, m_1 m_{est} $$

with f the forward passes by the rates of steps, and $m_{est}$ the estimate by which sweeps choose how many replicas
train side by side.
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
    """Seconds and bytes beside the steps, as measured.

    `new` and `known` are without updates of ρ, and with them; `ahead` is behind a new compilation, and a known one.
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
    """A kind of device, and what things take on it; `field_shape` is (channel, *space).

    `estimated`: what is around the steps was taken from other timings, and not measured as such.
    """

    kind: str
    rates: tuple[float, ...]
    off: tuple[float, float]
    around: Around
    estimated: bool = False

    @property
    def platform(self) -> str:
        return "cpu" if self.kind == "cpu" else "gpu"

    def step_seconds(self, config: Config, field_shape: tuple[int, ...], replicas: int) -> float:
        """One step of so many replicas side by side."""
        return float(np.dot(self.rates, features(work_of(config, field_shape[1:], self.platform), replicas)))

    def forward_seconds(self, config: Config, field_shape: tuple[int, ...], pairs: int, samples: int) -> float:
        """As many updates as would see these pairs once, launches aside; forward passes are a fitted part of that."""
        one = config.replace(batch_size=1, num_samples=samples, train_samples=None, k_reg=_NEVER, settle=0.0)
        work = work_of(one, field_shape[1:], self.platform)
        return pairs * float(np.dot(self.rates[1:], np.asarray(work[1:])))

    def training_seconds(self, config: Config, field_shape: tuple[int, ...], replicas: int) -> float:
        """A training of so many replicas, once its program is ready: steps, looks at reg, building and writing."""
        train = config.train
        _, reg_size, test_size = config.data.sizes
        train_horizon, test_horizon = config.data.horizons
        looked_at = reg_size * train_horizon or test_size * test_horizon
        samples = min(train.evaluation_samples, MONITOR_SAMPLES)
        look, per_forward = self.around.look
        look += per_forward * replicas * self.forward_seconds(config, field_shape, looked_at, samples)
        looks = math.ceil(train.steps / train.record_every)
        steps = train.steps * self.step_seconds(config, field_shape, replicas)
        return steps + looks * look + replicas * self.around.replica

    def row_seconds(self, config: Config, field_shape: tuple[int, ...], *, members: int, more_reg: int = 0) -> float:
        """Scoring a row: all splits, by each member; `more_reg` times reg for what is fitted after training."""
        (train_size, reg_size, test_size), (train_horizon, test_horizon) = config.data.sizes, config.data.horizons
        pairs = test_size * test_horizon + (train_size + (1 + more_reg) * reg_size) * train_horizon
        forward = self.forward_seconds(config, field_shape, pairs, config.train.evaluation_samples)
        constant, per_forward = self.around.row
        return constant + per_forward * max(members, 1) * forward

    def program_seconds(self, config: Config) -> tuple[float, float]:
        """Until a program of this config is ready: where it is new, and where it was compiled before."""
        reg = int(config.model.learns_on_reg)
        return self.around.new[reg], self.around.known[reg]

    def most(self, config: Config, field_shape: tuple[int, ...]) -> int:
        """How many replicas a sweep would train side by side."""
        return most_replicas(config, math.prod(field_shape), self.around.memory, devices=1)

    def compiles_ahead(self, config: Config, field_shape: tuple[int, ...], replicas: int) -> bool:
        """Whether a sweep compiles the program of so many replicas while another trains."""
        return replicas * bytes_of(config, math.prod(field_shape)) <= bytes_beside(self.around.memory)

    def held_bytes(self, config: Config, field_shape: tuple[int, ...], replicas: int) -> float:
        """What a job of so many replicas holds while it trains."""
        constant, share = self.around.held
        return constant + share * replicas * bytes_of(config, math.prod(field_shape))


@functools.cache
def _known() -> dict[str, Device]:
    """Devices that have all that planning needs, by a short name."""
    devices = {}
    for kind, measured in json.loads(RATES.read_text()).items():
        if "around" in measured:
            values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in measured["around"].items()}
            off = (measured["relative_error"]["median"], measured["relative_error"]["largest"])
            around = Around(**{name: values[name] for name in Around._fields})
            devices[short_name(kind)] = Device(kind, tuple(measured["rates"]), off, around, "estimated" in values)
    return devices


def forget_devices() -> None:
    """What was read of `cost.json`: it has changed."""
    _known.cache_clear()


def short_name(kind: str) -> str:
    """What a device is called on the command line: `NVIDIA H200` is h200."""
    return kind.lower().removeprefix("nvidia ").replace(" ", "-")


def devices_of(text: str) -> tuple[Device, int]:
    """The device and the number of them in NAME:COUNT."""
    name, _, count = text.partition(":")
    known = _known()
    if name.lower() not in known:
        raise InputError(f"--on {text}: no device {name or 'of that name'} was measured; there are {', '.join(known)}")
    if not count.isdecimal() or not 1 <= int(count) <= 10**5:
        raise InputError(f"--on {text}: expected NAME:COUNT with 1 to 100000 devices, as {name}:8")
    return known[name.lower()], int(count)
