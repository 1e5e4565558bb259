r"""A surrogate: a sequence of stages, some of them noise sites, followed by the heads.

Everything before the first stage that draws noise is the same for all S samples, so a surrogate is split there:
`prefix` runs once per input, `sample` once per sample.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from crossreg.data.units import Units
from crossreg.errors import InputError
from crossreg.nn.growth import LeadGrowth
from crossreg.nn.heads import Heads, Moments
from crossreg.nn.kernels import TRAINING_PRECISION, BatchedStage, ComputePath, Pending, fold_in
from crossreg.nn.noise import (
    AbstractNoise,
    GaussianNoise,
    has_predictive_noise,
    is_stochastic,
    mirrored,
    without_predictive_noise,
)
from crossreg.predictive.in_units import InUnits
from crossreg.predictive.mixture import Mixture


class Surrogate(eqx.Module):
    """One step of a field, with its uncertainty: unbatched, random only through `key`.

    Build one with [`build_model`][] or [`cross_regularize`][]; predict a batch with [`predict`][].

    Attributes:
        stages: Functions that are applied in order, from the input to the features that the heads read. A stage that
            holds a noise site is called with `key=`, every other stage without.
        heads: The output heads.
        predict_increment: Whether the mean head gives the change from the input.
        units: Offset and scale of each channel, or None. With units, stages and heads work on standardised fields,
            while inputs and outputs are in the fields' units.
        growth: How much wider predictions are, by lead, where this was learned on rollouts; None elsewhere.

    Example:
        ```python
        moments = result.model(x[0], key=jax.random.key(0))  # one field and one model instance
        moments.mean.shape
        ```
    """

    stages: tuple[Callable, ...]
    heads: Heads
    predict_increment: bool = eqx.field(static=True, default=False)
    units: Units | None = eqx.field(static=True, default=None)
    growth: LeadGrowth | None = None

    @property
    def _first_stochastic(self) -> int:
        flags = [is_stochastic(stage) for stage in self.stages]
        return flags.index(True) if True in flags else len(flags)

    @property
    def is_stochastic(self) -> bool:
        """Whether two samples differ; if not, one sample is the whole mixture."""
        return is_stochastic(self.stages)

    @property
    def can_pair(self) -> bool:
        """Whether samples can be drawn in pairs with opposite noise: all its noise has a mirror image."""
        return self.is_stochastic and mirrored(self.stages) is not None

    def prefix(self, x: Float[Array, "in *space"]) -> Float[Array, "width *space"]:
        """Apply the stages before the first noise."""
        return _run(self.stages[: self._first_stochastic], self.to_network(x), None)

    def sample(self, h: Float[Array, "width *space"], x: Float[Array, "in *space"], *, key: PRNGKeyArray) -> Moments:
        """Sample one model instance ω: apply the stages after `h = prefix(x)`, with noise from `key`, and the heads."""
        moments = self.heads(_run(self.stages[self._first_stochastic :], h, key))
        moments = self.step_from(self.to_network(x), moments)
        return moments if self.units is None else moments.in_units(self.units)

    def to_network(self, x: Float[Array, "in *axes"]) -> Float[Array, "in *axes"]:
        """Return the input as the first stage reads it."""
        return x if self.units is None else self.units.to_network(x)

    def step_from(self, x: Float[Array, "in *axes"], moments: Moments) -> Moments:
        """Return the moments of the next field from those of the heads and the input, all in the network's units."""
        if self.predict_increment:
            # Further channels of the input (a mask) are not part of the field.
            moments = eqx.tree_at(lambda m: m.mean, moments, x[: moments.mean.shape[0]] + moments.mean)
        return moments

    def __call__(self, x: Float[Array, "in *space"], *, key: PRNGKeyArray) -> Moments:
        """Sample one Gaussian at every point.

        Args:
            x: One input field, without a batch axis.
            key: The key of the noise.

        Returns:
            The mean and log σ of one model instance.
        """
        return self.sample(self.prefix(x), x, key=key)


