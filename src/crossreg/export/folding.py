"""A function with everything computed that does not depend on its input: constants take the place of the rest.

What is left of a surrogate whose noise follows from a seed are matrix products and pointwise functions: no random
numbers, no keys, no calls of functions inside functions. Such a program means the same on every device and runtime.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

# Calls that only group equations, or say how to differentiate them, with the parameter that holds what is called.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
# What one walk through a program leaves to the other.
_ELSEWHERE = object()
Apply = Callable[[Any, list[Any]], Iterable[Any]]


def folded(function: Callable, *likes: jax.ShapeDtypeStruct) -> Callable:
    """`function`, for arguments of these shapes, with its constants computed once, now."""
    program, out_shape = jax.make_jaxpr(function, return_shape=True)(*likes)
    constants = jax.jit(lambda: _constants(program))()
    rest = jax.make_jaxpr(lambda *arguments: _rest(program, constants, arguments))(*likes)
    structure = jax.tree.structure(out_shape)
    return lambda *arguments: jax.tree.unflatten(structure, jaxpr_as_fun(rest)(*arguments))


def walk(program: ClosedJaxpr, consts: Iterable[Any], arguments: Iterable[Any], apply: Apply) -> list[Any]:
    """The results of a program whose equations are applied one after the other, calls taken apart."""
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
    """Every value that an argument meets on its way, in the order in which it meets them."""
    met: list[Any] = []

    def apply(equation, inputs):
        if any(value is _ELSEWHERE for value in inputs):
            met.extend(value for value in inputs if value is not _ELSEWHERE)
            return [_ELSEWHERE] * len(equation.outvars)
        return _bind(equation, inputs)

    results = walk(program, program.consts, [_ELSEWHERE] * len(program.in_avals), apply)
    return met + [value for value in results if value is not _ELSEWHERE]


def _rest(program: ClosedJaxpr, constants: Iterable[Any], arguments: Iterable[Any]) -> list[Any]:
    """What `_constants` leaves: the equations that an argument reaches."""
    coming = iter(constants)

    def fill(values):
        return [value if isinstance(value, Tracer) else next(coming) for value in values]

    def apply(equation, inputs):
        if any(isinstance(value, Tracer) for value in inputs):
            return _bind(equation, fill(inputs))
        return [_ELSEWHERE] * len(equation.outvars)

    return fill(walk(program, [_ELSEWHERE] * len(program.consts), arguments, apply))
