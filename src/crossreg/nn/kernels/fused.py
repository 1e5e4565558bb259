r"""A spectral block, and the heads, with the noise and GELU before them, in few GPU kernels for all samples.

    h = f_2 ⊙ GELU(f_1 ⊙ a),    out = F⁻¹[W F[h]] + P h + b

for fields a of shape (channel, sample, point) and factors f of shape (channel, sample). `_analyse` reads a and writes
the kept Fourier coefficients of h, which are a sixth of its size; XLA mixes them; `_synthesise` reads a once more and
writes out. XLA alone would read and write a field for nearly every operation above. `fused_read` does the same for the
heads. The backward pass is built likewise, and computes h again instead of keeping it. The kernels are written in
Pallas and lowered by Triton; they are tested against the block and the heads in plain JAX. On a GPU, their matrix
products round factors to TF32, 11 bits; the measured error is 5·10⁻⁴ of the largest element.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from crossreg.nn.kernels.gelu import gelu_and_slope
from crossreg.nn.kernels.paths import TRAINING_PRECISION
from crossreg.nn.kernels.products import complex_blocks

_CHUNK = 32  # points that one matrix product takes
_MODES = 16  # kept modes, filled up with zeros; (re, im) of each are neighbouring columns of one matrix product
_COEFFICIENTS = 2 * _MODES
_ROWS = 64  # rows, (channel, sample), that a program of `_analyse` takes
_GROUP = 2  # samples, with all their channels, that a program of `_synthesise` takes
_ROWS_PER_WARP = 16
_MOST_PRODUCTS = 64
_READ_GROUP = 16  # samples, channel by channel, that a program of `fused_read` takes
_PRECISION = jax.lax.DotAlgorithmPreset.TF32_TF32_F32
_NO_SPEC = pl.no_block_spec


class Weights(NamedTuple):
    """The parameters of a block."""

    real: Float[Array, "mode out in"]
    imag: Float[Array, "mode out in"]
    pointwise: Float[Array, "out in"]
    bias: Float[Array, " out"]


def can_fuse(channels: tuple[int, int], num_modes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether the kernels take a block of (out, in) channels on fields of shape (sample, *space)."""
    out, width = channels
    if width != out or width not in (4, 8, 16) or len(num_modes) != 1 or len(shape) != 2:
        return False  # two widths, or several dimensions
    samples, points = shape
    fits = num_modes[0] <= _MODES and points % _CHUNK == 0
    return fits and samples % _GROUP == 0 and width * samples % _ROWS == 0


def _tables(points: int, num_modes: int) -> tuple[Float[Array, "point coefficient"], Float[Array, "point coefficient"]]:
    """Return the truncated DFT as a matrix, h ↦ (re, im) of its modes, and its inverse, transposed."""
    modes = np.arange(num_modes)
    angle = 2 * np.pi * np.outer(np.arange(points), modes) / points
    # Coefficients other than 0 also stand for their conjugates; the Nyquist mode is never kept (see `can_fuse`).
    weight = np.where(modes == 0, 1, 2) / points
    forward = np.zeros((points, _MODES, 2), np.float32)
    forward[:, :num_modes] = np.stack([np.cos(angle), -np.sin(angle)], axis=-1)
    inverse = forward.copy()
    inverse[:, :num_modes] *= weight[:, None]
    return jnp.asarray(forward.reshape(points, -1)), jnp.asarray(inverse.reshape(points, -1))


def _dot(a, b, **transposed):
    on_cpu = jax.default_backend() == "cpu"  # in tests, which interpret the kernels
    return plgpu.dot(a, b, precision=None if on_cpu else _PRECISION, **transposed)


