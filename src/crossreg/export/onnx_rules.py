"""One rule for each operation of JAX: the ONNX nodes that do the same."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from onnx import helper
from scipy.special import erfcx

from crossreg.errors import InputError

if TYPE_CHECKING:
    from crossreg.export.onnx_graph import Graph

Rule = Callable[..., str | list[str]]
RULES: dict[str, Rule] = {}

# The same under another name; both let axes of size 1 stand for any size.
_SAME = {
    "abs": "Abs",
    "add": "Add",
    "add_any": "Add",
    "and": "And",
    "ceil": "Ceil",
    "cos": "Cos",
    "div": "Div",
    "eq": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "log": "Log",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Max",
    "min": "Min",
    "mul": "Mul",
    "neg": "Neg",
    "not": "Not",
    "or": "Or",
    "pow": "Pow",
    "sign": "Sign",
    "sin": "Sin",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tanh": "Tanh",
}
_REDUCTIONS = {"reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_sum": "ReduceSum"}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for operations of JAX."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _same(graph: Graph, equation: Any, *inputs: str, kind: str) -> str:
    return graph.node(kind, *inputs)


RULES.update({name: functools.partial(_same, kind=kind) for name, kind in _SAME.items()})


@rule("stop_gradient", "copy", "copy_p", "optimization_barrier", "reduce_precision")
def _identity(graph: Graph, equation: Any, *inputs: str) -> list[str]:
    return list(inputs)


@rule("ne")
def _ne(graph: Graph, equation: Any, a: str, b: str) -> str:
    return graph.node("Not", graph.node("Equal", a, b))


@rule("square")
def _square(graph: Graph, equation: Any, x: str) -> str:
    return graph.node("Mul", x, x)


@rule("integer_pow")
def _integer_pow(graph: Graph, equation: Any, x: str) -> str:
    power = equation.params["y"]
    if power in (2, 3):  # as products, to the last bit
        square = graph.node("Mul", x, x)
        return square if power == 2 else graph.node("Mul", x, square)
    return graph.node("Pow", x, graph.constant(power, equation.invars[0].aval.dtype))


@rule("rsqrt")
def _rsqrt(graph: Graph, equation: Any, x: str) -> str:
    return graph.node("Reciprocal", graph.node("Sqrt", x))


@rule("select_n")
def _select(graph: Graph, equation: Any, which: str, *cases: str) -> str:
    if len(cases) != 2:
        raise InputError("ONNX: no rule for a choice between more than two values, which this model has")
    return graph.node("Where", which, cases[1], cases[0])


@rule("convert_element_type")
def _convert(graph: Graph, equation: Any, x: str) -> str:
    dtype = np.dtype(equation.params["new_dtype"])
    if equation.invars[0].aval.dtype == dtype:
        return x
    return graph.node("Cast", x, to=int(helper.np_dtype_to_tensor_dtype(dtype)))


def _reduce(graph: Graph, equation: Any, x: str, *, kind: str) -> str:
    return graph.node(kind, x, graph.integers(*map(int, equation.params["axes"])), keepdims=0)


RULES.update({name: functools.partial(_reduce, kind=kind) for name, kind in _REDUCTIONS.items()})


@rule("is_finite")
def _is_finite(graph: Graph, equation: Any, x: str) -> str:
    return graph.node("Not", graph.node("Or", graph.node("IsNaN", x), graph.node("IsInf", x)))


@rule("reduce_and")
def _reduce_and(graph: Graph, equation: Any, x: str) -> str:
    """The least of 0 and 1: ONNX has no such operation on truth values."""
    types = {name: int(helper.np_dtype_to_tensor_dtype(np.dtype(name))) for name in ("int32", "bool")}
    least = _reduce(graph, equation, graph.node("Cast", x, to=types["int32"]), kind="ReduceMin")
    return graph.node("Cast", least, to=types["bool"])


@rule("transpose")
def _transpose(graph: Graph, equation: Any, x: str) -> str:
    return graph.transpose(x, equation.params["permutation"])


@rule("reshape", "squeeze", "expand_dims")
def _reshape(graph: Graph, equation: Any, x: str) -> str:
    return graph.reshape(x, equation.invars[0].aval.shape, equation.outvars[0].aval.shape)


@rule("broadcast_in_dim")
def _broadcast(graph: Graph, equation: Any, x: str, *sizes: str) -> str:
    old, new = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    kept = dict(zip(map(int, equation.params["broadcast_dimensions"]), old, strict=True))
    aligned = [kept.get(axis, 1) for axis in range(len(new))]
    x = graph.reshape(x, old, aligned)
    return x if aligned == list(new) else graph.node("Expand", x, graph.sizes(new))


@rule("slice")
def _slice(graph: Graph, equation: Any, x: str) -> str:
    shape, parameters = equation.invars[0].aval.shape, equation.params
    steps = parameters["strides"] or (1,) * len(shape)
    cuts = zip(parameters["start_indices"], parameters["limit_indices"], steps, strict=True)
    # An axis that is left whole, as the batch always is, is not named.
    cut = [(*c, axis) for axis, (c, size) in enumerate(zip(cuts, shape, strict=True)) if c != (0, size, 1)]
    if not cut:
        return x
    starts, ends, steps, axes = (graph.integers(*map(int, column)) for column in zip(*cut, strict=True))
    return graph.node("Slice", x, starts, ends, axes, steps)


@rule("concatenate")
def _concatenate(graph: Graph, equation: Any, *parts: str) -> str:
    return graph.node("Concat", *parts, axis=int(equation.params["dimension"]))


@rule("stack")
def _stack(graph: Graph, equation: Any, *parts: str) -> str:
    axis = int(equation.params["axis"])
    axes = graph.integers(axis)
    return graph.node("Concat", *(graph.node("Unsqueeze", part, axes) for part in parts), axis=axis)


@rule("dot_general")
def _dot(graph: Graph, equation: Any, a: str, b: str) -> str:
    """Both sides as stacks of matrices, (shared, left, summed) and (shared, summed, right)."""
    (summed_a, summed_b), (shared_a, shared_b) = equation.params["dimension_numbers"]
    shape_a, shape_b = (atom.aval.shape for atom in equation.invars)
    left, right = (
        [axis for axis in range(len(shape)) if axis not in (*summed, *shared)]
        for shape, summed, shared in ((shape_a, summed_a, shared_a), (shape_b, summed_b, shared_b))
    )

    def matrices(value, shape, shared, rows, columns):
        order = [*shared, *rows, *columns]
        sizes = [[shape[axis] for axis in axes] for axes in (shared, rows, columns)]
        new = [*sizes[0], math.prod(sizes[1]), math.prod(sizes[2])]
        return graph.reshape(graph.transpose(value, order), [size for part in sizes for size in part], new), new

    a, new_a = matrices(a, shape_a, shared_a, left, summed_a)
    b, new_b = matrices(b, shape_b, shared_b, summed_b, right)
    return graph.reshape(graph.node("MatMul", a, b), [*new_a[:-1], new_b[-1]], equation.outvars[0].aval.shape)


@rule("scan")
def _scan(graph: Graph, equation: Any, *inputs: str) -> list[str]:
    """A loop of known length that carries values on."""
    parameters = equation.params
    consts, carried = parameters["num_consts"], parameters["num_carry"]
    if len(inputs) != consts + carried or len(equation.outvars) != carried:
        raise InputError("ONNX: no rule for a scan over arrays, which this model has")
    return graph.loop(parameters["length"], parameters["jaxpr"], inputs[:consts], inputs[consts:])


def _log1p(x: jax.Array) -> jax.Array:
    """log(1 + x), exact where 1 + x rounds: what log makes of the rounded sum is set right by the same rounding."""
    rounded = 1 + x
    return jnp.where(rounded == 1, x, jnp.log(rounded) * (x / jnp.where(rounded == 1, 1, rounded - 1)))


@functools.cache
def _erfcx_polynomial(degree: int = 12) -> np.ndarray:
    """The coefficients of e^{x²} erfc(x) / t as a polynomial in t = 1/(1 + x/2), for all x ≥ 0; the highest first."""
    polynomial = np.polynomial.Chebyshev.interpolate(lambda t: erfcx(2 / t - 2) / t, degree, [1e-9, 1.0])
    return polynomial.convert(kind=np.polynomial.Polynomial).coef[::-1]


def _erfc(x: jax.Array) -> jax.Array:
    """1 − erf(x), with all its digits in the tail, where ONNX's erf has rounded to 1."""
    t = 1 / (1 + 0.5 * jnp.abs(x))
    value = jnp.zeros_like(t)
    for coefficient in _erfcx_polynomial():
        value = value * t + np.float32(coefficient)
    tail = t * value * jnp.exp(-x * x)
    return jnp.where(x < 0, 2 - tail, tail)


def _expm1(x: jax.Array) -> jax.Array:
    """e^x − 1, by tanh, which is exact near 0."""
    half = jnp.tanh(0.5 * x)
    return jnp.where(jnp.abs(x) < 1, 2 * half / (1 - half), jnp.exp(x) - 1)


@rule("erfc")
def _erfc_rule(graph: Graph, equation: Any, x: str) -> str:
    return graph.inline(_erfc, x, equation.invars[0].aval)


@rule("log1p")
def _log1p_rule(graph: Graph, equation: Any, x: str) -> str:
    return graph.inline(_log1p, x, equation.invars[0].aval)


@rule("expm1")
def _expm1_rule(graph: Graph, equation: Any, x: str) -> str:
    return graph.inline(_expm1, x, equation.invars[0].aval)
