"""What files of older versions call otherwise."""

from typing import Any

_NOW = {"sharpness": "std", "channel_sharpness": "channel_std"}


def with_current_names(scores: Any) -> Any:
    """Return scores read from a file, at any depth, under the names that they have now.

    `with_current_names({"test": {"sharpness": 0.1}})` is `{"test": {"std": 0.1}}`.
    """
    if not isinstance(scores, dict):
        return scores
    return {_NOW.get(name, name): with_current_names(value) for name, value in scores.items()}