@runtime_checkable
class Trained(Protocol):
    """Anything that holds a trained surrogate: a [`Fit`][crossreg.Fit] or a [`Run`][crossreg.Run]."""

    @property
    def model(self) -> Surrogate: ...


def surrogate_in(model: Surrogate | Trained) -> Surrogate:
    """Return a surrogate, or the one that a `Fit` or a `Run` holds."""
    inside = model if isinstance(model, Surrogate) else getattr(model, "model", None)
    if not isinstance(inside, Surrogate):
        raise TypeError(f"expected a surrogate, or a Fit or a Run, which hold one, not a {type(model).__name__}")
    return inside


def _run(stages, h, key):
    """Apply stages in order, each that draws noise with a key of its own."""
    for number, stage in enumerate(stages):
        if is_stochastic(stage):
            h = stage(h, key=fold_in(key, number))
        elif not isinstance(stage, AbstractNoise):  # a site whose noise was removed does nothing
            h = stage(h)
    return h


def _run_many(stages, h: Float[Array, "channel sample *space"], keys, path: ComputePath) -> Pending:
    """Apply stages to many samples at once; pointwise work stays pending until the next stage, which may take it in.

    With half as many keys as samples, the second half of the samples has the noise of the first with −ε for ε.
    """
    waiting = Pending(h)
    for number, stage in enumerate(stages):
        stage_keys = None
        if is_stochastic(stage):
            stage_keys = jax.vmap(lambda key, number=number: fold_in(key, number))(keys)
        elif isinstance(stage, AbstractNoise):
            continue
        if (later := _postponed(waiting, stage, stage_keys)) is not None:
            waiting = later
        elif stage_keys is not None:
            waiting = Pending(_sampled(stage, waiting.done(), stage_keys))
        elif isinstance(stage, BatchedStage):
            waiting = Pending(_through(stage, waiting, path))
        else:
            waiting = Pending(jax.vmap(stage, in_axes=1, out_axes=1)(waiting.done()))
    return waiting


def _postponed(waiting: Pending, stage: Callable, keys) -> Pending | None:
    """Add a GELU, or noise that is the same at all points of a channel, to the pending work; None for other stages."""
    if stage is jax.nn.gelu and not waiting.gelu:
        return waiting._replace(gelu=True)
    if not isinstance(stage, GaussianNoise) or not stage.is_per_channel:
        return None
    field = waiting.field
    shape = (field.shape[0], *field.shape[2:])
    factor = jax.vmap(lambda key: stage.factor(shape, key=key, dtype=field.dtype), out_axes=1)(keys)
    if keys.shape[0] < field.shape[1]:
        factor = jnp.concatenate([factor, 2 - factor], axis=1)  # 1 − σε for 1 + σε
    return waiting.times(factor.reshape(field.shape[:2]))


def _sampled(stage, h: Float[Array, "channel sample *space"], keys: Key[Array, " drawn"]):
    """Apply a stage that draws noise, each sample with its own key, or the opposite of an earlier sample's noise."""

    def apply(stage, h):
        return jax.vmap(lambda h, key: stage(h, key=key), in_axes=(1, 0), out_axes=1)(h, keys)

    drawn = keys.shape[0]
    if drawn == h.shape[1]:
        return apply(stage, h)
    return jnp.concatenate([apply(stage, h[:, :drawn]), apply(mirrored(stage), h[:, drawn:])], axis=1)


def _through(layer: BatchedStage | Heads, waiting: Pending, path: ComputePath) -> Any:
    """Apply a stage or the heads to all samples, computed as `path` says."""
    if path in ("kernels", "noise kernels"):
        done = layer.fused(waiting, weight_gradients=path == "kernels")
        if done is not None:
            return done
    return layer(waiting.done()) if path == "plain" else layer.reverse(waiting.done(path))


