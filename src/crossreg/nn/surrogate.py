r"""A surrogate: a row of stages, noise sites among them, and the heads.

Everything before the first stage that draws noise is the same for all S samples, so a
surrogate comes apart there: `prefix` runs once per input, `sample` once per sample.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.nn.heads import Heads, Moments
from crossreg.nn.kernels.draws import fold_in
from crossreg.nn.kernels.pending import TRAINING_PRECISION, BatchedStage, ComputePath, Pending
from crossreg.nn.noise import AbstractNoise, has_predictive_noise, is_stochastic, without_predictive_noise
from crossreg.predictive.in_units import InUnits
from crossreg.predictive.mixture import Mixture


class Surrogate(eqx.Module):
    """One step of a field, with its uncertainty: unbatched, random only through `key`.

    `stages` are applied in order, from the input to the features that the heads read; one that
    holds a noise site is called with `key=`, every other without. With `predict_increment` the
    mean head gives the change from the input. With `units`, stages and heads work in standardised
    fields, and what goes in and comes out is in the fields' own units.
    """

    stages: tuple[Callable, ...]
    heads: Heads
    predict_increment: bool = eqx.field(static=True, default=False)
    units: Units | None = eqx.field(static=True, default=None)

    @property
    def _first_stochastic(self) -> int:
        flags = [is_stochastic(stage) for stage in self.stages]
        return flags.index(True) if True in flags else len(flags)

    @property
    def is_stochastic(self) -> bool:
        """Whether two samples of it differ; if not, one sample is the whole mixture."""
        return is_stochastic(self.stages)

    def prefix(self, x: Float[Array, "in *space"]) -> Float[Array, "width *space"]:
        """The part that no noise reaches."""
        return _run(self.stages[: self._first_stochastic], self.to_network(x), None)

    def sample(self, h: Float[Array, "width *space"], x: Float[Array, "in *space"], *, key: PRNGKeyArray) -> Moments:
        """One model instance ω: the rest of the network after `h = prefix(x)`, with its own noise, and the heads."""
        moments = self.heads(_run(self.stages[self._first_stochastic :], h, key))
        moments = self.step_from(self.to_network(x), moments)
        return moments if self.units is None else moments.in_units(self.units)

    def to_network(self, x: Float[Array, "in *axes"]) -> Float[Array, "in *axes"]:
        """The input as the first stage reads it."""
        return x if self.units is None else self.units.to_network(x)

    def step_from(self, x: Float[Array, "in *axes"], moments: Moments) -> Moments:
        """The moments of the next field, from what the heads say and the input, both in the network's units."""
        if self.predict_increment:
            # Further channels of the input (a mask) are not part of the field.
            moments = eqx.tree_at(lambda m: m.mean, moments, x[: moments.mean.shape[0]] + moments.mean)
        return moments

    def __call__(self, x: Float[Array, "in *space"], *, key: PRNGKeyArray) -> Moments:
        """One sampled Gaussian at every point."""
        return self.sample(self.prefix(x), x, key=key)


def _run(stages, h, key):
    """Applies stages in order, each that draws noise with a key of its own."""
    for number, stage in enumerate(stages):
        if is_stochastic(stage):
            h = stage(h, key=fold_in(key, number))
        elif not isinstance(stage, AbstractNoise):  # a site whose noise is taken out does nothing
            h = stage(h)
    return h


def _run_many(stages, h: Float[Array, "channel sample *space"], keys, path: ComputePath) -> Pending:
    """`_run` for many samples at once, stage by stage; pointwise work waits for the next, which may take it in."""
    waiting = Pending(h)
    for number, stage in enumerate(stages):
        stage_keys = None
        if is_stochastic(stage):
            stage_keys = jax.vmap(lambda key, number=number: fold_in(key, number))(keys)
        elif isinstance(stage, AbstractNoise):
            continue
        if (later := waiting.then(stage, stage_keys)) is not None:
            waiting = later
        elif stage_keys is not None:
            step = jax.vmap(lambda h, key, stage=stage: stage(h, key=key), in_axes=(1, 0), out_axes=1)
            waiting = Pending(step(waiting.done(), stage_keys))
        elif isinstance(stage, BatchedStage):
            waiting = Pending(_take(stage, waiting, path))
        else:
            waiting = Pending(jax.vmap(stage, in_axes=1, out_axes=1)(waiting.done()))
    return waiting


def _take(stage: BatchedStage, waiting: Pending, path: ComputePath) -> Float[Array, "channel sample *space"]:
    """All samples through one stage, the way `path` says."""
    if path in ("kernels", "noise kernels"):
        done = stage.fused(waiting, weight_gradients=path == "kernels")
        if done is not None:
            return done
    return stage(waiting.done()) if path == "plain" else stage.reverse(waiting.done(path))


def _read(heads: Heads, waiting: Pending, path: ComputePath) -> Moments:
    """All samples through the heads, the way `path` says."""
    moments = heads.fused(waiting) if path in ("kernels", "noise kernels") else None
    if moments is not None:
        return moments
    return heads(waiting.done()) if path == "plain" else heads.reverse(waiting.done(path))