def _call(kernel: Callable, programs: int, rows: int, shapes, *operands, specs=None):
    """Run a kernel in so many programs on whole operands; outputs are whole too, unless they have `specs`."""
    return pl.pallas_call(
        kernel,
        grid=(programs,),
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes],
        in_specs=[_NO_SPEC] * len(operands),
        out_specs=specs or [_NO_SPEC] * len(shapes),
        compiler_params=plgpu.CompilerParams(num_warps=max(1, rows // _ROWS_PER_WARP), num_stages=2),
        interpret=jax.default_backend() == "cpu",
    )(*operands)


def _over_chunks(points: int, body: Callable, start):
    """Loop `body(chunk, sums)` over chunks of the points."""
    return jax.lax.fori_loop(0, points // _CHUNK, lambda c, sums: body(pl.ds(c * _CHUNK, _CHUNK), sums), start)


def _analyse_kernel(a_ref, first_ref, second_ref, table_ref, z_ref, *, gelu: bool):
    rows = pl.ds(pl.program_id(0) * _ROWS, _ROWS)
    first, second = first_ref[rows][:, None], second_ref[rows][:, None]

    def add(chunk, z):
        h = first * a_ref[rows, chunk]
        h = second * (gelu_and_slope(h)[0] if gelu else h)
        return z + _dot(h, table_ref[chunk, :])

    z = _over_chunks(a_ref.shape[1], add, jnp.zeros((_ROWS, _COEFFICIENTS), jnp.float32))
    z_ref[:, rows] = z.T


def _analyse(a, first, second, table, *, gelu: bool) -> Float[Array, "coefficient channel sample"]:
    """Return the rows of f₂ ⊙ GELU(f₁ ⊙ a) times a table, coefficients first, in the order for mixing channels."""
    channels, samples, points = a.shape
    rows = channels * samples
    [z] = _call(
        functools.partial(_analyse_kernel, gelu=gelu),
        rows // _ROWS,
        _ROWS,
        [(_COEFFICIENTS, rows)],
        a.reshape(rows, points),
        first.reshape(rows),
        second.reshape(rows),
        table,
    )
    return z.reshape(_COEFFICIENTS, channels, samples)


def _synthesise_kernel(a_ref, first_ref, second_ref, y_ref, mix_ref, bias_ref, table_ref, out_ref, *, gelu: bool):
    width, _, points = a_ref.shape
    group = pl.ds(pl.program_id(0) * _GROUP, _GROUP)
    rows = width * _GROUP
    first, second = first_ref[:, group][:, :, None], second_ref[:, group][:, :, None]
    y = y_ref[:, :, group].reshape(_COEFFICIENTS, rows)
    mix, bias = mix_ref[...], bias_ref[...][:, None, None]

    def write(chunk, _):
        h = first * a_ref[:, group, chunk]
        h = second * (gelu_and_slope(h)[0] if gelu else h)
        out = _dot(y, table_ref[chunk, :], trans_a=True, trans_b=True) + _dot(mix, h.reshape(rows, _CHUNK))
        out_ref[:, group, chunk] = out.reshape(width, _GROUP, _CHUNK) + bias
        return _

    _over_chunks(points, write, 0)


def _synthesise_back_kernel(
    a_ref, first_ref, second_ref, dz_ref, mix_ref, table_ref, grad_ref,
    da_ref, dfirst_ref, dsecond_ref, *weight_refs, gelu: bool,
):  # fmt: skip
    width, _, points = a_ref.shape
    group = pl.ds(pl.program_id(0) * _GROUP, _GROUP)
    rows = width * _GROUP
    first, second = first_ref[:, group][:, :, None], second_ref[:, group][:, :, None]
    dz = dz_ref[:, :, group].reshape(_COEFFICIENTS, rows)
    mix = mix_ref[...]

    def add(chunk, sums):
        dfirst, dsecond, *weights = sums
        a, grad = a_ref[:, group, chunk], grad_ref[:, group, chunk]
        flat = grad.reshape(rows, _CHUNK)
        dh = _dot(dz, table_ref[chunk, :], trans_a=True, trans_b=True) + _dot(mix, flat, trans_a=True)
        dh = dh.reshape(width, _GROUP, _CHUNK)
        value, slope = gelu_and_slope(first * a) if gelu else (first * a, 1.0)
        if weights:
            h = (second * value).reshape(rows, _CHUNK)
            weights = [weights[0] + _dot(flat, h, trans_b=True), weights[1] + jnp.sum(grad, axis=2)]
        dsecond += jnp.sum(dh * value, axis=2)
        dh = dh * second * slope
        da_ref[:, group, chunk] = dh * first
        return dfirst + jnp.sum(dh * a, axis=2), dsecond, *weights

    zero = jnp.zeros((width, _GROUP), jnp.float32)
    start = (zero, zero) + ((jnp.zeros((rows, rows), jnp.float32), zero) if weight_refs else ())
    dfirst_ref[:, group], dsecond_ref[:, group], *weights = _over_chunks(points, add, start)
    if weight_refs:
        weight_refs[0][...] = weights[0][None]
        weight_refs[1][:, group] = weights[1]


def _mix_channels(weights: Weights, z: Float[Array, "coefficient in sample"], *, back: bool = False):
    """Return W, or its adjoint, times the coefficients; complex numbers are multiplied by one real product."""
    pad = ((0, _MODES - weights.real.shape[0]), (0, 0), (0, 0))
    # One matrix, (q o) × (p i), for every mode, and samples as columns: nothing large is transposed.
    weight = complex_blocks(*(jnp.pad(weight, pad) for weight in (weights.real, weights.imag)))
    weight = jnp.swapaxes(weight, 1, 2) if back else weight
    return jnp.matmul(weight, z.reshape(_MODES, -1, z.shape[2]), precision=TRAINING_PRECISION).reshape(z.shape)


def _spectral_gradients(dy, z, modes: int) -> tuple[Float[Array, "mode out in"], Float[Array, "mode out in"]]:
    """Return the gradients of Re W and Im W from those of the mixed coefficients."""
    width, samples = z.shape[1:]
    dy, z = (c.reshape(_MODES, 2 * width, samples)[:modes] for c in (dy, z))
    outer = jnp.einsum("kas,kbs->kab", dy, z, precision=TRAINING_PRECISION).reshape(modes, 2, width, 2, width)
    return outer[:, 0, :, 0] + outer[:, 1, :, 1], outer[:, 1, :, 0] - outer[:, 0, :, 1]


def _per_sample(pointwise: Float[Array, "out in"]) -> Float[Array, "row row"]:
    """Return P ⊗ 1, with rows for each channel and, within it, each sample of a group."""
    return jnp.kron(pointwise, jnp.eye(_GROUP, dtype=pointwise.dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def fused_block(
    a: Float[Array, "channel sample point"],
    first: Float[Array, "channel sample"],
    second: Float[Array, "channel sample"],
    weights: Weights,
    gelu: bool,
    weight_gradients: bool,
) -> Float[Array, "channel sample point"]:
    """Return the block of this module; without `weight_gradients`, the weights get zero gradients, at less cost."""
    return _forward(a, first, second, weights, gelu, weight_gradients)[0]


def _forward(a, first, second, weights, gelu, weight_gradients):
    table, inverse = _tables(a.shape[2], weights.real.shape[0])
    z = _analyse(a, first, second, table, gelu=gelu)
    [out] = _call(
        functools.partial(_synthesise_kernel, gelu=gelu),
        a.shape[1] // _GROUP,
        a.shape[0] * _GROUP,
        [a.shape],
        a,
        first,
        second,
        _mix_channels(weights, z),
        _per_sample(weights.pointwise),
        weights.bias,
        inverse,
    )
    return out, (a, first, second, weights, z)


def _backward(gelu, weight_gradients, kept, grad):
    a, first, second, weights, z = kept
    width, samples, points = a.shape
    rows, programs, modes = width * _GROUP, samples // _GROUP, weights.real.shape[0]
    table, inverse = _tables(points, modes)
    ones = jnp.ones_like(first)
    dy = _analyse(grad, ones, ones, inverse, gelu=False)
    shapes, specs = [a.shape, first.shape, second.shape], [_NO_SPEC] * 3
    if weight_gradients:
        shapes += [(programs, rows, rows), first.shape]
        specs += [pl.BlockSpec((1, rows, rows), lambda i: (i, 0, 0)), _NO_SPEC]
    da, dfirst, dsecond, *sums = _call(
        functools.partial(_synthesise_back_kernel, gelu=gelu),
        programs,
        rows,
        shapes,
        a,
        first,
        second,
        _mix_channels(weights, dy, back=True),
        _per_sample(weights.pointwise),
        table,
        grad,
        specs=specs,
    )
    if not weight_gradients:
        return da, dfirst, dsecond, jax.tree.map(jnp.zeros_like, weights)
    real, imag = _spectral_gradients(dy, z, modes)
    # The gradient of the pointwise weights has the products within each sample alone.
    pointwise = jnp.einsum("posis->oi", sums[0].reshape(programs, width, _GROUP, width, _GROUP))
    return da, dfirst, dsecond, Weights(real, imag, pointwise, jnp.sum(sums[1], axis=1))


fused_block.defvjp(_forward, _backward)


def can_read(width: int, heads: int, shape: tuple[int, ...]) -> bool:
    """Whether the kernels of `fused_read` take fields of shape (sample, *space): they unroll width × heads."""
    return (
        width * heads <= _MOST_PRODUCTS and len(shape) == 2 and shape[0] % _READ_GROUP == 0 and shape[1] % _CHUNK == 0
    )


def _read_kernel(a_ref, first_ref, second_ref, weight_ref, bias_ref, out_ref, *, gelu: bool):
    width, _, points = a_ref.shape
    group = pl.ds(pl.program_id(0) * _READ_GROUP, _READ_GROUP)

    def write(chunk, _):
        outs = [jnp.full((_READ_GROUP, _CHUNK), bias_ref[r]) for r in range(out_ref.shape[0])]
        for c in range(width):
            h = first_ref[c, group][:, None] * a_ref[c, group, chunk]
            h = second_ref[c, group][:, None] * (gelu_and_slope(h)[0] if gelu else h)
            outs = [out + weight_ref[r, c] * h for r, out in enumerate(outs)]
        for r, out in enumerate(outs):
            out_ref[r, group, chunk] = out
        return _

    _over_chunks(points, write, 0)


def _read_back_kernel(
    a_ref, first_ref, second_ref, weight_ref, grad_ref, da_ref, dfirst_ref, dsecond_ref, dweight_ref, dbias_ref,
    *, gelu: bool,
):  # fmt: skip
    width, _, points = a_ref.shape
    group = pl.ds(pl.program_id(0) * _READ_GROUP, _READ_GROUP)
    heads = weight_ref.shape[0]

    def add(chunk, sums):
        dfirst, dsecond, dweight, dbias = (list(part) for part in sums)
        grads = [grad_ref[r, group, chunk] for r in range(heads)]
        dbias = [total + jnp.sum(grad, axis=1) for total, grad in zip(dbias, grads, strict=True)]
        for c in range(width):
            first, second = first_ref[c, group][:, None], second_ref[c, group][:, None]
            a = a_ref[c, group, chunk]
            value, slope = gelu_and_slope(first * a) if gelu else (first * a, 1.0)
            dh = jnp.zeros((_READ_GROUP, _CHUNK), jnp.float32)
            for r, grad in enumerate(grads):
                dweight[r * width + c] += jnp.sum(grad * second * value, axis=1)
                dh = dh + weight_ref[r, c] * grad
            dsecond[c] += jnp.sum(dh * value, axis=1)
            dh = dh * second * slope
            dfirst[c] += jnp.sum(dh * a, axis=1)
            da_ref[c, group, chunk] = dh * first
        return tuple(dfirst), tuple(dsecond), tuple(dweight), tuple(dbias)

    zero = jnp.zeros((_READ_GROUP,), jnp.float32)
    start = ((zero,) * width, (zero,) * width, (zero,) * (heads * width), (zero,) * heads)
    dfirst, dsecond, dweight, dbias = _over_chunks(points, add, start)
    for c in range(width):
        dfirst_ref[c, group], dsecond_ref[c, group] = dfirst[c], dsecond[c]
    for r in range(heads):
        dbias_ref[r, group] = dbias[r]
        for c in range(width):
            dweight_ref[r, c, group] = dweight[r * width + c]


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def fused_read(
    a: Float[Array, "channel sample point"],
    first: Float[Array, "channel sample"],
    second: Float[Array, "channel sample"],
    weight: Float[Array, "head channel"],
    bias: Float[Array, " head"],
    gelu: bool,
) -> Float[Array, "head sample point"]:
    """Return V h + c for all heads at once, with h as in `fused_block`."""
    [out] = _call(
        functools.partial(_read_kernel, gelu=gelu),
        a.shape[1] // _READ_GROUP,
        4 * _ROWS_PER_WARP,
        [(weight.shape[0], *a.shape[1:])],
        a,
        first,
        second,
        weight,
        bias,
    )
    return out


def _read_forward(a, first, second, weight, bias, gelu):
    return fused_read(a, first, second, weight, bias, gelu), (a, first, second, weight)


def _read_backward(gelu, kept, grad):
    a, first, second, weight = kept
    samples = a.shape[1]
    da, dfirst, dsecond, dweight, dbias = _call(
        functools.partial(_read_back_kernel, gelu=gelu),
        samples // _READ_GROUP,
        4 * _ROWS_PER_WARP,
        [a.shape, first.shape, second.shape, (*weight.shape, samples), (weight.shape[0], samples)],
        *kept,
        grad,
    )
    return da, dfirst, dsecond, jnp.sum(dweight, axis=-1), jnp.sum(dbias, axis=-1)


fused_read.defvjp(_read_forward, _read_backward)
