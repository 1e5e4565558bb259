r"""Spectral convolution on the lowest Fourier modes, in 1, 2 or 3 dimensions.

$$ v_o = \mathcal F^{-1}\Big[ \textstyle\sum_i W_{oi}(k)\, \hat h_i(k)\, 1_{k \in K} \Big] $$

The kept modes K are $k = 0 \dots m-1$ on the last axis (the field is real: the rest follows by symmetry) and
$k = 0 \dots m-1, -m \dots -1$ on each axis before it. There are two ways to compute it: a truncated DFT as real matrix
products, which is faster at the sizes of this field, and the FFT.
"""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, PRNGKeyArray

from crossreg.nn.kernels import mix_modes, mix_modes_in_reverse
from crossreg.nn.noise import AbstractNoise, NoNoise, is_stochastic

Transform = Literal["auto", "matmul", "fft"]


def prefers_fft(num_modes: tuple[int, ...], points: tuple[int, ...], backend: str = "cpu") -> bool:
    """Whether the FFT is faster than the truncated DFT for these modes and points of each axis.

    The DFT costs m per point where the FFT costs log N, but runs near the hardware's peak. Measured on two CPU cores
    and on an H200 (`benchmarks/spectral_transform.py`), they break even near m = 4√N in two and three dimensions; in
    one, near 3√N on the CPU, and on the GPU nowhere up to 512 points and near 1.5√N above.

    | grid | CPU: m, matmul wins | FFT wins | H200: m, matmul wins | FFT wins          |
    |------|---------------------|----------|----------------------|-------------------|
    | 160  | 12                  | 40, 80   | 12, 24, 40, 80       |                   |
    | 512  | 12, 64              | 128, 256 | 12, 64, 128, 256     |                   |
    | 2048 | 12, 64              | 256, 512 | 12                   | 64 (4%), 128, 256 |
    | 64²  | 12, 24, 32          |          | 12, 24, 32           |                   |
    | 128² | 12, 32              | 64       | 12, 32               | 64 (5%)           |
    | 32³  | 6, 12               |          | 6                    |                   |
    """
    if len(points) != 1:
        factor = 4.0
    elif backend == "cpu":
        factor = 3.0
    else:
        factor = 1.5 if points[0] > 512 else math.inf
    return any(m > factor * math.sqrt(n) for m, n in zip(num_modes, points, strict=True))


def _modes_of_axis(axis: int, num_axes: int, num_modes: int) -> np.ndarray:
    """Return the kept wavenumbers of one axis, in the order in which weights store them."""
    positive = np.arange(num_modes)
    return positive if axis == num_axes - 1 else np.concatenate([positive, positive - num_modes])


def _rotation(points: int, modes: np.ndarray) -> np.ndarray:
    """Return e^{-2πi kn/N} as real 2×2 blocks: R[p, n, k, q] maps (re, im)_p at n to (re, im)_q at k."""
    angle = 2 * np.pi * np.outer(np.arange(points), modes) / points
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)])


