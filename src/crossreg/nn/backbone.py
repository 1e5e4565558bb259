r"""Any Equinox module as a backbone: noise after the parts that a selector names, and heads on its output.

    model = cross_regularize(unet, lambda m: (m.lifting, *m.down_sampling_blocks), data.train, key=key)

A foreign module calls its parts without keys. So each noisy part holds its own: for each sample, `Backbone` puts a key
into every noisy part and then calls the module unchanged.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from crossreg.config import ModelConfig
from crossreg.data.pairs import AbstractPairs
from crossreg.nn.build import data_scale, pred_start, site_noise
from crossreg.nn.heads import make_heads
from crossreg.nn.kernels import fold_in
from crossreg.nn.noise import AbstractNoise
from crossreg.nn.surrogate import Surrogate

Where = Callable[[Any], Any]


class Noisy(eqx.Module):
    """A part of a foreign module with noise on its output; without a key, the part alone.

    A part that is called several times in one pass has the same noise each time.
    """

    part: Callable
    noise: AbstractNoise
    key: PRNGKeyArray | None = None

    def __call__(self, *args, **kwargs):
        h = self.part(*args, **kwargs)
        return h if self.key is None else self.noise(h, key=self.key)


class Backbone(eqx.Module):
    """A foreign module with noisy parts as one stage of a surrogate."""

    module: Callable

    def __call__(
        self, x: Float[Array, "in *space"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "width *space"]:
        """Return the features of one sample; without a key, those of the module without noise."""
        return (self.module if key is None else _with_keys(self.module, key))(x)


def _with_keys(module: PyTree, key: PRNGKeyArray) -> PyTree:
    """Put a key of its own into every noisy part of a module."""
    leaves, structure = jax.tree.flatten(module, is_leaf=lambda node: isinstance(node, Noisy))
    filled = [
        Noisy(leaf.part, leaf.noise, fold_in(key, number)) if isinstance(leaf, Noisy) else leaf
        for number, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, filled)


class _Mark(NamedTuple):
    """A placeholder for a selected part."""

    number: int


def _chosen(module: PyTree, where: Where) -> list[Callable]:
    """Return the parts that a selector names."""
    found = where(module)
    parts = list(found) if isinstance(found, Sequence) else [found]
    for part in parts:
        if not callable(part):
            raise TypeError(
                f"where: selects an object of type {type(part).__name__}; noise can only follow a part that is called"
            )
    return parts


def _replaced(module: PyTree, where: Where, parts: Sequence[Any]) -> PyTree:
    """Replace the parts that a selector names."""
    return eqx.tree_at(lambda m: list(found) if isinstance(found := where(m), Sequence) else [found], module, parts)


def _names(module: PyTree, where: Where, count: int) -> list[str]:
    """Return the path of each chosen part, as one would write it: `blocks[2].conv`."""
    try:
        marked = _replaced(module, where, [_Mark(number) for number in range(count)])
    except ValueError as error:
        raise ValueError(f"where: selects something outside the module, or a part inside another ({error})") from error
    leaves, _ = jax.tree_util.tree_flatten_with_path(marked, is_leaf=lambda node: isinstance(node, _Mark))
    paths = {leaf.number: jax.tree_util.keystr(path).lstrip(".") for path, leaf in leaves if isinstance(leaf, _Mark)}
    if len(paths) < count:
        raise ValueError("where: selects a part twice; each may be selected once")
    return [paths[number] or "module" for number in range(count)]


def _shapes(
    module: PyTree, where: Where, parts: Sequence[Callable], names: Sequence[str], x: jax.ShapeDtypeStruct
) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return the shapes of the outputs of every chosen part, and of the module, without computing them."""
    seen: dict[int, tuple[int, ...]] = {}

    def recording(number: int, part: Callable) -> Callable:
        def call(*args, **kwargs):
            h = part(*args, **kwargs)
            if not eqx.is_inexact_array(h) or not h.ndim:
                raise TypeError(f"where: {names[number]} returns no array with channels, which noise could multiply")
            if seen.setdefault(number, h.shape) != h.shape:
                raise ValueError(
                    f"where: {names[number]} returns shapes {seen[number]} and {h.shape} in one pass; expected one"
                    " shape"
                )
            return h

        return call

    recorder = _replaced(module, where, [recording(i, part) for i, part in enumerate(parts)]) if parts else module
    out = jax.eval_shape(recorder, x)
    if missed := [names[number] for number in range(len(parts)) if number not in seen]:
        raise ValueError(f"where: {', '.join(missed)} is not called by the module, so its noise would have no effect")
    return [seen[number] for number in range(len(parts))], out.shape


def cross_regularize(
    module: Callable,
    where: Where,
    pairs: AbstractPairs,
    *,
    config: ModelConfig | None = None,
    key: PRNGKeyArray | None = None,
) -> Surrogate:
    r"""Build a surrogate from any Equinox module: put noise after some of its parts, and heads on its output.

    Linear heads for $\mu$, $\log\sigma_{pred}$ and $\log\sigma_{gen}$ read the module's output, whose channels are the
    features. All floating-point arrays of the module are trained.

    Args:
        module: A function of one field of `pairs`, (channel, *space), that returns features (width, *space).
        where: Selects the parts to put noise after, as for `equinox.tree_at`: one part of the module, several, or none,
            for a model with heads alone.
        pairs: Training pairs, for shapes, units and the start of $\log\sigma_{pred}$.
        config: Which noise (generalization by default; dropout for a baseline), its start and bounds, and whether there
            is a head for $\sigma_{gen}$. Width, blocks, modes and sites are an FNO's and are ignored.
        key: The key of the heads' weights. The default is `jax.random.key(0)`.

    Returns:
        A surrogate whose weights are those of `module`.

    Raises:
        TypeError: If the module has complex arrays, or `where` chooses something that cannot be called or gives no
            array.
        ValueError: If `where` chooses a part twice, or one that the module does not call, or the features do not have
            the shape of the field.

    Example:
        ```python
        where = lambda m: (m.lifting, *m.down_sampling_blocks)
        model = xr.cross_regularize(unet, where, data.train)
        ```
    """
    config, key = config or ModelConfig(), jax.random.key(0) if key is None else key
    if any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(eqx.filter(module, eqx.is_inexact_array))):
        raise TypeError("the module has complex arrays; keep their real and imaginary parts as two real ones")
    channels, *space = pairs.field_shape
    parts = _chosen(module, where)
    names = _names(module, where, len(parts)) if parts else []
    x = jax.ShapeDtypeStruct((pairs.in_channels, *space), jnp.float32)
    shapes, out = _shapes(module, where, parts, names, x)
    if len(out) != 1 + len(space) or out[1:] != tuple(space):
        raise ValueError(
            f"the module returns {out} for {x.shape}; expected features of shape (width, {str(space)[1:-1]})"
        )
    noisy = [
        Noisy(part, site_noise(config, name, shape)) for part, name, shape in zip(parts, names, shapes, strict=True)
    ]
    heads = make_heads(
        out[0],
        channels,
        generalization=config.generalization_head,
        log_sigma_pred_start=pred_start(config, data_scale(pairs)),
        log_sigma_gen_start=config.log_sigma_gen_start,
        bounds=(config.head_log_sigma_min, config.head_log_sigma_max),
        key=key,
    )
    backbone = Backbone(_replaced(module, where, noisy) if noisy else module)
    return Surrogate((backbone,), heads, config.predict_increment, pairs.units)
