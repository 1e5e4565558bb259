"""Calibration of combinations of dependent channels, with the channels taken as independent and with R as fitted.

    python benchmarks/channels.py                                 # the velocities of Burgers' equation in 2-D
    python benchmarks/channels.py --scenario phy_gs --points 48   # the two substances of Gray–Scott

R is fitted on reg; on test, the ECE of both channels, their sum and their difference, with R = I and with R as found.
About three minutes a seed on two cores for the first, five for the second.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from crossreg.config import Config
from crossreg.data.apebench import load_trajectories
from crossreg.data.keys import evaluation_key
from crossreg.data.load import make_data
from crossreg.data.pairs import AbstractPairs
from crossreg.fitting import fit
from crossreg.metrics.calibration import ece
from crossreg.metrics.intervals import interval
from crossreg.nn.build import build_model
from crossreg.predictors.batches import batches_of
from crossreg.predictors.correlation import fit_correlation
from crossreg.predictors.predictor import SurrogatePredictor
from crossreg.report.tables.comparison import with_interval

COMBINATIONS = {"u": (1, 0), "v": (0, 1), "u + v": (1, 1), "u - v": (1, -1)}


def coverage_errors(predictor: SurrogatePredictor, pairs: AbstractPairs, correlation: np.ndarray | None) -> list[float]:
    """ECE of each combination."""
    weights, pits = np.asarray(list(COMBINATIONS.values()), float), []
    for batch, keys, size in batches_of(pairs, key=evaluation_key(0)):
        truth = jnp.einsum("oc,bc...->bo...", weights, batch.y)
        pits.append(np.asarray(predictor(batch, keys).combined(weights, correlation=correlation).cdf(truth))[:size])
    return [float(ece(pit)) for pit in np.moveaxis(np.concatenate(pits), 1, 0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="diff_burgers")
    parser.add_argument("--points", type=int, default=32, help="of each of the two dimensions")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    fields = {"scenario": arguments.scenario, "num_spatial_dims": 2, "num_points": arguments.points}
    config = Config().replace(**fields, test_horizon=10, steps=arguments.steps)
    data = make_data(load_trajectories(config.data), config.data)
    correlations, errors = [], []
    for seed in range(arguments.seeds):
        model = build_model(config.model, data.train, key=jax.random.key(seed))
        done = fit(data, model, config.train, progress=False, seed=seed)
        predictor = SurrogatePredictor(done.model, config.train.evaluation_samples)
        found = fit_correlation(predictor, data.reg)
        correlations.append(found[0, 1])
        errors.append([coverage_errors(predictor, data.test, r) for r in (None, found)])
        print(f"seed {seed}: R {found[0, 1]:.3f}, ECE {np.round(errors[-1], 3).tolist()}", flush=True)
    print(f"R {_with_interval(correlations)}")
    for name, values in zip(COMBINATIONS, np.moveaxis(np.asarray(errors), 2, 0), strict=True):
        print(f"{name}: ECE {_with_interval(values[:, 0])} independent, {_with_interval(values[:, 1])} as fitted")


def _with_interval(values) -> str:
    return with_interval(interval([float(value) for value in values]), 3)


if __name__ == "__main__":
    main()
