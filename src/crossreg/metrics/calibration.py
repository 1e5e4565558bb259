r"""Calibration of a mixture, from its PIT values $u = \frac1S\sum_s \Phi((y-\mu_s)/\sigma_s)$.

The central interval of level α covers the truth exactly when $|2u - 1| \le \alpha$, so coverage needs no search for
quantiles. JAX and NumPy arrays are both accepted and give arrays of their own kind.
"""

from typing import Any

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def coverage(pit: Any, weight: Any = None, levels: tuple[float, ...] = LEVELS) -> Any:
    """Return the fraction of points inside the central interval of each level.

    Args:
        pit: PIT values, of any shape.
        weight: Weights of the same shape; points of weight 0 do not count. By default all points count alike.
        levels: Levels of the intervals, in (0, 1).

    Returns:
        Fractions, shape (level,).

    Example:
        >>> xr.metrics.coverage(np.asarray([0.5, 0.7, 0.99]), levels=(0.3, 0.5)).round(2)
        array([0.33, 0.67])
    """
    xp = pit.__array_namespace__()
    weight = xp.ones_like(pit) if weight is None else weight
    distance = xp.abs(2 * pit - 1)
    total = xp.sum(weight)
    return xp.stack([xp.sum(weight * (distance <= level)) / total for level in levels])


def ece_from_coverage(covered: Any, levels: tuple[float, ...] = LEVELS) -> Any:
    r"""Return ECE_mix from `coverage`.

    $\mathrm{ECE}_{mix} = \frac{1}{|A|}\sum_{\alpha \in A} |\widehat{\mathrm{Coverage}}(\alpha) - \alpha|$.

    Args:
        covered: The coverage of each level, shape (level,).
        levels: The levels, A.

    Returns:
        A scalar; 0 is perfect.

    Example:
        >>> round(float(xr.metrics.ece_from_coverage(np.asarray([0.2, 0.6]), levels=(0.3, 0.5))), 3)
        0.1
    """
    xp = covered.__array_namespace__()
    return xp.mean(xp.abs(covered - xp.asarray(levels, dtype=covered.dtype)))


def ece(pit: Any, weight: Any = None) -> Any:
    """Return ECE_mix over the levels 0.1 … 0.9; arguments as for `coverage`."""
    return ece_from_coverage(coverage(pit, weight))
