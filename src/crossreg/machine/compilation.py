"""Compiled programs on disk, so that a second process with the same shapes starts at once."""

import os
from pathlib import Path
from typing import Any

import jax

from crossreg.files.cache_folder import cache_folder
from crossreg.files.whole import replacing


def keep_compiled() -> None:
    """Keep compiled programs in the user's cache, unless JAX was given another place."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    store_whole()


def store_whole() -> None:
    """Make JAX write each compiled program in one move, over a file that it could not read.

    By default JAX leaves an incomplete file where it is killed or the disk is full, and never replaces it: every later
    process warns about it and compiles again.
    """
    try:
        from jax._src.lru_cache import _CACHE_SUFFIX, LRUCache
    except ImportError:  # another version of JAX stores its programs differently
        return
    usual = LRUCache.put
    if usual.__module__ == __name__:
        return

    def put(self: Any, key: str, value: bytes) -> None:
        if self.eviction_enabled or "://" in str(self.path):  # a limited size, or a store that is no folder
            usual(self, key, value)
            return
        with replacing(Path(str(self.path)) / f"{key}{_CACHE_SUFFIX}", durable=False) as file:
            file.write(value)

    LRUCache.put = put
