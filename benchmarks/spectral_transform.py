"""Truncated DFT as matmuls against the FFT: where each is the faster spectral convolution.

    python benchmarks/spectral_transform.py [GRID …]      # all grids, or some: 160^1 128^2

Prints, for each grid and number of kept modes, the ratio of the two times (forward and
backward, batch and samples folded) and what `prefers_fft` chooses. Ratios are taken in one
run, the contenders in turn.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from crossreg.nn.spectral import SpectralConv, prefers_fft

GRIDS = [
    (1, 160, (12, 24, 40, 80)),
    (1, 512, (12, 64, 128, 256)),
    (1, 2048, (12, 64, 128, 256)),
    (2, 64, (12, 24, 32)),
    (2, 128, (12, 32, 64)),
    (3, 32, (6, 12, 16)),
]
WIDTH, POINTS_IN_FLIGHT, REPEATS = 8, 2**20, 7


def gradient_of(transform: str, modes: tuple[int, ...]):
    layer = SpectralConv(WIDTH, WIDTH, modes, transform=transform, key=jax.random.key(1))  # pyright: ignore[reportArgumentType]
    return jax.jit(jax.grad(lambda h: jnp.sum(jax.vmap(layer, in_axes=1, out_axes=1)(h) ** 2)))


def main() -> None:
    print(
        f"{jax.devices()[0].device_kind}\n{'grid':>8} {'modes':>5} {'matmul':>10} {'fft':>10} {'fft/matmul':>10}  auto"
    )
    for dims, side, mode_counts in GRIDS:
        if sys.argv[1:] and f"{side}^{dims}" not in sys.argv[1:]:
            continue
        batch = max(1, min(160, POINTS_IN_FLIGHT // side**dims))
        h = jax.random.normal(jax.random.key(0), (WIDTH, batch) + (side,) * dims)
        for count in mode_counts:
            modes = (count,) * dims
            with jax.default_matmul_precision("float32"):
                programs = {name: gradient_of(name, modes) for name in ("matmul", "fft")}
                times = {name: [] for name in programs}
                for repeat in range(REPEATS + 1):
                    for name, program in programs.items():
                        started = time.perf_counter()
                        jax.block_until_ready(program(h))
                        if repeat:  # the first call compiles
                            times[name].append(time.perf_counter() - started)
            matmul, fft = (1e3 * float(np.median(times[name])) for name in ("matmul", "fft"))
            chosen = "fft" if prefers_fft(modes, (side,) * dims, jax.default_backend()) else "matmul"
            print(
                f"{side:>6}^{dims} {count:>5} {matmul:>7.2f} ms {fft:>7.2f} ms {fft / matmul:>10.2f}  {chosen}",
                flush=True,
            )


if __name__ == "__main__":
    main()
