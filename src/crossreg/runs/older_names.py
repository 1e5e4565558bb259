"""Current names for scores that older versions stored under other names."""

from typing import Any

_CURRENT = {"sharpness": "std", "channel_sharpness": "channel_std"}


def with_current_names(scores: Any) -> Any:
    """Return scores read from a file, at any depth, under their current names.

    Example:
        `with_current_names({"test": {"sharpness": 0.1}})` is `{"test": {"std": 0.1}}`.
    """
    if not isinstance(scores, dict):
        return scores
    return {_CURRENT.get(name, name): with_current_names(value) for name, value in scores.items()}
