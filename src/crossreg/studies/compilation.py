"""Compiled programs on disk: the second process of a shape starts at once."""

import os

import jax

from crossreg.data.cache import cache_folder


def keep_compiled() -> None:
    """Keeps compiled programs in the user's cache, unless JAX was told of another place."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
