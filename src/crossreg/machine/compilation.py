"""Compiled programs on disk: the second process of a shape starts at once."""

import os
from pathlib import Path
from typing import Any

import jax

from crossreg.files.cache_folder import cache_folder
from crossreg.files.whole import replacing


def keep_compiled() -> None:
    """Keeps compiled programs in the user's cache, unless JAX was told of another place."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    store_whole()


def store_whole() -> None:
    """Make JAX write each compiled program in one move, in place of one that it could not read.

    By itself JAX leaves half a program behind where it is killed or the disk is full, and never replaces it: every
    later process warns of it and compiles again.
    """
    try:
        from jax._src.lru_cache import _CACHE_SUFFIX, LRUCache
    except ImportError:  # another version of JAX stores its programs in a way of its own
        return
    usual = LRUCache.put
    if usual.__module__ == __name__:
        return

    def put(self: Any, key: str, value: bytes) -> None:
        if self.eviction_enabled or "://" in str(self.path):  # a size to be kept, or a store that is no folder
            usual(self, key, value)
            return
        with replacing(Path(str(self.path)) / f"{key}{_CACHE_SUFFIX}", durable=False) as file:
            file.write(value)

    LRUCache.put = put