def predict(
    model: Surrogate | Trained,
    x: Float[Array, "batch in *space"],
    *,
    key: PRNGKeyArray | Key[Array, " batch"] | None = None,
    num_samples: int = 30,
    at: Int[Array, "batch point"] | None = None,
    antithetic: bool = False,
    path: ComputePath = "plain",
) -> Mixture | InUnits:
    """Return the predictive distribution of a batch of inputs.

    Args:
        model: The surrogate, or a `Fit` or a `Run` that holds it.
        x: Inputs, (batch, channel, *space), in the fields' units if the model has units. They must be finite: a point
            that was not measured is 0, or its channel's offset in units, as `gather` of the pairs has it. Inside a
            compiled program, where values are not known, this is not checked.
        key: One key, or one key per input: the noise of an input then does not depend on the rest of the batch. The
            default is `jax.random.key(0)`, so that repeated calls give the same prediction.
        num_samples: The number S of model instances; a model without noise inside needs, and takes, one.
        at: Grid points of each input in row-major order, to predict there only. The default is the whole grid.
        antithetic: Whether samples come in pairs with opposite noise, ε and −ε: what the noise does to first order
            then cancels in the mean, which is closer to that of infinitely many samples. An odd number of samples, and
            those of a model with noise that has no mirror image, such as dropout, are independent all the same.
        path: How the numbers are computed. All ways but `"plain"` can be differentiated in reverse mode only.

    Returns:
        A mixture, with arrays of shape (sample, batch, channel, *space) or, with `at`, (sample, batch, channel, point).
        If the model has units, it is an [`InUnits`][], which holds the mixture of the standardised fields.

    Raises:
        InputError: If `x` has the wrong shape, is empty or is not finite, or `num_samples` is less than 1.

    Example:
        ```python
        mixture = xr.predict(result.model, data.test[:8].x)
        mixture.mean, mixture.std  # (8, channel, *space) each
        ```
    """
    model = surrogate_in(model)
    _check_input(model, x, num_samples)
    if at is not None and at.shape[0] != x.shape[0]:
        raise ValueError(f"at has shape {at.shape}; expected (batch, point) for a batch of {x.shape[0]}")
    key = jax.random.key(0) if key is None else key
    paired = antithetic and num_samples % 2 == 0 and model.can_pair
    drawn = num_samples // 2 if paired else num_samples
    keys = sample_keys(key if key.ndim == 1 else jax.random.split(key, x.shape[0]), drawn)
    with jax.default_matmul_precision("float32" if path == "plain" else TRAINING_PRECISION):
        moments = _only_at(at, _sample_moments(model, x[None], keys, path, paired=paired))
        # The part of the means' spread that is ω's alone. XLA removes this where `instance_means` is not used.
        quiet = without_psi_noise(model)
        instances = None if quiet is None else _only_at(at, _sample_moments(quiet, x[None], keys, paired=paired)).mean
    mixture = _mixture_of(moments, instances, paired=paired)
    if model.growth is not None:
        mixture = model.growth(mixture, 1)
    if model.units is None:
        return mixture
    num_dims = mixture.means.ndim - 3
    return InUnits(mixture, model.units.offsets(num_dims), model.units.scales(num_dims))


def predict_each(
    model: Surrogate,
    x: Float[Array, "sample batch in *space"],
    keys: Key[Array, "sample batch"],
    *,
    path: ComputePath = "plain",
) -> Mixture:
    """Return the mixture whose component s is model instance s applied to an input of its own.

    This is one step of a rollout, where instances have gone different ways. Equal inputs, and keys from `sample_keys`,
    give the mixture of `predict`.

    Args:
        model: A surrogate without units.
        x: One input for each component, standardised.
        keys: The key of each component's noise. A model without noise inside is its own only instance, so that
            components then differ in their inputs alone.
        path: How the numbers are computed, as in `predict`.

    Returns:
        A mixture of arrays (sample, batch, channel, *space), in the network's units. It has not grown by lead, since
        instances are followed by what they predict themselves.
    """
    with jax.default_matmul_precision("float32" if path == "plain" else TRAINING_PRECISION):
        return _mixture_of(_sample_moments(model, x, keys, path))


