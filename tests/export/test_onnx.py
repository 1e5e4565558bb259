"""Every rule against JAX itself, in onnxruntime, with a batch whose size the model does not know."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from scipy import special

from crossreg.errors import InputError
from crossreg.export.onnx_graph import to_onnx
from crossreg.export.onnx_rules import RULES
from crossreg.export.program import ExportedFunction

A = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
CASES = {
    "arithmetic": lambda x: -x * x + 2 * x - x / 3,
    "powers": lambda x: x**2 + x**3 + x**4 + jnp.square(x) + jnp.abs(x) ** 1.5,
    "roots": lambda x: jnp.sqrt(jnp.abs(x)) + jax.lax.rsqrt(1 + x * x),
    "functions": lambda x: jnp.tanh(x) + jnp.exp(-x) + jnp.log(1 + jnp.exp(x)) + jax.nn.sigmoid(x),
    "angles": lambda x: jnp.sin(x) + jnp.cos(x),
    "steps": lambda x: jnp.sign(x) + jnp.floor(x) + jnp.ceil(x),
    "bounds": lambda x: jnp.maximum(x, 0.1) + jnp.minimum(x, 0.2) + jnp.clip(x, -0.3, 0.3),
    "gelu": jax.nn.gelu,
    "softplus": jax.nn.softplus,
    "choices": lambda x: jnp.where((x > 0) & ~(x >= 1) | (x < -1) | (x <= -2) | (x == 0) | (x != x), x, 0),
    "casts": lambda x: (x > 0).astype(jnp.float32) + x.astype(jnp.float32),
    "finite": lambda x: jnp.where(jnp.isfinite(jnp.log(x)).all(axis=0), x, 7.0),
    "gradients": lambda x: jax.lax.stop_gradient(x) + 1,
    "sums": lambda x: x.sum(0)[None] + x.max() + x.min(1, keepdims=True) + x.mean(),
    "axes": lambda x: jnp.moveaxis(x[:, None, :, None], 2, 0).squeeze(),
    "shapes": lambda x: jnp.broadcast_to(x.reshape(2, 10)[:, None], (2, 3, 10)),
    "slices": lambda x: x[1:3, ::2],
    "joins": lambda x: jnp.concatenate([x, jnp.stack([x[0], jnp.ones(5)])]),
    "matrices": lambda x: A @ x @ x.T,
    "tensors": lambda x: jnp.einsum("kab,kbc->kca", x.reshape(2, 2, 5), jnp.ones((2, 5, 3))),
    "all summed": lambda x: jnp.tensordot(x, x, axes=2)[None],
    "loop": lambda x: jax.lax.fori_loop(0, 4, lambda i, h: h * 0.5 + jnp.exp(x), x),
    "constant": lambda x: jnp.ones((2, 3)),
    "backwards": lambda x: jnp.flip(x, 1) + x[::-1, ::-1],
    "edges": lambda x: jnp.concatenate([jnp.pad(x, ((0, 0), (2, 1)), mode=m) for m in ("wrap", "reflect", "edge")]),
    "padding": lambda x: jax.lax.pad(x, 0.5, ((1, 2, 0), (-1, 0, 2))),
    "convolution": lambda x: _convolved(x, (4, 3), window_strides=(2,), padding=((1, 3),), rhs_dilation=(2,)),
    "transposed": lambda x: _convolved(x, (4, 3), window_strides=(1,), padding=((-1, 2),), lhs_dilation=(3,)),
    "in groups": lambda x: _convolved(x, (2, 2), window_strides=(1,), padding="SAME", feature_group_count=2),
    "channels last": lambda x: _convolved(
        x, (5, 2), window_strides=(1,), padding="VALID", dimension_numbers=("NWC", "OIW", "NWC")),
    "in two dimensions": lambda x: _convolved(
        x.reshape(2, 2, 5), (2, 3, 2), window_strides=(1, 2), padding=((1, 1), (0, 1)), lhs_dilation=(2, 1)),
    "windows": lambda x: eqx.nn.MaxPool1d(3, 2, padding=1)(x) + eqx.nn.AvgPool1d(3, 2, padding=1)(x),
    "parts": lambda x: jnp.concatenate(jnp.split(x, [1, 3], axis=1)[::-1], axis=1),
    "between bounds": lambda x: jax.lax.clamp(-0.2, x, 0.4),
}  # fmt: skip


def _convolved(x, weight_shape: tuple[int, ...], **parameters):
    """One field through a convolution with 6 outputs."""
    weight = np.random.default_rng(3).normal(size=(6, *weight_shape)).astype(np.float32)
    return jax.lax.conv_general_dilated(x[None], jnp.asarray(weight), **parameters)[0]


def run(function, x: np.ndarray):
    program = ExportedFunction(
        jax.vmap(lambda field: {"y": function(field)}), {"x": jax.ShapeDtypeStruct(x.shape[1:], x.dtype)}
    )
    model = to_onnx(program, "")
    [found] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    return model, np.asarray(found), program.function(x)["y"]


@pytest.mark.parametrize("name", CASES)
def test_rules_agree_with_jax(name):
    model, found, wanted = run(CASES[name], np.random.default_rng(2).normal(size=(6, 4, 5)).astype(np.float32))
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    session = onnxruntime.InferenceSession(model.SerializeToString())
    [alone] = session.run(None, {"x": np.ones((1, 4, 5), np.float32)})
    np.testing.assert_allclose(np.asarray(alone)[0], CASES[name](jnp.ones((4, 5))), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("function", "truth", "low", "high"),
    [
        (jax.scipy.special.erfc, special.erfc, -4, 6),
        (jnp.log1p, np.log1p, 1e-7, 3),
        (jnp.log1p, np.log1p, -0.9, -1e-7),
        (jnp.expm1, np.expm1, -5, 5),
        (jax.scipy.special.ndtr, special.ndtr, -8, 8),
    ],
)
def test_tails_have_all_their_digits(function, truth, low, high):
    """These have no operation of their own in ONNX, and 1 − erf or log(1 + x) would lose them."""
    x = np.linspace(low, high, 3 * 101, dtype=np.float32).reshape(3, 101)
    _, found, _ = run(function, x)
    np.testing.assert_allclose(found, truth(x.astype(np.float64)), rtol=4e-6)


def test_what_a_loop_does_not_change_stands_before_it():
    model, *_ = run(CASES["loop"], np.ones((2, 4, 5), np.float32))
    [loop] = [node for node in model.graph.node if node.op_type == "Loop"]
    assert "Exp" in [node.op_type for node in model.graph.node]
    assert "Exp" not in [node.op_type for node in loop.attribute[0].g.node]


def test_equal_operations_are_one():
    model, *_ = run(lambda x: jnp.exp(x) + jnp.exp(x), np.ones((2, 3), np.float32))
    assert [node.op_type for node in model.graph.node].count("Exp") == 1


def test_unknown_operations_are_named():
    with pytest.raises(InputError, match="'sort'"):
        run(jnp.sort, np.ones((2, 3), np.float32))
    with pytest.raises(InputError, match="scan over arrays"):
        run(lambda x: jax.lax.scan(lambda h, y: (h + y, h), 0.0, x)[1], np.ones((2, 3), np.float32))
    assert "sort" not in RULES
