"""Every leaf has one owner, and no update touches a leaf that is not its own."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from crossreg.config import Config
from crossreg.nn.backbone import cross_regularize
from crossreg.nn.build import build_model
from crossreg.nn.groups import Psi, Rho, groups
from crossreg.nn.noise import AbstractNoiseScale
from crossreg.nn.surrogate import predict
from crossreg.objectives import REG_OBJECTIVES, moment_matched_nll, train_objective
from crossreg.routing import Routed, learning_rates, merge, route
from crossreg.training.checkpoint import named_arrays
from crossreg.training.replicas import make_task
from crossreg.training.step import init_state, path_of, reg_step, train_step
from foreign_modules import FOREIGN

VARIANTS = {
    "internal": {},
    "element": {"epsilon_per": "element", "sigma_per": "layer"},
    "both": {"feature_noise": "both"},
    "predictive": {"feature_noise": "predictive", "generalization_head": True},
    "modes": {"mode_noise": "both", "feature_noise": "none"},
    "head": {"feature_noise": "none", "generalization_head": True},
    "everything": {"feature_noise": "both", "mode_noise": "both", "generalization_head": True},
    "one site": {"sites": ("pre_head",)},
}


@pytest.fixture(params=[*VARIANTS, *FOREIGN])
def kind(request) -> str:
    """A variant of the FNO, or a module that the package does not own."""
    return request.param


@pytest.fixture
def config(kind, tiny) -> Config:
    return tiny.replace(**VARIANTS.get(kind, {"feature_noise": "both", "generalization_head": True}))


@pytest.fixture
def model(kind, config, data):
    key = jax.random.key(3)
    if kind in VARIANTS:
        return build_model(config.model, data.train, key=key)
    make, where, _ = FOREIGN[kind]
    module = make(data.train.in_channels, data.train.field_shape[1], key=key)
    return cross_regularize(module, where, data.train, config=config.model, key=key)


def test_every_leaf_is_in_exactly_one_group(model):
    parts = route(model)
    leaves = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    assert len(jax.tree.leaves(parts.theta_psi)) + len(jax.tree.leaves(parts.rho)) == len(leaves)
    assert not [leaf for leaf in jax.tree.leaves(parts.static) if eqx.is_array(leaf)]
    labels = jax.tree.leaves(groups(model))
    assert len(labels) == len(leaves)
    assert set(labels) <= {"theta", "psi", "rho"}
    assert labels.count("rho") == len(jax.tree.leaves(parts.rho)) > 0
    assert eqx.tree_equal(merge(parts), model)


def test_groups_follow_from_the_owning_module(model, kind, config):
    labels = groups(model)
    assert set(jax.tree.leaves(labels.heads.mean)) == {"theta"}
    assert set(jax.tree.leaves(labels.heads.sigma_pred)) == {"psi"}
    if config.model.generalization_head:
        assert set(jax.tree.leaves(labels.heads.sigma_gen)) == {"rho"}
    expected = {"theta"} if kind in VARIANTS else {"theta", "psi", "rho"}
    assert set(jax.tree.leaves(labels.stages[0])) == expected


def test_two_owners_are_refused():
    class Inner(Psi):
        value: jax.Array

    class Outer(Rho):
        inner: Inner

    with pytest.raises(TypeError, match="Inner inside Outer: its arrays would have two owners"):
        groups(Outer(Inner(jnp.ones(2))))


def with_random_heads(model):
    """The model with σ heads that read their features, as after some training: they start as constants."""
    linears = lambda m: [head.linear.weight for head in (m.heads.sigma_pred, m.heads.sigma_gen)]  # noqa: E731
    keys = jax.random.split(jax.random.key(8), 2)
    return eqx.tree_at(
        linears, model, [0.3 * jax.random.normal(k, w.shape) for k, w in zip(keys, linears(model), strict=True)]
    )


@pytest.mark.parametrize("engine", ["reference", "fused"])
def test_train_updates_take_sigma_gen_as_a_constant(engine, data, tiny):
    r"""$(\theta, \psi)$ gets the gradient of the train objective in which σ_gen is a number that it cannot change."""
    config = dataclasses.replace(tiny.train, engine=engine)
    model = with_random_heads(build_model(tiny.model, data.train, key=jax.random.key(3)))
    parts, path = route(model), path_of(config)
    batch, key = data.train.sample(jax.random.key(0), 4), jax.random.key(1)
    x, y = (jnp.tile(field, 2)[..., :32] for field in (batch.x, batch.y))  # a size that the kernels take

    def sampled(theta_psi, rho):
        return predict(merge(Routed(theta_psi, rho, parts.static)), x, key=key, num_samples=4, path=path)

    frozen = sampled(parts.theta_psi, parts.rho).vars_generalization

    def loss(theta_psi, rho):
        return train_objective(sampled(theta_psi, rho), y)

    def loss_with_constant(theta_psi):
        mixture = sampled(theta_psi, parts.rho)
        return train_objective(eqx.tree_at(lambda m: m.vars_generalization, mixture, frozen), y)

    got, of_rho = jax.grad(loss, argnums=(0, 1))(parts.theta_psi, parts.rho)
    want = jax.grad(loss_with_constant)(parts.theta_psi)
    for one, two in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-5, atol=1e-6)
    # The head's own weights get nothing from train, even if someone asked.
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(of_rho.heads.sigma_gen))


@pytest.mark.parametrize("objective", ["scaled-crps", "moment-matched", "mixture"])
def test_rho_gets_the_whole_gradient_of_the_reg_objective(objective, data):
    """Of the default model, sites and σ_gen head together, against central differences in float64, leaf by leaf."""
    with jax.enable_x64(True):
        data = jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, data.reg)
        batch = data.sample(jax.random.key(0), 5)
        model = with_random_heads(build_model(Config().replace(num_modes=9).model, data, key=jax.random.key(3)))
        louder = lambda node: isinstance(node, AbstractNoiseScale)  # noqa: E731
        model = jax.tree.map(
            lambda node: eqx.tree_at(lambda s: s.raw, node, node.raw + 4) if louder(node) else node,
            model,
            is_leaf=louder,
        )
        model = jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, model)
        parts = route(model)
        vector, unravel = ravel_pytree(parts.rho)

        @jax.jit
        def loss(vector):
            mixture = predict(
                merge(Routed(parts.theta_psi, unravel(vector), parts.static)),
                batch.x,
                key=jax.random.key(1),
                num_samples=4,
            )
            return REG_OBJECTIVES[objective](mixture, batch.y)

        got = np.asarray(jax.grad(loss)(vector))
        h = 1e-5
        steps = h * np.eye(vector.size)
        want = np.asarray([(loss(vector + step) - loss(vector - step)) / (2 * h) for step in steps])
    assert vector.size == 5 * 8 + 2 * (
        8 + 1
    )  # a σ for each channel of five sites; two channels of σ_gen on eight features
    assert np.abs(want).min() > 0
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)


def test_updates_leave_the_other_groups_bit_for_bit(model, data, config):
    static = route(model).static
    state = init_state(model)
    task = make_task(data, seed=1)
    step = jnp.asarray(1)

    @jax.jit
    def update(state):
        return train_step(state, static, task, step, config.train), reg_step(state, static, task, step, config.train)

    trained, regularized = update(state)
    equal = jax.tree_util.Partial(jax.tree.map, lambda a, b: bool((a == b).all()))
    assert all(jax.tree.leaves(equal(trained.rho, state.rho)))
    assert not all(jax.tree.leaves(equal(trained.theta_psi, state.theta_psi)))
    assert all(jax.tree.leaves(equal(regularized.theta_psi, state.theta_psi)))
    assert not any(jax.tree.leaves(equal(regularized.rho, state.rho)))
    assert all(jax.tree.leaves(equal(regularized.train_optimizer, state.train_optimizer)))
    assert all(jax.tree.leaves(equal(trained.reg_optimizer, state.reg_optimizer)))


def test_the_reg_update_takes_no_weight_gradients(data, tiny):
    """The ρ-gradient's program holds no array of the spectral weights' shape but the weights' own parts."""
    model = build_model(tiny.replace(width=9, num_modes=7).model, data.train, key=jax.random.key(3))
    parts = route(model)
    batch = data.reg.sample(jax.random.key(0), 5)

    def loss(rho, theta_psi):
        mixture = predict(merge(Routed(theta_psi, rho, parts.static)), batch.x, key=jax.random.key(1), num_samples=4)
        return moment_matched_nll(mixture, batch.y)

    def cost(compiled) -> float:
        return compiled.cost_analysis()["flops"]

    def flops(argnums):
        compiled = jax.jit(jax.grad(loss, argnums=argnums)).lower(parts.rho, parts.theta_psi).compile()
        return cost(compiled)

    forward = cost(jax.jit(loss).lower(parts.rho, parts.theta_psi).compile())
    # Backward with weights costs about two forwards, without them about one.
    assert flops(0) - forward < 0.75 * (flops(1) - forward)