def sample_keys(keys: Key[Array, " batch"], num_samples: int) -> Key[Array, "sample batch"]:
    """Return the keys of the model instances that `predict` draws for inputs with these keys."""
    return jax.vmap(lambda key: jax.random.split(key, num_samples), out_axes=1)(keys)


def without_psi_noise(model: Surrogate) -> Surrogate | None:
    """Return the model in which the noise of the instance ω alone is left, or None if ψ owns no noise inside."""
    if not has_predictive_noise(model.stages):
        return None
    return eqx.tree_at(lambda m: m.stages, model, without_predictive_noise(model.stages))


def _mixture_of(moments: Moments, instances: Float[Array, "..."] | None = None, *, paired: bool = False) -> Mixture:
    gen = moments.log_sigma_gen
    return Mixture(
        moments.mean,
        jnp.exp(2 * moments.log_sigma_pred),
        jnp.zeros_like(moments.mean) if gen is None else jnp.exp(2 * gen),
        instances,
        paired,
    )


def _check_input(model: Surrogate, x: Float[Array, "..."], num_samples: int) -> None:
    """Raise InputError if no prediction can be made of these inputs."""
    if x.ndim < 3:
        raise InputError(f"x has shape {x.shape}; expected (batch, channel, *space)")
    if not x.size:
        raise InputError(f"x is empty: it has shape {x.shape}")
    if num_samples < 1:
        raise InputError(f"num_samples is {num_samples}; expected at least 1")
    if model.units is not None and x.shape[1] not in (own := len(model.units.offset), own + 1):
        raise InputError(f"x has {x.shape[1]} channels; the model reads {own}, optionally followed by a mask")
    if isinstance(x, Tracer):
        return
    with jax.ensure_compile_time_eval():  # in a program, the values of a constant are known
        is_finite = bool(jnp.isfinite(x).all())
    if not is_finite:
        raise InputError(
            "x is not finite everywhere; a model that was trained with hidden points takes 0, or the offset of its"
            " units, where nothing was measured"
        )


def _only_at(at: Int[Array, "batch point"] | None, moments: Moments) -> Moments:
    """Return the moments at some points of the grid. Heads are pointwise, so gathering after them loses nothing."""
    if at is None:
        return moments

    def gather(field: Float[Array, "sample batch channel *space"]) -> Float[Array, "sample batch channel point"]:
        return jnp.take_along_axis(field.reshape(*field.shape[:3], -1), at[None, :, None], axis=-1)

    return jax.tree.map(gather, moments)


def _sample_moments(
    model: Surrogate, x, keys: Key[Array, "drawn batch"], path: ComputePath = "plain", *, paired: bool = False
) -> Moments:
    """Sample S Gaussians for each input, (sample, batch, channel, *space), of inputs (sample or 1, batch, in, *space).

    S is the number of keys, or twice that where samples are paired.

    Samples and batch meet only here: both are folded into one axis, each (sample, input) with its own noise. That axis
    comes second, after the channels, so that a pointwise layer stays one 2-D matrix product without a transpose. Where
    all samples share an input, what comes before the first noise is computed once.
    """
    own, batch = x.shape[:2]
    num_samples = (2 if paired else 1) * keys.shape[0] if model.is_stochastic else own
    x = jnp.moveaxis(x, 2, 0)
    x = model.to_network(x.reshape(x.shape[0], own * batch, *x.shape[3:]))

    def fold(field):
        if own == num_samples:
            return field
        repeated = jnp.broadcast_to(field[:, None], (field.shape[0], num_samples, *field.shape[1:]))
        return repeated.reshape(field.shape[0], num_samples * batch, *field.shape[2:])

    def unfold(field):
        return jnp.moveaxis(field.reshape(field.shape[0], num_samples, batch, *field.shape[2:]), 0, 2)

    first = model._first_stochastic
    h = _run_many(model.stages[:first], x, None, path).done()
    features = _run_many(model.stages[first:], fold(h), keys[:num_samples].reshape(-1), path)
    moments = model.step_from(fold(x), _through(model.heads, features, path))
    return jax.tree.map(unfold, moments)
