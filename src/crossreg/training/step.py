r"""One step of Algorithm 1, for one replica: θ and ψ are updated on train, ρ on reg.

`train_step` updates (θ, ψ) by the gradient of the train objective on a train batch; `reg_step` updates ρ by the
gradient of the reg objective on a reg batch. At the end of a training, either may learn from rollouts instead.
`crossreg.routing.route` splits the model into these two parts, and each step differentiates with respect to its own
part alone. `training/compiled.py` decides after which steps ρ is updated.

Both steps are pure, and all randomness follows from the replica's key and the step number. Where several devices share
a batch (`training/parallel.py`), each computes its part of it, and all of them apply the sum of the gradients.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from crossreg.config import TrainConfig
from crossreg.data.keys import REG_STREAM, TRAIN_STREAM
from crossreg.data.pairs import AbstractPairs, Batch
from crossreg.forecasts.particles import affine_of
from crossreg.nn.kernels import ComputePath
from crossreg.nn.surrogate import Surrogate, predict
from crossreg.objectives import (
    REG_OBJECTIVES,
    TRAIN_OBJECTIVES,
    RegLoss,
    batch_mean,
    fair_crps,
    log_scale,
    scaled_crps,
)
from crossreg.predictive.in_units import standardized
from crossreg.routing import Routed, learning_rates, merge, route
from crossreg.training.packed import Packed
from crossreg.training.parallel import WHOLE, Share
from crossreg.training.rollouts import draw_windows, rollout_loss

_BETA_2 = 0.999
_ADAM = optax.scale_by_adam(b2=_BETA_2)
# The last share of a run, over which the schedule `decay` takes the rate to 0.
_FINAL_DECAY = 0.2
_REPLICAS_FOR_KERNELS = 4
# The rate of all of ρ at the first rollout, in terms of the noise sites' rate in single steps. It ends at 0.
_ROLLOUT_RATE = 1.5


class Overrides(NamedTuple):
    """Functions that a caller passes in place of settings; with None, the config decides.

    Attributes:
        optimizer: Updates θ and ψ instead of Adam. It gets the gradients and the parameters as trees, and is applied as
            it is: the config's `learning_rate`, `site_learning_rate`, `schedule` and `clip` then concern ρ alone.
        reg_objective: The loss that ρ minimises instead of the config's `reg_objective`.
    """

    optimizer: optax.GradientTransformation | None = None
    reg_objective: RegLoss | None = None


NO_OVERRIDES = Overrides()


class Task(eqx.Module):
    """The data that one replica learns from, and the key that all its randomness follows from.

    `held_out` is the part of the data that scores along the way are computed on: the calibration part of reg or, where
    none was split off, all of reg. Stacked tasks have a leading replica axis, except in what they share.
    """

    key: Key[Array, "*replica"]
    train: AbstractPairs
    reg: AbstractPairs
    held_out: AbstractPairs


class TrainState(eqx.Module):
    """One replica in training: parameters, the states of both optimisers, and the losses since the last record.

    `diverged_at` is the step at which a loss or gradient was not finite, or −1. From then on the replica stays frozen
    at its last finite state.
    """

    theta_psi: Packed
    rho: Packed
    train_optimizer: optax.OptState
    reg_optimizer: optax.OptState
    train_loss: Float[Array, ""]
    reg_loss: Float[Array, ""]
    diverged_at: Int[Array, ""]


def init_state(model: Surrogate, optimizer: optax.GradientTransformation | None = None) -> TrainState:
    """Return the state before the first step; `optimizer` is that of `Overrides`."""
    parts = route(model)
    theta_psi, rho = Packed.of(parts.theta_psi), Packed.of(parts.rho)
    return TrainState(
        theta_psi,
        rho,
        _ADAM.init(theta_psi.vector) if optimizer is None else optimizer.init(parts.theta_psi),
        _ADAM.init(rho.vector),
        jnp.zeros(()),
        jnp.zeros(()),
        jnp.asarray(-1, jnp.int32),
    )


def with_engine(config: TrainConfig, replicas: int) -> TrainConfig:
    """Replace the engine `auto` by the one that is faster for so many replicas.

    The fused kernels move less memory but take longer to start: they pay on a GPU with several replicas.
    """
    if config.engine != "auto":
        return config
    kernels = jax.default_backend() == "gpu" and replicas >= _REPLICAS_FOR_KERNELS
    return dataclasses.replace(config, engine="fused" if kernels else "reference")


def path_of(config: TrainConfig, *, noise_only: bool = False) -> ComputePath:
    """Return how training computes its samples."""
    if config.engine != "fused":
        return "reverse"
    return "noise kernels" if noise_only else "kernels"


def shorten(gradient: Float[Array, " size"], optimizer: Any, clip: float) -> Float[Array, " size"]:
    r"""Shorten a gradient g to at most `clip` times the running root mean square length of the earlier ones.

    $$ g \min(1, c \, \|\hat v\|_1^{1/2} / \|g\|_2), \qquad \hat v \text{ the running mean of } g^2 $$

    The running mean is in Adam's state. A gradient that is 10⁵ times too long moves no parameter far, since Adam
    divides by √v; but v then takes 10⁴ steps to forget it, in which next to nothing is learned. As c is relative to the
    usual length, it fits data of any scale.
    """
    # Squares would overflow: divide by the sum first. `_keep_finite` reads the same sum, so that one pass serves both.
    total = jnp.sum(jnp.abs(gradient))
    length = total * jnp.linalg.norm(gradient / jnp.where(total > 0, total, 1.0))
    # Adam's bias correction: the mean of t squares, however few.
    remembered = jnp.sum(optimizer.nu) / jnp.maximum(1 - _BETA_2**optimizer.count, 1 - _BETA_2)
    limit = clip * jnp.sqrt(remembered)
    # With nothing to compare with, at the first update or after zeros, any length is usual.
    is_long = (limit > 0) & (length > limit)
    return gradient * jnp.where(is_long, limit / jnp.where(is_long, length, 1.0), 1.0)


def _descend(
    parameters: Packed, gradients: Packed, optimizer: Any, rates: Any, config: TrainConfig
) -> tuple[Packed, optax.OptState]:
    """Take one step of Adam with a rate for every parameter."""
    gradient = shorten(gradients.vector, optimizer, config.clip) if config.clip else gradients.vector
    directions, optimizer = _ADAM.update(gradient, optimizer)
    return dataclasses.replace(parameters, vector=parameters.vector - rates * directions), optimizer


def _keep_finite(new: TrainState, old: TrainState, loss, gradients: Packed, step) -> TrainState:
    """Return `new` if loss and gradients are finite and the replica has not diverged; else `old`, marked."""
    # A sum is not finite as soon as one term is not, and takes one pass.
    finite = jnp.isfinite(jnp.abs(loss) + jnp.sum(jnp.abs(gradients.vector)))
    keep = finite & (old.diverged_at < 0)
    state = jax.tree.map(lambda n, o: jnp.where(keep, n, o), new, old)
    first_bad = ~finite & (old.diverged_at < 0)
    return eqx.tree_at(lambda s: s.diverged_at, state, jnp.where(first_bad, step, old.diverged_at))


def _rate_factor(step, config: TrainConfig):
    """Return the factor of the rate of θ and ψ at step t, counted from 1."""
    done = (step - 1) / config.steps
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "cosine":
        return jnp.asarray(optax.cosine_decay_schedule(1.0, config.steps)(step - 1))
    return jnp.minimum(1.0, (1 - done) / _FINAL_DECAY)


def keys_of(key: PRNGKeyArray, stream: Int[Array, ""] | int, step: Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Return the keys of a step's batch and of its noise."""
    batch_key, noise_key = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, stream), step))
    return batch_key, noise_key