def predict(
    model: Surrogate,
    x: Float[Array, "batch in *space"],
    *,
    key: PRNGKeyArray | Key[Array, " batch"],
    num_samples: int = 30,
    at: Int[Array, "batch point"] | None = None,
    path: ComputePath = "plain",
) -> Mixture | InUnits:
    """The predictive mixture of a batch of inputs, its arrays of shape (sample, batch, channel, *space).

    Where the model has units, the mixture is that of the standardised fields and what it says is in the fields' units.
    Inputs that are not finite are refused, where this is not part of a compiled program: a gap in the data is a hidden
    point (0, or the offset of its channel in units), as `gather` of the pairs makes it.

    With `at`, only at these points of each input's grid, numbered in row-major order: (sample, batch, channel, point).
    `key` is one key, or one for each input: an input's noise then does not depend on what else is in the batch.
    `path` says how the numbers are computed; all but `plain` can be differentiated in reverse mode only.
    """
    _check_input(model, x, num_samples)
    if at is not None and at.shape[0] != x.shape[0]:
        raise ValueError(f"at has shape {at.shape}; expected (batch, point) for a batch of {x.shape[0]}")
    keys = key if key.ndim == 1 else jax.random.split(key, x.shape[0])
    with jax.default_matmul_precision("float32" if path == "plain" else TRAINING_PRECISION):
        moments = _only_at(at, _sample_moments(model, x, keys, num_samples, path))
        instances = None
        if has_predictive_noise(model.stages):
            # How much of the means' spread is ω's alone. Nothing of this runs where nobody asks for it.
            muted = eqx.tree_at(lambda m: m.stages, model, without_predictive_noise(model.stages))
            instances = _only_at(at, _sample_moments(muted, x, keys, num_samples)).mean
    gen = moments.log_sigma_gen
    mixture = Mixture(
        moments.mean,
        jnp.exp(2 * moments.log_sigma_pred),
        jnp.zeros_like(moments.mean) if gen is None else jnp.exp(2 * gen),
        instances,
    )
    if model.units is None:
        return mixture
    num_dims = mixture.means.ndim - 3
    return InUnits(mixture, model.units.offsets(num_dims), model.units.scales(num_dims))


def _check_input(model: Surrogate, x: Float[Array, "..."], num_samples: int) -> None:
    """Refuse what no prediction can be made of: what is wrong is said of the argument that it is wrong in."""
    if x.ndim < 3:
        raise InputError(f"x has shape {x.shape}; expected (batch, channel, *space)")
    if not x.size:
        raise InputError(f"x is empty: it has shape {x.shape}")
    if num_samples < 1:
        raise InputError(f"num_samples is {num_samples}; expected at least 1")
    if model.units is not None and x.shape[1] not in (own := len(model.units.offset), own + 1):
        raise InputError(f"x has {x.shape[1]} channels; the model reads fields of {own}, and at most a mask after them")
    if isinstance(x, Tracer):
        return
    with jax.ensure_compile_time_eval():  # fields that are known while a program is made of them
        is_finite = bool(jnp.isfinite(x).all())
    if not is_finite:
        raise InputError(
            "x is not finite everywhere; a model that was trained with hidden points takes 0 for what was not measured,"
            " or the offset of its units"
        )


def _only_at(at: Int[Array, "batch point"] | None, moments: Moments) -> Moments:
    """The moments at some points of the grid. Heads are pointwise: to gather behind them is to gather before."""
    if at is None:
        return moments

    def gather(field: Float[Array, "sample batch channel *space"]) -> Float[Array, "sample batch channel point"]:
        return jnp.take_along_axis(field.reshape(*field.shape[:3], -1), at[None, :, None], axis=-1)

    return jax.tree.map(gather, moments)


def _sample_moments(model: Surrogate, x, keys, num_samples: int, path: ComputePath = "plain") -> Moments:
    """S sampled Gaussians for each input in the network's units, (sample, batch, channel, *space).

    The only place where samples and batch meet: both are folded into one axis, each pair with its own noise. That
    axis stands second, behind the channels, so that a vmapped pointwise layer stays one 2-D matrix product with
    nothing transposed.
    """
    if not model.is_stochastic:
        num_samples = 1
    batch = x.shape[0]
    x = model.to_network(jnp.moveaxis(x, 0, 1))
    sample_keys = jax.vmap(lambda k: jax.random.split(k, num_samples), out_axes=1)(keys).reshape(-1)

    def fold(field):
        repeated = jnp.broadcast_to(field[:, None], (field.shape[0], num_samples, *field.shape[1:]))
        return repeated.reshape(field.shape[0], num_samples * batch, *field.shape[2:])

    def unfold(field):
        return jnp.moveaxis(field.reshape(field.shape[0], num_samples, batch, *field.shape[2:]), 0, 2)

    first = model._first_stochastic
    h = _run_many(model.stages[:first], x, None, path).done()
    features = _run_many(model.stages[first:], fold(h), sample_keys, path)
    moments = model.step_from(fold(x), _read(model.heads, features, path))
    return jax.tree.map(unfold, moments)
