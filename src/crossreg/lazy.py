"""Public names that are imported on first use, so that importing a package does not import JAX."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def public_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: The package.
        homes: The public names of each of its modules, or of other modules by their full names.

    Example:
        ```python
        __getattr__, __dir__, __all__ = public_names(__name__, {"evaluation": ["evaluate"]})
        ```
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def getattr_(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        return getattr(importlib.import_module(home if home.startswith("crossreg.") else f"{package}.{home}"), name)

    return getattr_, lambda: sorted(home_of), list(home_of)