def _draw(
    pairs: AbstractPairs, keys: tuple[PRNGKeyArray, PRNGKeyArray], size: int, share: Share
) -> tuple[Batch, PRNGKeyArray | Key[Array, " batch"]]:
    """Draw a batch and the key of its noise; a part of a batch has one key for each pair, the same as in the whole."""
    batch_key, noise_key = keys
    if share.parts == 1:
        return pairs.sample(batch_key, size), noise_key
    index, mask_key = pairs.draw(batch_key, size)
    numbers = share.numbers(size)
    place = jnp.minimum(numbers, size - 1)
    batch = pairs.gather(index[place], mask_key=jax.random.split(mask_key, size)[place])
    there = (numbers < size).astype(batch.weight.dtype).reshape(-1, *(1,) * (batch.weight.ndim - 1))
    return batch._replace(weight=batch.weight * there), jax.random.split(noise_key, size)[place]


def train_step(
    state: TrainState,
    static: PyTree,
    task: Task,
    step: Int[Array, ""],
    config: TrainConfig,
    share: Share = WHOLE,
    overrides: Overrides = NO_OVERRIDES,
) -> TrainState:
    r"""Update (θ, ψ) by $\nabla_{(\theta,\psi)}\mathcal L_{train}(B_{train}; \theta, \psi, \rho, \omega_{1:S})$.

    Args:
        state: The replica before the step; its ρ stays as it is.
        static: The part of the model that nobody changes, as `route` splits it.
        task: The data and the key of the replica.
        step: The number t of the step, from 1.
        config: Settings of the training.
        share: The part of a batch that this device computes.
        overrides: Functions in place of settings.

    Returns:
        The replica after the step; unchanged, but marked, if the loss or the gradient is not finite.
    """
    keys = keys_of(task.key, TRAIN_STREAM, step)
    num_samples = config.train_samples or config.num_samples
    objective, is_likelihood = TRAIN_OBJECTIVES[config.train_objective], config.train_objective == "likelihood"

    def one_step(theta_psi):
        batch, noise_key = _draw(task.train, keys, config.batch_size, share)
        model = _without_growth(merge(Routed(theta_psi, rho, static)))
        mixture = predict(
            model,
            batch.x,
            at=batch.at,
            key=noise_key,
            num_samples=num_samples,
            antithetic=config.antithetic and (is_likelihood or num_samples > 2),
            path=path_of(config),
        )
        loss = share.of(objective(mixture, batch.y, batch.weight), batch.weight)
        # The record of a likelihood is in the fields' units, as the NLL on reg beside it.
        shift = log_scale(mixture, batch.y, batch.weight) if is_likelihood else 0.0 * loss
        return loss, share.of(shift, batch.weight)

    def rolled_out(theta_psi):
        horizon, size = config.train_rollout_steps, config.rollout_batch_size
        windows = draw_windows(task.train, keys, horizon, size, num_samples, share)
        model = _without_growth(merge(Routed(theta_psi, rho, static)))
        loss = rollout_loss(model, windows, objective, path_of(config), share)
        units = affine_of(model, windows.y.ndim - 3)
        if units is None or not is_likelihood:
            return loss, 0.0 * loss
        log_s = jnp.broadcast_to(jnp.log(units[1]), windows.y.shape)
        return loss, jnp.mean(jax.vmap(lambda s, w: share.of(batch_mean(s, w), w))(log_s, windows.weight))

    def gradient_of(loss_of):
        return jax.value_and_grad(loss_of, has_aux=True)(tree)

    tree, rho = state.theta_psi.tree(), state.rho.tree()
    if config.train_rollout_steps == 1:
        (loss, shift), gradient_tree = gradient_of(one_step)
    else:
        is_late = step > config.settled_after
        (loss, shift), gradient_tree = jax.lax.cond(
            is_late, lambda: gradient_of(rolled_out), lambda: gradient_of(one_step)
        )
    loss, shift, gradients = share.total((loss, shift, Packed.of(gradient_tree)))
    if overrides.optimizer is None:
        rates = _rate_factor(step, config) * state.theta_psi.spread(learning_rates(tree, config))
        theta_psi, optimizer = _descend(state.theta_psi, gradients, state.train_optimizer, rates, config)
    else:
        updates, optimizer = overrides.optimizer.update(gradients.tree(), state.train_optimizer, tree)
        theta_psi = Packed.of(optax.apply_updates(tree, updates))
    new = eqx.tree_at(
        lambda s: (s.theta_psi, s.train_optimizer, s.train_loss),
        state,
        (theta_psi, optimizer, state.train_loss + loss + shift),
    )
    return _keep_finite(new, state, loss, gradients, step)


