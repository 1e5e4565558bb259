"""Algorithm 1 written out a second time, in the plainest way, and compared with what `fit` does, number by number.

Here: objectives as double sums, Adam in float64, the rate of each parameter by its name, and the steps after which ρ
moves as a list. From the package: batches, and the mixture that a model predicts, which have tests of their own.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from crossreg.config import Config, DataConfig
from crossreg.data.keys import REG_STREAM, TRAIN_STREAM, evaluation_key
from crossreg.data.load import make_data
from crossreg.fitting import fit
from crossreg.nn.build import build_model
from crossreg.nn.surrogate import predict
from crossreg.training.checkpoint import named_arrays
from written_out import REG_LOSSES, train_loss, weighted

LEVELS = np.arange(1, 10) / 10
RATES = {"learning_rate": 3e-3, "site_learning_rate": 2e-2, "generalization_head_learning_rate": 7e-3}


class Adam:
    """Adam in float64, for one group of arrays, its gradient shortened to `clip` times its running length."""

    def __init__(self, parameters: dict[str, np.ndarray], clip: float):
        self.clip, self.count = clip, 0
        self.first, self.second = ({k: np.zeros(v.shape) for k, v in parameters.items()} for _ in range(2))

    def directions(self, gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        gradients = {name: np.asarray(gradient, np.float64) for name, gradient in gradients.items()}
        if self.clip and self.count:
            usual = np.sqrt(sum(v.sum() for v in self.second.values()) / (1 - 0.999**self.count))
            length = np.sqrt(sum((g**2).sum() for g in gradients.values()))
            gradients = {name: g * min(1, self.clip * usual / length) for name, g in gradients.items()}
        self.count += 1
        for name, g in gradients.items():
            self.first[name] = 0.9 * self.first[name] + 0.1 * g
            self.second[name] = 0.999 * self.second[name] + 0.001 * g**2
        corrections = 1 - 0.9**self.count, 1 - 0.999**self.count
        return {
            name: self.first[name] / corrections[0] / (np.sqrt(self.second[name] / corrections[1]) + 1e-8)
            for name in gradients
        }


def owner(name: str) -> str:
    """Who learns an array, and at which rate, from its name alone."""
    if "sigma_gen" in name:
        return "generalization head"
    if "scale.raw" in name:  # of two noises in one place, ψ's stands first
        return "predictive site" if "noises[0]" in name else "generalization site"
    return "network"


RATE_OF = {
    "network": RATES["learning_rate"],
    "predictive site": RATES["site_learning_rate"],
    "generalization site": RATES["site_learning_rate"],
    "generalization head": RATES["generalization_head_learning_rate"],
}
LEARNED_ON_TRAIN = ("network", "predictive site")


class Oracle:
    """A training, step by step."""

    def __init__(self, model, data, config: Config):
        self.config, self.data = config.train, data
        arrays, self.static = eqx.partition(model, eqx.is_inexact_array)
        self.structure = jax.tree.structure(arrays)
        self.parameters = {name: np.asarray(a, np.float64) for name, a in named_arrays(arrays).items()}
        on_train = {n: p for n, p in self.parameters.items() if owner(n) in LEARNED_ON_TRAIN}
        on_reg = {n: p for n, p in self.parameters.items() if n not in on_train}
        self.adam = {"train": Adam(on_train, self.config.clip), "reg": Adam(on_reg, self.config.clip)}
        self.value_and_gradients = {kind: jax.jit(jax.value_and_grad(self._loss_of(kind))) for kind in self.adam}

    def model(self, parameters):
        leaves = [jnp.asarray(parameters[name], jnp.float32) for name in self.parameters]  # jit sorts dictionaries
        return eqx.combine(jax.tree.unflatten(self.structure, leaves), self.static)

    def _loss_of(self, kind: str):
        pairs = self.data.train if kind == "train" else self.data.reg
        stream = TRAIN_STREAM if kind == "train" else REG_STREAM
        config = self.config
        samples = config.train_samples if kind == "train" else config.num_samples
        size = config.batch_size if kind == "train" else config.reg_batch_size or config.batch_size // 2
        assert samples is not None
        # The likelihoods on reg are of independent samples; a CRPS needs independent ones beside the pairs.
        objective = config.train_objective if kind == "train" else config.reg_objective
        takes_pairs = objective == "likelihood" or ("crps" in objective and samples > 2)
        paired = config.antithetic and samples % 2 == 0 and takes_pairs

        def loss(parameters, step):
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.config.seed), stream), step)
            batch_key, noise_key = jax.random.split(key)
            batch = pairs.sample(batch_key, size)
            m = predict(self.model(parameters), batch.x, key=noise_key, num_samples=samples, antithetic=paired)
            if objective == "likelihood":
                return weighted(train_loss(m.means, m.vars_predictive, m.vars_generalization, batch.y), batch.weight)
            known = {"paired": True} if paired else {}
            gen = m.vars_generalization if kind == "reg" else jax.lax.stop_gradient(m.vars_generalization)
            return weighted(REG_LOSSES[objective](m.means, m.vars_predictive + gen, batch.y, **known), batch.weight)

        return loss

    def update(self, kind: str, step: int, factor: float) -> float:
        loss, gradients = self.value_and_gradients[kind](self.parameters, jnp.asarray(step))
        adam = self.adam[kind]
        for name, direction in adam.directions({name: gradients[name] for name in adam.first}).items():
            self.parameters[name] = self.parameters[name] - factor * RATE_OF[owner(name)] * direction
        return float(loss)

    def scores(self, samples: int) -> dict[str, float]:
        """NLL, ECE and the mean spread of the means on the part of reg that nothing is learned from."""
        pairs = self.data.calibration
        index = jnp.arange(int(pairs.num_pairs))
        keys = jax.vmap(lambda i: jax.random.fold_in(evaluation_key(0), i))(index)
        batch = pairs.gather(index)
        paired = self.config.antithetic
        how: Any = {"num_samples": min(samples, 4 if paired else 10), "antithetic": paired}
        m: Any = eqx.filter_jit(predict)(self.model(self.parameters), batch.x, key=keys, **how)
        y, counts = np.asarray(batch.y, np.float64), np.broadcast_to(np.asarray(batch.weight) > 0, batch.y.shape)
        means, sigma = np.asarray(m.means, np.float64), np.sqrt(np.asarray(m.variances, np.float64))
        nll = -np.log(norm.pdf(y, means, sigma).mean(0))[counts].mean()
        levels = np.abs(2 * ndtr((y - means) / sigma).mean(0) - 1)[counts]
        error = np.mean([abs((levels <= level).mean() - level) for level in LEVELS])
        spread = means.std(0)
        if m.instance_means is not None:  # a part of it is ψ's
            spread = np.minimum(np.asarray(m.instance_means, np.float64).std(0), spread)
        return {"reg_nll": float(nll), "reg_ece": float(error), "reg_std_mu": float(spread[counts].mean())}


def lively(model, key):
    """A model whose log σ depend on the features, as after some training: at their start these weights are 0."""
    places = [lambda m: m.heads.sigma_pred.linear.weight, lambda m: m.heads.sigma_gen.linear.weight]
    for place, part in zip(places, jax.random.split(key), strict=True):
        model = eqx.tree_at(place, model, 0.4 * jax.random.normal(part, place(model).shape))
    return model


STEPS, EVERY = 10, 5
DECAY = [1.0] * 9 + [0.5]  # linear to 0 over the last fifth, two steps of ten
COSINE = [(1 + np.cos(np.pi * t / STEPS)) / 2 for t in range(STEPS)]
# Every third step, and all of the last two fifths.
DUE = [3, 6, 7, 8, 9, 10]
VARIANTS = {
    "scaled-crps": ({"schedule": "decay", "train_samples": 2, "num_samples": 6}, DECAY),
    "crps": ({"schedule": "cosine", "clip": 0.0, "reg_batch_size": 5, "evaluation_samples": 3}, COSINE),
    "fair": ({"schedule": "constant", "clip": 1.0, "feature_noise": "both"}, [1.0] * STEPS),
    "moment-matched": ({"schedule": "decay", "clip": 1.0, "settle": 0.0, "antithetic": False}, DECAY),
    "mixture": ({"schedule": "cosine", "mode_noise": "generalization", "feature_noise": "none"}, COSINE),
}


def follows(config: Config, factors, due, trajectories) -> None:
    """Whether `fit` takes the oracle's steps."""
    observation = DataConfig(train_size=7, reg_size=6, test_size=4, observed_fraction=0.6, score_on="observed")
    data = make_data(trajectories, dataclasses.replace(observation, mask_per="pair")).split_off_calibration(0)
    model = lively(build_model(config.model, data.train, key=jax.random.key(3)), jax.random.key(4))
    oracle = Oracle(model, data, config)
    result = fit(data, model, config.train, progress=False)
    losses: dict[str, list[float]] = {"train": [], "reg": []}
    lines = iter(result.history)
    for step in range(1, STEPS + 1):
        losses["train"].append(oracle.update("train", step, factors[step - 1]))
        if step in due:
            losses["reg"].append(oracle.update("reg", step, 1.0))
        if step % EVERY == 0:
            line = next(lines)
            assert line["step"] == step
            assert line["train_loss"] == pytest.approx(np.mean(losses["train"]), abs=2e-5)
            assert line["reg_loss"] == pytest.approx(np.mean(losses["reg"]), abs=2e-5)
            expected = oracle.scores(config.train.evaluation_samples)
            assert line["reg_nll"] == pytest.approx(expected["reg_nll"], abs=2e-5)
            assert line["reg_ece"] == pytest.approx(expected["reg_ece"], abs=1e-3)  # one point may cross a level
            assert line["reg_std_mu"] == pytest.approx(expected["reg_std_mu"], rel=1e-3)
            losses = {"train": [], "reg": []}
    found = named_arrays(eqx.filter(result.model, eqx.is_inexact_array))
    start = named_arrays(eqx.filter(model, eqx.is_inexact_array))
    for name, expected in oracle.parameters.items():
        # A hundredth of one update: where a gradient is nearly 0, Adam makes much of its rounding.
        np.testing.assert_allclose(found[name], expected, atol=0.01 * RATE_OF[owner(name)], rtol=0, err_msg=name)
        assert (np.abs(expected - start[name]) > 0.1 * RATE_OF[owner(name)]).any(), name


