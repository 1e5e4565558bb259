"""Constant folding: everything in a function that does not depend on its inputs is computed once.

A surrogate with fixed noise then consists of matrix products and pointwise functions, without random numbers, keys or
nested function calls. Such a program gives the same result on every device and runtime.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

# Calls that only group equations or define derivatives, with the parameter that holds the called program.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
# Marks a value that the other walk through the program computes.
_ELSEWHERE = object()
Apply = Callable[[Any, list[Any]], Iterable[Any]]


def folded(function: Callable, *likes: jax.ShapeDtypeStruct) -> Callable:
    """Return `function` for arguments of these shapes, with its constants computed now."""
    program, out_shape = jax.make_jaxpr(function, return_shape=True)(*likes)
    constants = jax.jit(lambda: _constants(program))()
    rest = jax.make_jaxpr(lambda *arguments: _rest(program, constants, arguments))(*likes)
    structure = jax.tree.structure(out_shape)
    return lambda *arguments: jax.tree.unflatten(structure, jaxpr_as_fun(rest)(*arguments))


def walk(program: ClosedJaxpr, consts: Iterable[Any], arguments: Iterable[Any], apply: Apply) -> list[Any]:
    """Return the results of a program, applying its equations in order and expanding calls."""
    jaxpr = program.jaxpr
    values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))

    def read(atom):
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        name = _CALLS.get(equation.primitive.name)
        if name is None:
            outputs = apply(equation, inputs)
        else:
            inner = equation.params[name]
            outputs = walk(inner, inner.consts, inputs, apply)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _bind(equation, inputs: list[Any]) -> list[Any]:
    outputs = equation.primitive.bind(*inputs, **equation.params)
    return outputs if equation.primitive.multiple_results else [outputs]


def _constants(program: ClosedJaxpr) -> list[Any]:
    """Return every value that is combined with one that depends on an argument, in the order of the equations."""
    met: list[Any] = []

    def apply(equation, inputs):
        if any(value is _ELSEWHERE for value in inputs):
            met.extend(value for value in inputs if value is not _ELSEWHERE)
            return [_ELSEWHERE] * len(equation.outvars)
        return _bind(equation, inputs)

    results = walk(program, program.consts, [_ELSEWHERE] * len(program.in_avals), apply)
    return met + [value for value in results if value is not _ELSEWHERE]


def _rest(program: ClosedJaxpr, constants: Iterable[Any], arguments: Iterable[Any]) -> list[Any]:
    """Return the results, applying only the equations that depend on an argument."""
    coming = iter(constants)

    def fill(values):
        return [value if isinstance(value, Tracer) else next(coming) for value in values]

    def apply(equation, inputs):
        if any(isinstance(value, Tracer) for value in inputs):
            return _bind(equation, fill(inputs))
        return [_ELSEWHERE] * len(equation.outvars)

    return fill(walk(program, [_ELSEWHERE] * len(program.consts), arguments, apply))