def test_a_users_own_rho_has_the_rate_of_rho(tiny):
    class Mine(Rho):
        value: jax.Array

    assert learning_rates({"mine": Mine(jnp.ones(2))}, tiny.train)["mine"].value == 1e-3


def test_rates_follow_from_the_owner(data, tiny):
    """Four rates that are all different, so that none can stand for another."""
    rates_set = {"learning_rate": 1e-3, "site_learning_rate": 2e-3, "generalization_head_learning_rate": 3e-3}
    config = tiny.replace(feature_noise="both", mode_noise="generalization", generalization_head=True, **rates_set)
    model = build_model(config.model, data.train, key=jax.random.key(0))
    for name, rate in named_arrays(learning_rates(model, config.train)).items():
        expected = 2e-3 if "scale.raw" in name else 3e-3 if "sigma_gen" in name else 1e-3
        assert rate == expected, name


def test_labels_are_those_of_the_types(data, tiny):
    """ρ and ψ of sites and heads by name; everything else is θ."""
    config = tiny.replace(feature_noise="both", generalization_head=True)
    labels = named_arrays(groups(build_model(config.model, data.train, key=jax.random.key(0))))
    assert len(labels) > 20
    for name, label in labels.items():
        if "noises[0].scale" in name or "sigma_pred" in name:
            assert label == "psi", name
        else:
            assert label == ("rho" if "noises[1].scale" in name or "sigma_gen" in name else "theta"), name
