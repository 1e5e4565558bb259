"""Convert a JAX program to an ONNX model, for the operations of a folded surrogate (`onnx_rules.py`).

The first axis of every input is the batch, of any size. ONNX infers it in a reshape (−1), or reads it from the first
input when the model runs.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper

from crossreg.errors import InputError
from crossreg.export.folding import walk
from crossreg.export.onnx_rules import RULES, NoRuleError
from crossreg.export.program import ExportedFunction

OPSET = 18
BATCH = "batch"
# A file of this format holds at most 2 GiB.
_MOST_BYTES = 2**31 - 2**20


class Graph:
    """An ONNX graph that grows node by node. A value is the name of a node's output or of a constant.

    A node is placed in the outermost scope that has all of its inputs, so a loop does not recompute what it does not
    change. Equal nodes are merged. The size of the batch is that of the first input.
    """

    def __init__(self, inputs: Sequence[str]):
        self.constants: list[TensorProto] = []
        self._bytes = 0
        self._scopes: list[list[NodeProto]] = [[]]
        self._level: dict[str, int] = dict.fromkeys(inputs, 0)
        self._known: dict[Any, str] = {}
        self._batch_of = inputs[0]

    def _name(self, level: int) -> str:
        name = f"v{len(self._level)}"
        self._level[name] = level
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Return the output of an operation."""
        key = (kind, inputs, repr(sorted(attributes.items())))
        if key not in self._known:
            level = max(self._level[name] for name in inputs)
            self._known[key] = self._name(level)
            made = helper.make_node(kind, inputs, [self._known[key]], **attributes)
            self._scopes[level].append(made)
        return self._known[key]

    def constant(self, value: Any, dtype: Any) -> str:
        """Return a constant; equal constants are stored once."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._bytes += array.nbytes
            if self._bytes > _MOST_BYTES:
                raise InputError(
                    f"the noise draws and weights exceed {_MOST_BYTES / 2**30:.1f} GiB; draw fewer samples"
                )
            self._known[key] = self._name(0)
            self.constants.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def integers(self, *values: int) -> str:
        """Return a constant vector of axes, sizes or indices."""
        return self.constant(values, np.int64)

    def sizes(self, shape: Sequence[Any]) -> str:
        """Return a shape as a vector, with the size of the batch read from the input."""
        if all(isinstance(size, int) for size in shape):
            return self.integers(*shape)
        if unknown := [size for size in shape if not isinstance(size, int) and str(size) != BATCH]:
            raise NoRuleError(f"ONNX cannot express the size {unknown[0]}")
        batch = self.node("Shape", self._batch_of, start=0, end=1)
        parts = [self.integers(size) if isinstance(size, int) else batch for size in shape]
        return self.node("Concat", *parts, axis=0)

    def reshape(self, value: str, old: Sequence[Any], new: Sequence[Any]) -> str:
        """Return a value of shape `old` in the shape `new`, of which at most one size depends on the batch."""
        if list(old) == list(new):
            return value
        return self.node("Reshape", value, self.integers(*(n if isinstance(n, int) else -1 for n in new)))

    def transpose(self, value: str, order: Sequence[int]) -> str:
        """Return a value with its axes in another order."""
        order = [int(axis) for axis in order]
        return value if order == sorted(order) else self.node("Transpose", value, perm=order)

    def apply(self, equation: Any, inputs: Sequence[Any]) -> list[str]:
        """Return the outputs of an equation of a JAX program."""
        if all(0 in atom.aval.shape for atom in equation.outvars):
            # Padding by nothing makes empty arrays, which ONNX cannot reshape; only concatenations read them.
            return [self.constant([], atom.aval.dtype) for atom in equation.outvars]
        rule = RULES.get(equation.primitive.name)
        if rule is None:
            raise NoRuleError(f"ONNX: no rule for the operation {equation.primitive.name!r} of this model")
        outputs = rule(self, equation, *self._named(inputs, [atom.aval for atom in equation.invars]))
        return [outputs] if isinstance(outputs, str) else outputs

    def _named(self, values: Sequence[Any], avals: Sequence[Any]) -> list[str]:
        pairs = zip(values, avals, strict=True)
        return [value if isinstance(value, str) else self.constant(value, aval.dtype) for value, aval in pairs]

    def inline(self, function: Any, value: str, aval: Any) -> str:
        """Return a JAX function of one value, in place of an operation that ONNX lacks."""
        program = jax.make_jaxpr(function)(jax.ShapeDtypeStruct(aval.shape, aval.dtype))
        [output] = walk(program, program.consts, [value], self.apply)
        return output

    def loop(self, length: int, body: ClosedJaxpr, consts: Sequence[str], carry: Sequence[str]) -> list[str]:
        """Return the result of `body(consts, carry) → carry`, applied `length` times."""
        level = len(self._scopes)
        self._scopes.append([])
        count, going, *inputs = (self._name(level) for _ in range(2 + len(carry)))
        results = self._named(walk(body, body.consts, [*consts, *inputs], self.apply), body.out_avals)
        names = [self._name(level) for _ in results]
        nodes = self._scopes.pop() + _renamed([going, *results], [f"{going}_next", *names])
        avals = body.in_avals[len(consts) :]
        graph = helper.make_graph(
            nodes,
            f"loop{going}",
            [_info(count, (), np.int64), _info(going, (), np.bool_), *map(_info_of, inputs, avals)],
            [_info(f"{going}_next", (), np.bool_), *map(_info_of, names, avals)],
        )
        # A nested loop stays in its loop, even if it reads nothing of it.
        outputs = [self._name(level - 1) for _ in carry]
        trips, forever = self.constant(length, np.int64), self.constant(True, np.bool_)
        self._scopes[-1].append(helper.make_node("Loop", [trips, forever, *carry], outputs, body=graph))
        return outputs

    def finish(self, results: Sequence[Any], avals: Sequence[Any], names: Sequence[str]) -> list[NodeProto]:
        """Return all nodes; the last ones name the results."""
        return self._scopes[0] + _renamed(self._named(results, avals), names)


def _renamed(values: Sequence[str], names: Sequence[str]) -> list[NodeProto]:
    return [helper.make_node("Identity", [value], [name]) for value, name in zip(values, names, strict=True)]


def _info(name: str, shape: Sequence[Any], dtype: Any):
    dims = [size if isinstance(size, int) else str(size) for size in shape]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims)


def _info_of(name: str, aval: Any):
    return _info(name, aval.shape, aval.dtype)


def to_onnx(program: ExportedFunction, description: str) -> ModelProto:
    """Return a checked ONNX model of a program.

    Args:
        program: the function, its inputs and outputs by name.
        description: the text stored in the model.

    Raises:
        NoRuleError: if the program has an operation without a rule.
        InputError: if the constants exceed the 2 GiB of an ONNX file.
    """
    [batch] = jax.export.symbolic_shape(BATCH)
    traced = jax.jit(program.function).trace(*program.batched(batch))
    closed: ClosedJaxpr = traced.jaxpr
    inputs, outputs = list(program.inputs), list(traced.out_info)
    graph = Graph(inputs)
    results = walk(closed, closed.consts, inputs, graph.apply)
    proto: GraphProto = helper.make_graph(
        graph.finish(results, closed.out_avals, outputs),
        "crossreg",
        list(map(_info_of, inputs, closed.in_avals)),
        list(map(_info_of, outputs, closed.out_avals)),
        graph.constants,
        description,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        proto, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets), producer_name="crossreg"
    )
    checker.check_model(model, full_check=True)
    return model