def reg_step(
    state: TrainState,
    static: PyTree,
    task: Task,
    step: Int[Array, ""],
    config: TrainConfig,
    share: Share = WHOLE,
    overrides: Overrides = NO_OVERRIDES,
) -> TrainState:
    r"""Update ρ, after step t, by $\nabla_\rho\mathcal L_{reg}(B_{reg}; \theta, \psi, \rho, \omega_{1:S})$.

    θ and ψ stay as they are. Arguments and result are those of `train_step`.
    """

    def one_step(state, task, step):
        return _one_step(state, static, task, step, config, share, overrides)

    def rolled_out(state, task, step):
        return _rollout_step(state, static, task, step, config, share, overrides)

    if config.reg_horizon == 1:
        return one_step(state, task, step)
    return jax.lax.cond(step > config.settled_after, rolled_out, one_step, state, task, step)


def _one_step(state, static, task: Task, step, config: TrainConfig, share: Share, overrides: Overrides) -> TrainState:
    """Update ρ by the gradient of the objective of single steps."""
    batch, noise_key = _draw(task.reg, keys_of(task.key, REG_STREAM, step), config.reg_pairs, share)

    objective = overrides.reg_objective or REG_OBJECTIVES[config.reg_objective]
    # The other objectives, and those of a caller, count on independent samples.
    takes_pairs = objective in (fair_crps, scaled_crps) and config.num_samples > 2

    def loss_of(rho):
        model = _without_growth(merge(Routed(theta_psi, rho, static)))
        mixture = predict(
            model,
            batch.x,
            at=batch.at,
            key=noise_key,
            num_samples=config.num_samples,
            antithetic=config.antithetic and takes_pairs,
            path=path_of(config, noise_only=True),
        )
        return share.of(objective(*standardized(mixture, batch.y), batch.weight), batch.weight)

    theta_psi, tree = state.theta_psi.tree(), state.rho.tree()
    rates = state.rho.spread(learning_rates(tree, config))
    return _descend_rho(state, jax.value_and_grad(loss_of)(tree), state.reg_optimizer, rates, step, config, share)


