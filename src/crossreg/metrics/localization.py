r"""Does uncertainty stand where the error is? Rank correlation and sparsification error.

NumPy, on the host: both sort all points once, after training.
"""

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata


def spearman(error: Float[np.ndarray, " point"], uncertainty: Float[np.ndarray, " point"]) -> float:
    """Spearman's rank correlation of |error| and uncertainty; 0 where either is constant."""
    a, b = rankdata(np.abs(error)), rankdata(uncertainty)
    a, b = a - a.mean(), b - b.mean()
    norm = np.sqrt(np.sum(a**2) * np.sum(b**2))
    return float(np.sum(a * b) / norm) if norm > 0 else 0.0


def ause(
    error: Float[np.ndarray, " point"], uncertainty: Float[np.ndarray, " point"], *, num_fractions: int = 100
) -> float:
    r"""Area under the sparsification error, for RMSE, relative to the RMSE over all points.

    Drop the fraction f of points with the largest uncertainty and take the RMSE of the rest; do the same by
    the true |error|; the area between the two curves over f in [0, 1) is 0 for a perfect ranking.
    """
    squared = np.square(np.asarray(error, np.float64))
    total = np.sqrt(squared.mean())
    if total == 0:
        return 0.0

    def curve(order):
        kept = np.cumsum(squared[order])
        kept_share = 1 - np.arange(num_fractions) / num_fractions
        counts = np.maximum(np.rint(squared.size * kept_share).astype(int), 1)
        return np.sqrt(kept[counts - 1] / counts)

    by_uncertainty = curve(np.argsort(uncertainty, kind="stable"))
    by_error = curve(np.argsort(squared, kind="stable"))
    return float(np.mean(by_uncertainty - by_error) / total)