def truncated_dft(h: Float[Array, "*any_space"], num_modes: tuple[int, ...]) -> Float[Array, "*modes_2_any"]:
    """Return the kept Fourier coefficients of real fields on the last axes: modes, (re, im), then all other axes.

    The modes of the last axis come first, so that no product needs a transposed field, and channels are mixed by one
    product per mode.
    """
    num_axes = len(num_modes)
    space, others = h.shape[-num_axes:], h.shape[:-num_axes]
    rotations = [
        jnp.asarray(_rotation(points, _modes_of_axis(axis, num_axes, kept)), h.dtype)
        for axis, (points, kept) in enumerate(zip(space, num_modes, strict=True))
    ]
    # The field is real, so the last axis needs the real rows of its rotation only.
    z = jnp.tensordot(rotations[-1][0], h, axes=((0,), (h.ndim - 1,)))
    modes = z.shape[:1]
    for axis in reversed(range(num_axes - 1)):
        rotation = rotations[axis].reshape(2, space[axis], -1)
        z = z.reshape(math.prod(modes), 2, -1, space[axis])
        real, imag = (jnp.einsum("nm,bxn->bmx", rotation[p], z[:, p]) for p in range(2))
        z = real + imag
        modes = (*modes, z.shape[1] // 2)
    return jnp.reshape(z, (*modes, 2, *others))


def inverse_truncated_dft(z: Float[Array, "*modes_2_any"], points: tuple[int, ...]) -> Float[Array, "*any_space"]:
    """Return the real fields on a grid of `points` that have the kept coefficients z and no others."""
    num_axes = len(points)
    modes, others = z.shape[:num_axes], z.shape[num_axes + 1 :]
    for axis, size in enumerate(points[:-1]):
        left = modes[: num_axes - 1 - axis]
        rotation = _rotation(size, _modes_of_axis(axis, num_axes, modes[len(left)] // 2)) / size
        # The inverse rotation is the transpose over N: conjugate, and n ↔ k exchanged.
        rotation = jnp.asarray(rotation, z.dtype).reshape(2, size, -1)
        z = z.reshape(math.prod(left), rotation.shape[-1], -1)
        z = jnp.stack([jnp.einsum("bmx,nm->bxn", z, rotation[p]) for p in range(2)], axis=1)
    size, kept = points[-1], np.arange(modes[0])
    # Coefficients other than 0 and Nyquist stand for themselves and their conjugates.
    multiplicity = np.where((kept == 0) | (2 * kept == size), 1, 2)
    real_rows = jnp.asarray(_rotation(size, kept)[0] * multiplicity[:, None] / size, z.dtype).reshape(size, -1)
    field = jnp.tensordot(z.reshape(2 * len(kept), -1), real_rows, axes=((0,), (1,)))
    return field.reshape(*others, *points)


def modes_first(weight: Float[Array, "out in *modes"]) -> Float[Array, "*last_mode_first out in"]:
    """Put the weights of all modes into the order of the coefficients of `truncated_dft`."""
    return jnp.transpose(weight, (*reversed(range(2, weight.ndim)), 0, 1))


def _corners(num_modes: tuple[int, ...], points: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Return the indices of the kept modes in the output of `rfftn`, as an open mesh."""
    num_axes = len(num_modes)
    return np.ix_(*(_modes_of_axis(a, num_axes, m) % n for a, (m, n) in enumerate(zip(num_modes, points, strict=True))))


def _fft_coefficients(h, num_modes):
    axes = tuple(range(-len(num_modes), 0))
    spectrum: Complex[Array, "*any_modes"] = jnp.fft.rfftn(h, axes=axes)
    kept = spectrum[(..., *_corners(num_modes, h.shape[-len(num_modes) :]))]
    kept = jnp.moveaxis(kept, axes, tuple(reversed(range(len(axes)))))
    return jnp.stack([kept.real, kept.imag], len(axes))


def _fft_field(z, num_modes, points):
    axes = tuple(range(-len(points), 0))
    real, imag = jnp.moveaxis(z, len(points), 0)
    kept = jnp.moveaxis(jax.lax.complex(real, imag), tuple(reversed(range(len(axes)))), axes)
    full = (*kept.shape[: -len(points)], *points[:-1], points[-1] // 2 + 1)
    spectrum = jnp.zeros(full, kept.dtype).at[(..., *_corners(num_modes, points))].set(kept)
    return jnp.fft.irfftn(spectrum, s=points, axes=axes)


class SpectralConv(eqx.Module):
    """A spectral convolution with complex weights W_oi(k), stored as two real arrays, the modes of the last axis first.

    `noise` multiplies the kept coefficients before they are mixed, with one factor for re and im: it scales a mode and
    keeps its phase. Without noise, fields may have further axes between channel and space, which are all treated alike.
    """

    weight_real: Float[Array, "*modes out in"]
    weight_imag: Float[Array, "*modes out in"]
    noise: AbstractNoise
    num_modes: tuple[int, ...] = eqx.field(static=True)
    transform: Transform = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_modes: tuple[int, ...],
        *,
        noise: AbstractNoise | None = None,
        transform: Transform = "auto",
        key: PRNGKeyArray,
    ):
        shape = (out_channels, in_channels, *mode_shape(num_modes))
        real_key, imag_key = jax.random.split(key)
        start = 1 / (in_channels * out_channels)
        self.weight_real = modes_first(start * jax.random.normal(real_key, shape))
        self.weight_imag = modes_first(start * jax.random.normal(imag_key, shape))
        self.noise = NoNoise() if noise is None else noise
        self.num_modes = num_modes
        self.transform = transform

    def __call__(
        self, h: Float[Array, "in *any_space"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, "out *any_space"]:
        return self._apply(h, mix_modes, key)

    def reverse(self, h: Float[Array, "in *any_space"]) -> Float[Array, "out *any_space"]:
        """Return the field, to be differentiated in reverse mode only."""
        return self._apply(h, mix_modes_in_reverse, None)

    def _apply(self, h, mix, key):
        points = h.shape[-len(self.num_modes) :]
        check_modes(self.num_modes, points)
        by_fft = self.transform == "fft"
        if self.transform == "auto":
            by_fft = prefers_fft(self.num_modes, points, jax.default_backend())
        z = _fft_coefficients(h, self.num_modes) if by_fft else truncated_dft(h, self.num_modes)
        *modes, out, width = self.weight_real.shape
        if is_stochastic(self.noise):
            if key is None:
                raise ValueError("this spectral convolution draws noise: call it with key=")
            factor = self.noise.factor((width, *mode_shape(self.num_modes)), key=key, dtype=z.dtype)
            z = z * jnp.transpose(factor)[..., None, :]
        weights = (weight.reshape(-1, out, width) for weight in (self.weight_real, self.weight_imag))
        others = z.shape[len(modes) + 2 :]
        mixed = mix(*weights, z.reshape(math.prod(modes), 2, width, math.prod(others)))
        mixed = mixed.reshape(*modes, 2, out, *others)
        return _fft_field(mixed, self.num_modes, points) if by_fft else inverse_truncated_dft(mixed, points)


def mode_shape(num_modes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of coefficients that each axis keeps: 2m on every axis but the last, m on the last."""
    return (*(2 * m for m in num_modes[:-1]), num_modes[-1])


def check_modes(num_modes: tuple[int, ...], points: tuple[int, ...]) -> None:
    """Raise ValueError if a grid cannot hold the kept modes."""
    if len(num_modes) != len(points):
        raise ValueError(f"num_modes has {len(num_modes)} numbers; expected one for each of {len(points)} dimensions")
    limits = (*(n // 2 for n in points[:-1]), points[-1] // 2 + 1)
    for axis, (kept, limit) in enumerate(zip(num_modes, limits, strict=True)):
        if kept > limit:
            raise ValueError(f"axis {axis} of {points[axis]} points holds at most {limit} modes, not {kept}")
