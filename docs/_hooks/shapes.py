"""Griffe, which reads the sources for the API reference, takes a string in an annotation for code. Here it is a shape.

`Float[Array, "sample *shape"]` would come out as a product of `sample` and `shape`.
"""

import ast
from typing import Any

from griffe import Attribute, Extension, Function, get_expression


def _as_written(node: ast.expr | None, owner: Function | Attribute) -> Any:
    return get_expression(node, owner.parent, parse_strings=False)  # pyright: ignore[reportArgumentType]


class Shapes(Extension):
    """Keeps the strings of annotations as they are written."""

    def on_function_instance(self, *, node: Any, func: Function, **_: Any) -> None:
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            for argument in filter(None, every):
                func.parameters[argument.arg].annotation = _as_written(argument.annotation, func)
            func.returns = _as_written(node.returns, func)

    def on_attribute_instance(self, *, node: Any, attr: Attribute, **_: Any) -> None:
        if isinstance(node, ast.AnnAssign):
            attr.annotation = _as_written(node.annotation, attr)
        elif isinstance(node, ast.FunctionDef):  # a property
            attr.annotation = _as_written(node.returns, attr)