def _without_growth(model: Surrogate) -> Surrogate:
    """Return the model of single steps: were σ_pred to grow here, ψ would learn to undo it."""
    return dataclasses.replace(model, growth=None)


def _rollout_step(
    state, static, task: Task, step, config: TrainConfig, share: Share, overrides: Overrides
) -> TrainState:
    r"""Update ρ by $\nabla_\rho \frac1K \sum_{k=1}^K \mathcal L_{reg}$ of the mixtures at the leads k of rollouts.

    Of few particles, spreading them about their own mean is not spreading a distribution about its mean: the fair CRPS
    of P Gaussian particles is least where they are spread by a factor of

    $$ \sqrt{P (P + 1) / ((P - 1)(P - 2))}, $$

    1.07 for 30, 1.24 for 10 and 2.4 for 3. With 10 instead of 30, forecasts came out 10% too wide. With 10, and a
    growth learned by the CRPS of the mixture of these 10, the growth took over from the noise: spread over skill was
    0.6 instead of 0.9 at leads 30 to 50.
    """
    step_keys = keys_of(task.key, REG_STREAM, step)
    horizon, size, particles = config.reg_horizon, config.rollout_batch_size, config.rollout_particles
    windows = draw_windows(task.reg, step_keys, horizon, size, particles, share)
    objective = overrides.reg_objective or REG_OBJECTIVES[config.reg_objective]

    def loss_of(rho):
        model = merge(Routed(theta_psi, rho, static))
        return rollout_loss(model, windows, objective, path_of(config, noise_only=True), share)

    theta_psi, tree = state.theta_psi.tree(), state.rho.tree()
    # Adam starts afresh: its moments are those of another objective.
    is_first = step <= config.settled_after + config.k_settled
    optimizer = jax.tree.map(partial(jnp.where, is_first), _ADAM.init(state.rho.vector), state.reg_optimizer)
    done = (step - config.settled_after) / (config.steps - config.settled_after)
    rate = _ROLLOUT_RATE * config.site_learning_rate * jnp.cos(0.5 * jnp.pi * done) ** 2
    return _descend_rho(state, jax.value_and_grad(loss_of)(tree), optimizer, rate, step, config, share)


def _descend_rho(state, found, optimizer, rates, step, config: TrainConfig, share: Share) -> TrainState:
    """Take one step of Adam on ρ, given the loss and its gradient."""
    loss, gradients = share.total((found[0], Packed.of(found[1])))
    rho, optimizer = _descend(state.rho, gradients, optimizer, rates, config)
    new = eqx.tree_at(lambda s: (s.rho, s.reg_optimizer, s.reg_loss), state, (rho, optimizer, state.reg_loss + loss))
    return _keep_finite(new, state, loss, gradients, step)
