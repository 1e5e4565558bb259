r"""What a training step costs, before anything is compiled: counted work, times rates that were measured.

$$ t = a u + R \, (b_1 F_{dft} + b_2 F_{fft} + b_3 F_{mix} + b_4 E + b_5 D) $$

for one step of R replicas side by side: u updates (a train update and its share of a reg update), each with
floating-point operations F of the Fourier transforms (as matrix products, or fast) and of what mixes channels, E
elements of feature fields that are read and written, and D variates drawn for single elements. `benchmarks/growth.py`
measures a device and fits the rates, which are in `cost.json` beside this file.
"""

import functools
import json
import math
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from crossreg.config import Config, ModelConfig
from crossreg.config.sites import site_names
from crossreg.nn.spectral import mode_shape, prefers_fft

RATES = Path(__file__).with_name("cost.json")
# A reg update has no gradients of weights: its operations against those of a train update, as XLA counts them.
_REG_SHARE = 0.88
# Forward, and gradients: transforms have those of features alone, what mixes channels those of weights besides.
_TRANSFORM_PASSES, _MIXING_PASSES = 2, 3


class Work(NamedTuple):
    """Of one step of one replica: updates, operations by kind, elements of fields, variates."""

    updates: float
    dft: float
    fft: float
    mixing: float
    elements: float
    variates: float


def reg_updates_per_step(config: Config) -> float:
    """Updates of ρ for every train update, over a whole run."""
    train = config.train
    return train.reg_updates_until(train.steps) / train.steps if config.model.learns_on_reg else 0.0


def blocks_before_noise(model: ModelConfig) -> int:
    """How many blocks see no noise, and so run once for all samples."""
    if model.lift_noise or model.mode_noise != "none":
        return 0
    if model.feature_noise == "none":
        return model.num_blocks
    names = site_names(model.num_blocks)
    return min(model.num_blocks, *(names.index(site) + 1 for site in model.sites or names))


def work_of(config: Config, space: tuple[int, ...], backend: str) -> Work:
    """The work of an average step, on fields of this shape."""
    model, train = config.model, config.train
    points, kept = math.prod(space), mode_shape((model.num_modes,) * len(space))
    once = blocks_before_noise(model)
    samples = train.train_samples or train.num_samples if once < model.num_blocks else 1
    # Blocks that run, over a batch: those before the noise once, the others for every sample.
    blocks = train.batch_size * (once + samples * (model.num_blocks - once))
    dft = fft = 0.0
    if prefers_fft((model.num_modes,) * len(space), space, backend):
        fft = 2 * 2.5 * model.width * points * math.log2(points)
    else:
        sizes, operations = list(space), 0.0
        for axis in reversed(range(len(space))):  # the last first: real to complex, then complex to complex
            complex_parts = 1 if axis == len(space) - 1 else 2
            operations += 2 * complex_parts * 2 * math.prod(sizes) * kept[axis]
            sizes[axis] = kept[axis]
        dft = 2 * model.width * operations
    mixing = 8 * model.width**2 * math.prod(kept) + 2 * model.width**2 * points
    drawn = 0.0
    if model.feature_noise != "none" and (model.epsilon_per == "element" or model.feature_noise == "dropout"):
        drawn += len(model.sites or site_names(model.num_blocks)) * model.width * points
    if model.mode_noise != "none" and model.mode_epsilon_per == "element":
        drawn += model.num_blocks * model.width * math.prod(kept)
    updates = 1 + reg_updates_per_step(config)
    blocks *= 1 + _REG_SHARE * (updates - 1)
    return Work(
        updates=updates,
        dft=_TRANSFORM_PASSES * blocks * dft,
        fft=_TRANSFORM_PASSES * blocks * fft,
        mixing=_MIXING_PASSES * blocks * mixing,
        elements=blocks * model.width * points,
        variates=updates * train.batch_size * samples * drawn,
    )


def features(work: Work, replicas: int) -> Float[np.ndarray, "6"]:
    """What the rates are multiplied with, for so many replicas side by side."""
    return np.asarray([work.updates, *(replicas * np.asarray(work[1:]))])


@functools.cache
def rates_of(device: str) -> tuple[float, ...] | None:
    """The rates that were measured for a device, or None."""
    known = json.loads(RATES.read_text()) if RATES.exists() else {}
    return tuple(known[device]["rates"]) if device in known else None


def scoring_steps(config: Config, members: int) -> float:
    """About how many train steps of one replica take as long as it takes to score a point.

    A step has a forward and a backward pass, which is twice as dear; scores have forward ones on all splits, and once
    more on test where its times beyond those of train are scored apart.
    """
    train = config.train
    (train_size, reg_size, test_size), (train_horizon, test_horizon) = config.data.sizes, config.data.horizons
    pairs = test_size * test_horizon * (1 + (test_horizon > train_horizon)) + (train_size + reg_size) * train_horizon
    return max(members, 1) * pairs * train.evaluation_samples / (3 * train.batch_size * train.num_samples)


def seconds_of(config: Config, space: tuple[int, ...], replicas: int) -> float | None:
    """About how long a run of all replicas' steps takes on this device, or None where nothing was measured on it."""
    device = jax.devices()[0]
    rates = rates_of(device.device_kind)
    if rates is None:
        return None
    work = work_of(config, space, device.platform)
    return config.train.steps * float(np.dot(rates, features(work, replicas)))
