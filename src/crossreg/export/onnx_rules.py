"""The ONNX nodes for each operation of JAX that a folded surrogate may have: one rule per operation."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from onnx import helper
from scipy.special import erfcx

from crossreg.errors import InputError

if TYPE_CHECKING:
    from crossreg.export.onnx_graph import Graph


class NoRuleError(InputError):
    """A model has an operation without a rule."""


# Called with the graph, the equation and the names of its inputs; returns the name of its output, or of all outputs.
Rule = Callable[..., str | list[str]]

# Operations that ONNX has under another name; both broadcast axes of size 1.
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
_IDENTITIES = ("stop_gradient", "copy", "copy_p", "optimization_barrier", "reduce_precision")
_REDUCTIONS = {"reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_sum": "ReduceSum"}


def _same(graph: Graph, equation: Any, *inputs: str, kind: str) -> str:
    return graph.node(kind, *inputs)


def _reduce(graph: Graph, equation: Any, x: str, *, kind: str) -> str:
    return graph.node(kind, x, graph.integers(*map(int, equation.params["axes"])), keepdims=0)


RULES: dict[str, Rule] = {
    **{name: functools.partial(_same, kind=kind) for name, kind in _SAME.items()},
    **{name: functools.partial(_reduce, kind=kind) for name, kind in _REDUCTIONS.items()},
    **dict.fromkeys(_IDENTITIES, lambda graph, equation, *inputs: [*inputs]),
    "ne": lambda graph, equation, a, b: graph.node("Not", graph.node("Equal", a, b)),
    "square": lambda graph, equation, x: graph.node("Mul", x, x),
    "rsqrt": lambda graph, equation, x: graph.node("Reciprocal", graph.node("Sqrt", x)),
    "clamp": lambda graph, equation, low, x, high: graph.node("Min", graph.node("Max", x, low), high),
    "transpose": lambda graph, equation, x: graph.transpose(x, equation.params["permutation"]),
}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operations of JAX."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@rule("integer_pow")
def _integer_pow(graph: Graph, equation: Any, x: str) -> str:
    power = equation.params["y"]
    if power in (2, 3):  # as products, exact to the last bit
        square = graph.node("Mul", x, x)
        return square if power == 2 else graph.node("Mul", x, square)
    return graph.node("Pow", x, graph.constant(power, equation.invars[0].aval.dtype))


@rule("select_n")
def _select(graph: Graph, equation: Any, which: str, *cases: str) -> str:
    if len(cases) != 2:
        raise NoRuleError("ONNX: no rule for a choice between more than two values, which this model has")
    return graph.node("Where", which, cases[1], cases[0])


@rule("convert_element_type")
def _convert(graph: Graph, equation: Any, x: str) -> str:
    dtype = np.dtype(equation.params["new_dtype"])
    if equation.invars[0].aval.dtype == dtype:
        return x
    return graph.node("Cast", x, to=int(helper.np_dtype_to_tensor_dtype(dtype)))


@rule("is_finite")
def _is_finite(graph: Graph, equation: Any, x: str) -> str:
    return graph.node("Not", graph.node("Or", graph.node("IsNaN", x), graph.node("IsInf", x)))


@rule("reduce_and")
def _reduce_and(graph: Graph, equation: Any, x: str) -> str:
    """The minimum of 0 and 1, since ONNX has no reduction of booleans."""
    types = {name: int(helper.np_dtype_to_tensor_dtype(np.dtype(name))) for name in ("int32", "bool")}
    least = _reduce(graph, equation, graph.node("Cast", x, to=types["int32"]), kind="ReduceMin")
    return graph.node("Cast", least, to=types["bool"])


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
    # Axes that are not cut, such as the batch, are not listed.
    cut = [(*c, axis) for axis, (c, size) in enumerate(zip(cuts, shape, strict=True)) if c != (0, size, 1)]
    if not cut:
        return x
    starts, ends, steps, axes = (graph.integers(*map(int, column)) for column in zip(*cut, strict=True))
    return graph.node("Slice", x, starts, ends, axes, steps)


@rule("concatenate")
def _concatenate(graph: Graph, equation: Any, *parts: str) -> str:
    full = [part for part, atom in zip(parts, equation.invars, strict=True) if 0 not in atom.aval.shape]
    return graph.node("Concat", *full, axis=int(equation.params["dimension"]))


@rule("stack")
def _stack(graph: Graph, equation: Any, *parts: str) -> str:
    axis = int(equation.params["axis"])
    axes = graph.integers(axis)
    return graph.node("Concat", *(graph.node("Unsqueeze", part, axes) for part in parts), axis=axis)


@rule("dot_general")
def _dot(graph: Graph, equation: Any, a: str, b: str) -> str:
    """A product of stacks of matrices, (shared, left, summed) and (shared, summed, right)."""
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


@rule("rev")
def _rev(graph: Graph, equation: Any, x: str) -> str:
    axes = [int(axis) for axis in equation.params["dimensions"]]
    count, before_all = len(axes), np.iinfo(np.int64).min
    starts, ends, steps = (graph.integers(*[value] * count) for value in (-1, before_all, -1))
    return graph.node("Slice", x, starts, ends, graph.integers(*axes), steps)


def _padded(graph: Graph, x: str, shape: Sequence[Any], value: str, config: Sequence[tuple[int, int, int]]) -> str:
    """Return an array padded with `value` by (before, after, between) along each axis; negative sizes crop."""
    for axis, (_, _, between) in enumerate(config):
        if between:
            # n values, each followed by the gap, less the last gap: n → (n, 1) → (n, 1 + gap) → n (1 + gap) → cut.
            size, rest = shape[axis], list(shape[axis + 1 :])
            x = graph.reshape(x, shape, [*shape[:axis], size, 1, *rest])
            x = graph.node("Pad", x, graph.integers(0, between), value, graph.integers(axis + 1), mode="constant")
            wide = [*shape[:axis], size * (1 + between), *rest]
            x = graph.reshape(x, [*shape[:axis], size, 1 + between, *rest], wide)
            shape = [*shape[:axis], wide[axis] - between, *rest]
            x = graph.node("Slice", x, *(graph.integers(n) for n in (0, shape[axis], axis, 1)))
    axes = [axis for axis, (low, high, _) in enumerate(config) if low or high]
    if not axes:
        return x
    ends = [config[axis][side] for side in (0, 1) for axis in axes]
    return graph.node("Pad", x, graph.integers(*ends), value, graph.integers(*axes), mode="constant")


@rule("pad")
def _pad(graph: Graph, equation: Any, x: str, value: str) -> str:
    config = [(int(low), int(high), int(between)) for low, high, between in equation.params["padding_config"]]
    return _padded(graph, x, equation.invars[0].aval.shape, value, config)


@rule("conv_general_dilated")
def _conv(graph: Graph, equation: Any, x: str, weight: str) -> str:
    """A correlation of (batch, channel, *space) with (out, in, *window), after sorting the axes.

    A transposed convolution is a convolution of its input with zeros between the values.
    """
    parameters, value = equation.params, equation.invars[0].aval
    if parameters["batch_group_count"] != 1:
        raise NoRuleError("ONNX: no rule for a convolution in groups of the batch, which this model has")
    numbers = parameters["dimension_numbers"]
    x, weight = graph.transpose(x, numbers.lhs_spec), graph.transpose(weight, numbers.rhs_spec)
    pads = zip(parameters["padding"], parameters["lhs_dilation"], strict=True)
    config = [(0, 0, 0), (0, 0, 0), *((int(low), int(high), int(d) - 1) for (low, high), d in pads)]
    shape = [value.shape[axis] for axis in numbers.lhs_spec]
    x = _padded(graph, x, shape, graph.constant(0, value.dtype), config)
    attributes = {
        "strides": [int(n) for n in parameters["window_strides"]],
        "dilations": [int(n) for n in parameters["rhs_dilation"]],
        "group": int(parameters["feature_group_count"]),
    }
    return graph.transpose(graph.node("Conv", x, weight, **attributes), np.argsort(numbers.out_spec).tolist())


def _pool(graph: Graph, equation: Any, x: str, *, kind: str) -> str:
    """Windows over the last axes; the axes before them are merged into the batch."""
    parameters, aval = equation.params, equation.invars[0].aval
    dims = parameters["window_dimensions"]
    space = next((axis for axis, size in enumerate(dims) if size > 1), len(dims) - 1)
    strides, padding, dilation = (parameters[n] for n in ("window_strides", "padding", "window_dilation"))
    before = [*strides[:space], *dilation, *(end for ends in padding[:space] for end in (e + 1 for e in ends))]
    if any(n != 1 for n in (*before, *parameters["base_dilation"])):
        raise NoRuleError(f"ONNX: no rule for a dilated {equation.primitive.name}, which this model has")
    old, new = aval.shape, equation.outvars[0].aval.shape
    ends = [(0, 0, 0), (0, 0, 0), *((int(low), int(high), 0) for low, high in padding[space:])]
    fill = graph.constant(-np.inf if kind == "MaxPool" else 0, aval.dtype)
    x = graph.reshape(x, old, [math.prod(old[:space]), 1, *old[space:]])
    x = _padded(graph, x, [None, 1, *old[space:]], fill, ends)
    window = [int(n) for n in dims[space:]]
    x = graph.node(kind, x, kernel_shape=window, strides=[int(n) for n in strides[space:]])
    if kind == "AveragePool":
        x = graph.node("Mul", x, graph.constant(math.prod(window), aval.dtype))
    return graph.reshape(x, [math.prod(old[:space]), 1, *new[space:]], new)


_POOLS = {"reduce_window_max": "MaxPool", "reduce_window_sum": "AveragePool"}
RULES.update({name: functools.partial(_pool, kind=kind) for name, kind in _POOLS.items()})


@rule("split")
def _split(graph: Graph, equation: Any, x: str) -> list[str]:
    axis, ends = graph.integers(int(equation.params["axis"])), np.cumsum([0, *equation.params["sizes"]]).tolist()
    return [
        graph.node("Slice", x, graph.integers(start), graph.integers(end), axis)
        for start, end in itertools.pairwise(ends)
    ]


@rule("scan")
def _scan(graph: Graph, equation: Any, *inputs: str) -> list[str]:
    """A loop of known length with carried values."""
    parameters = equation.params
    consts, carried = parameters["num_consts"], parameters["num_carry"]
    if len(inputs) != consts + carried or len(equation.outvars) != carried:
        raise NoRuleError("ONNX: no rule for a scan over arrays, which this model has")
    return graph.loop(parameters["length"], parameters["jaxpr"], inputs[:consts], inputs[consts:])


def _log1p(x: jax.Array) -> jax.Array:
    """log(1 + x), exact where 1 + x rounds: the rounding of the sum cancels in the quotient."""
    rounded = 1 + x
    return jnp.where(rounded == 1, x, jnp.log(rounded) * (x / jnp.where(rounded == 1, 1, rounded - 1)))


@functools.cache
def _erfcx_polynomial(degree: int = 12) -> np.ndarray:
    """Return the coefficients of e^{x²} erfc(x) / t as a polynomial in t = 1/(1 + x/2), x ≥ 0, highest first."""
    polynomial = np.polynomial.Chebyshev.interpolate(lambda t: erfcx(2 / t - 2) / t, degree, [1e-9, 1.0])
    return polynomial.convert(kind=np.polynomial.Polynomial).coef[::-1]


def _erfc(x: jax.Array) -> jax.Array:
    """1 − erf(x), with all digits in the tail, where ONNX's erf rounds to 1."""
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


def _inlined(function: Callable[[jax.Array], jax.Array]) -> Rule:
    return lambda graph, equation, x: graph.inline(function, x, equation.invars[0].aval)


RULES |= {"erfc": _inlined(_erfc), "log1p": _inlined(_log1p), "expm1": _inlined(_expm1)}
