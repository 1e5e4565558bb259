r"""The cost of a training step, before anything is compiled: counted work times measured rates.

$$ t = a u + R \, (b_1 F_{dft} + b_2 F_{fft} + b_3 F_{mix} + b_4 E + b_5 D) $$

for one step of R replicas side by side: u updates (a train update and its share of a reg update), each with F
floating-point operations of Fourier transforms (as matrix products, or fast) and of channel mixing, E elements of
feature fields that are read and written, and D variates drawn for single elements. `benchmarks/growth.py` measures a
device and fits the rates, which are in `cost.json` beside this file. JAX calls every CPU `cpu`: its entry names the
processor that was measured, and times on another processor differ.
"""

import functools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from crossreg.config import Config, ModelConfig, TrainConfig
from crossreg.config.sites import site_names
from crossreg.machine.processor import describe_processor
from crossreg.nn.spectral import mode_shape, prefers_fft

RATES = Path(__file__).with_name("cost.json")
# Operations of a reg update, which has no gradients of weights, relative to a train update, as XLA counts them.
_REG_SHARE = 0.88
# Forward pass and gradients: of features for the transforms, of features and of weights for channel mixing.
_TRANSFORM_PASSES, _MIXING_PASSES = 2, 3


class Work(NamedTuple):
    """The work of one step of one replica: updates, operations by kind, elements of fields, variates."""

    updates: float
    dft: float
    fft: float
    mixing: float
    elements: float
    variates: float


def reg_updates_per_step(config: Config) -> float:
    """Return the updates of ρ per train update, over a whole run; one from a rollout counts for its work."""
    train = config.train
    if not config.model.learns_on_reg:
        return 0.0
    settling = train.reg_updates_until(train.steps) - train.reg_updates_until(train.settled_after)
    if train.reg_horizon > 1:
        # Of more particles, at K leads, and once more for the gradient: a third of an update is its forward pass.
        each = train.rollout_batch_size * train.rollout_particles / (train.reg_pairs * train.num_samples)
        settling *= train.reg_horizon * each * 4 / 3
    return (train.reg_updates_until(train.settled_after) + settling) / train.steps


def _train_updates_per_step(train: TrainConfig) -> float:
    """Return 1, or more where train updates are from rollouts at the end: one counts for its work."""
    if train.train_rollout_steps == 1:
        return 1.0
    each = train.train_rollout_steps * train.rollout_batch_size / train.batch_size * 4 / 3
    return 1 + (each - 1) * (1 - train.settled_after / train.steps)


def blocks_before_noise(model: ModelConfig) -> int:
    """Return how many blocks come before any noise, and so run once for all samples."""
    if model.lift_noise or model.mode_noise != "none":
        return 0
    if model.feature_noise == "none":
        return model.num_blocks
    names = site_names(model.num_blocks)
    return min(model.num_blocks, *(names.index(site) + 1 for site in model.sites or names))


def work_of(config: Config, space: tuple[int, ...], backend: str) -> Work:
    """Return the work of an average step of one replica.

    Args:
        config: All settings.
        space: The shape of a field, without its channels.
        backend: `cpu` or `gpu`, which decides how Fourier transforms are computed.
    """
    model, train = config.model, config.train
    points, kept = math.prod(space), mode_shape((model.num_modes,) * len(space))
    once = blocks_before_noise(model)
    is_noisy = once < model.num_blocks
    drawn_from = {  # updates for every step, pairs and samples of each, and work relative to a train update
        "train": (_train_updates_per_step(train), train.batch_size, train.train_samples or train.num_samples, 1.0),
        "reg": (reg_updates_per_step(config), train.reg_pairs, train.num_samples, _REG_SHARE),
    }
    blocks = samples_in_all = 0.0
    for updates, pairs, samples, share in drawn_from.values():
        # Blocks before the noise run once for a pair, the others for every sample.
        blocks += updates * share * pairs * (once + (samples if is_noisy else 1) * (model.num_blocks - once))
        samples_in_all += updates * pairs * samples
    dft = fft = 0.0
    if prefers_fft((model.num_modes,) * len(space), space, backend):
        fft = 2 * 2.5 * model.width * points * math.log2(points)
    else:
        sizes, operations = list(space), 0.0
        for axis in reversed(range(len(space))):  # the last axis first: real to complex, then complex to complex
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
    return Work(
        updates=sum(updates for updates, *_ in drawn_from.values()),
        dft=_TRANSFORM_PASSES * blocks * dft,
        fft=_TRANSFORM_PASSES * blocks * fft,
        mixing=_MIXING_PASSES * blocks * mixing,
        elements=blocks * model.width * points,
        variates=samples_in_all * drawn,
    )


def features(work: Work, replicas: int) -> Float[np.ndarray, "6"]:
    """Return the features of the cost model, which the rates multiply, for replicas side by side."""
    return np.asarray([work.updates, *(replicas * np.asarray(work[1:]))])


@functools.cache
def _measured() -> dict[str, Any]:
    return json.loads(RATES.read_text())


def rates_of(device: str) -> tuple[float, ...] | None:
    """Return the measured rates of a device, or None."""
    known = _measured()
    return tuple(known[device]["rates"]) if device in known else None


def measured_elsewhere() -> str | None:
    """Return the processor on which the rates of this machine's device were measured, if this machine has another."""
    processor = _measured().get(jax.devices()[0].device_kind, {}).get("processor")
    return processor if processor not in (None, describe_processor()) else None


def scoring_steps(config: Config, members: int) -> float:
    """Estimate how many train steps of one replica take as long as the scoring of a trial.

    A step has a forward pass and a backward pass, which costs twice as much; scoring has forward passes on all splits,
    and on test once more if its times beyond those of train are scored separately.
    """
    train = config.train
    (train_size, reg_size, test_size), (train_horizon, test_horizon) = config.data.sizes, config.data.horizons
    pairs = test_size * test_horizon * (1 + (test_horizon > train_horizon)) + train_size * train_horizon
    pairs += reg_size * config.data.reg_pairs_per_row
    is_noisy = blocks_before_noise(config.model) < config.model.num_blocks
    samples = train.evaluation_samples / (train.train_samples or train.num_samples) if is_noisy else 1
    return max(members, 1) * pairs * samples / (3 * train.batch_size)


def seconds_of(config: Config, space: tuple[int, ...], replicas: int) -> float | None:
    """Estimate the seconds that all steps of a training take on this device.

    Args:
        config: All settings.
        space: The shape of a field, without its channels.
        replicas: How many replicas train side by side.

    Returns:
        The seconds, without compilation and scoring, or None if the device was not measured. On a CPU, they are those
        of the processor that was measured (`measured_elsewhere`).
    """
    device = jax.devices()[0]
    rates = rates_of(device.device_kind)
    if rates is None:
        return None
    work = work_of(config, space, device.platform)
    return config.train.steps * float(np.dot(rates, features(work, replicas)))
