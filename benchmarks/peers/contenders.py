"""The PyTorch contenders of `benchmarks/speed.py`, on the same pairs, shown to compute the same function."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch

from crossreg.config import Config
from crossreg.data.dataset import Data
from crossreg.nn.surrogate import predict
from crossreg.training.cohort import start_cohort
from crossreg.training.replicas import unstack
from peers.torch_xreg import NoisyFNO, make_steps, weights_of


def peers_of(config: Config, data: Data) -> dict[str, Callable[[int], float]]:
    """Steps of each peer that is installed."""
    check_same_function(config, data)
    device = "cuda" if torch.cuda.is_available() and jax.default_backend() == "gpu" else "cpu"
    batch = data.train.gather(jnp.arange(data.train.max_pairs))
    x, y = np.asarray(batch.x), np.asarray(batch.y)
    peers = {
        "PyTorch, eager": make_steps(config, x, y, device=device),
        "PyTorch, compiled": make_steps(config, x, y, device=device, compiled=True),
    }
    try:
        from peers.neuralop_xreg import NoisyNeuralop
    except ImportError as error:
        print(f"no neuraloperator: {error}")
        return peers
    return peers | {"neuraloperator's FNO, eager": make_steps(config, x, y, device=device, network=NoisyNeuralop)}


def car_peers(config: Config, data: Data) -> dict[str, Callable[[int], float]]:
    """neuraloperator's FNO2d on the same grid, in the same step, read at the same vertices."""
    try:
        from peers.neuralop_xreg import NoisyNeuralop2d
    except ImportError as error:
        print(f"no neuraloperator: {error}")
        return {}
    device = "cuda" if torch.cuda.is_available() and jax.default_backend() == "gpu" else "cpu"
    batch = data.train.gather(jnp.arange(data.train.max_pairs))
    x, y, at = (np.asarray(array) for array in (batch.x, batch.y, batch.at))
    return {"neuraloperator's FNO, eager": make_steps(config, x, y, at=at, device=device, network=NoisyNeuralop2d)}


def check_same_function(config: Config, data: Data) -> None:
    """With our weights and no noise, the peer has our means."""
    model = unstack(start_cohort([config], [data])[0], 0)
    theirs = NoisyFNO(config)
    weights_of(theirs, model)
    batch = data.train.gather(jnp.arange(4))
    # Generalization noise starts at e⁻⁵: 400 samples average it out.
    mean = np.asarray(predict(model, batch.x, key=jax.random.key(0), num_samples=400).mean)
    with torch.no_grad():
        other = theirs(torch.as_tensor(np.array(batch.x)), 1, scale=0.0)[0][0].numpy()
    np.testing.assert_allclose(other, mean, atol=0.02 * np.abs(mean).max())
