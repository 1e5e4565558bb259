"""Types checked at every call, as `jaxtyping` does it, but quicker where no annotation is of an array.

`jaxtyping` compiles two checks wherever a `def` is met, those inside functions at every call too, and looks up shapes
that earlier arguments had. A function without annotations has nothing to be checked, and one whose annotations name no
shapes needs `beartype` alone. To be imported before what is checked.
"""

import typing
from types import FunctionType
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

_with_shapes = jaxtyping.jaxtyped
_types_alone = beartype(conf=BeartypeConf(violation_type=TypeError))


def _is_plain(annotation: Any) -> bool:
    """Whether an annotation is there as it is, not as text, and has no array, tree or variable of `jaxtyping` in it."""
    if annotation is None or annotation is Ellipsis or annotation is Any:
        return True
    if isinstance(annotation, (list, tuple)):  # the arguments of a Callable
        return all(map(_is_plain, annotation))
    if origin := typing.get_origin(annotation):
        return origin is typing.Literal or all(map(_is_plain, (origin, *typing.get_args(annotation))))
    return isinstance(annotation, type) and not type(annotation).__module__.startswith("jaxtyping")


def _jaxtyped(function: Any = None, *, typechecker: Any) -> Any:
    if function is None:
        return lambda function: _jaxtyped(function, typechecker=typechecker)
    if isinstance(function, FunctionType):
        annotations = function.__annotations__
        if not annotations:
            return function
        if all(map(_is_plain, annotations.values())):
            return _types_alone(function)
    return _with_shapes(function, typechecker=typechecker)


jaxtyping.jaxtyped = _jaxtyped