BASE = {
    "width": 4,
    "num_blocks": 2,
    "num_modes": 5,
    "log_sigma_gen_start": -1.5,
    "steps": STEPS,
    "evaluate_every": EVERY,
    "k_reg": 3,
    "settle": 0.4,
    "batch_size": 4,
    "num_samples": 4,
    "train_samples": 5,
    "evaluation_samples": 6,
    "seed": 11,
    **RATES,
}


@pytest.mark.parametrize("objective", VARIANTS)
def test_training_is_algorithm_1(objective, trajectories):
    changes, factors = VARIANTS[objective]
    config = Config().replace(**BASE | changes, reg_objective=objective, engine="reference")
    follows(config, factors, [3, 6, 9] if config.train.settle == 0 else DUE, trajectories)


def test_one_setting_draws_all_samples_independently(trajectories):
    changes = {"train_samples": 4, "antithetic": False}
    config = Config().replace(**BASE | changes, reg_objective="scaled-crps", engine="reference")
    follows(config, DECAY, DUE, trajectories)


def test_two_samples_on_reg_are_independent(trajectories):
    """A pair with opposite noise would say nothing of the distance of independent samples."""
    config = Config().replace(**BASE | {"num_samples": 2}, reg_objective="crps", engine="reference")
    follows(config, DECAY, DUE, trajectories)


def test_two_samples_of_a_crps_on_train_are_independent(trajectories):
    changes = {"train_samples": 2, "train_objective": "crps"}
    config = Config().replace(**BASE | changes, reg_objective="crps", engine="reference")
    follows(config, DECAY, DUE, trajectories)


def test_training_by_kernels_is_algorithm_1(trajectories):
    """Shapes that the kernels take, so that every stage and the heads go through them."""
    config = Config().replace(**BASE | {"train_samples": 8}, reg_objective="mixture", engine="fused")
    of_32_points = {
        name: np.concatenate([fields, fields[..., :12]], axis=-1)
        for name, fields in (("train", trajectories.train), ("test", trajectories.test))
    }
    follows(config, DECAY, DUE, trajectories._replace(**of_32_points))
