"""Checks of Zarr stores, which may come from anywhere: of their metadata, before any chunk is unpacked.

A codec is a program that a store names. Those listed here turn bytes into numbers; others, such as `pickle`, run what
the chunks contain.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from crossreg.errors import InputError
from crossreg.files.arrays import most_unpacked
from crossreg.files.memory import in_words
from crossreg.files.whole import read_json

# Names in numcodecs, which stores of version 2 use; in version 3 they begin with "numcodecs.".
_NUMCODECS = {
    "adler32", "astype", "bitround", "blosc", "bz2", "crc32", "crc32c", "delta", "fixedscaleoffset", "fletcher32",
    "gzip", "lz4", "lzma", "packbits", "quantize", "shuffle", "vlen-utf8", "zlib", "zstd",
}  # fmt: skip
_VERSION_3 = {"blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "vlen-utf8", "zstd"}
_PACKERS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
_KNOWN = _NUMCODECS | _VERSION_3 | {f"numcodecs.{name}" for name in _NUMCODECS}
_LARGEST_ITEM = 16


def check_store(path: Path) -> None:
    """Raise InputError if a store links out of its folder, names an unknown codec, or has parts far larger than itself.

    A part is what is read as a whole: a chunk, or a one-dimensional array, which is a coordinate. A chunk that is
    packed twice can unpack to a million times its bytes, and is refused.
    """
    size, metadata = 0, []
    for file in path.rglob("*"):
        if file.is_symlink() or not (file.is_dir() or file.is_file()):
            raise InputError(f"data {file}: is a link, or not a file; expected the whole store inside its folder")
        size += file.stat().st_size if file.is_file() else 0
        metadata += [file] if file.name in (".zarray", "zarr.json") else []
    most = most_unpacked(size)
    for file in sorted(metadata):
        about = read_json(file, "the metadata of a Zarr array or group")
        if about.get("node_type") == "group":
            continue
        where = f"data {path}: {file.parent.relative_to(path).as_posix()}"
        codecs = list(_codecs(about))
        if len(packers := [codec for codec in codecs if codec.removeprefix("numcodecs.") in _PACKERS]) > 1:
            raise InputError(
                f"{where}: is packed more than once, by {' and '.join(packers)}; expected at most one of them"
            )
        for codec in codecs:
            if codec not in _KNOWN:
                known = ", ".join(sorted(_NUMCODECS))
                raise InputError(
                    f"{where}: needs the codec {str(codec)[:40]}, which is not supported; expected one of {known}"
                )
        whole = about["shape"] if len(about["shape"]) == 1 else ()
        part = max(math.prod(_chunk(about)), math.prod(whole)) * _item_bytes(about)
        if part > most:
            raise InputError(
                f"{where}: a chunk, or all of a coordinate, would take {in_words(part)}, and a store of this size"
                f" at most {in_words(most)}"
            )


def _codecs(about: dict[str, Any]) -> Iterator[str]:
    """Yield the names of all codecs of an array, including those inside of others."""
    if about.get("zarr_format") == 2:
        for codec in (about.get("compressor"), *(about.get("filters") or ())):
            if codec is not None:
                yield codec["id"]
        return
    for part in ("codecs", "index_codecs"):
        for codec in about.get(part) or ():
            yield codec if isinstance(codec, str) else codec["name"]
            if isinstance(codec, dict):
                yield from _codecs(codec.get("configuration") or {})


def _chunk(about: dict[str, Any]) -> list[int]:
    return about["chunks"] if about["zarr_format"] == 2 else about["chunk_grid"]["configuration"]["chunk_shape"]


def _item_bytes(about: dict[str, Any]) -> int:
    """Return the bytes of an item of a type, estimated high where NumPy does not know the type's name.

    Types of version 3 with settings, such as texts of a fixed length, state their bytes there.
    """
    kind = about["dtype"] if about["zarr_format"] == 2 else about["data_type"]
    if isinstance(kind, dict):
        return max(_LARGEST_ITEM, sum(_lengths(kind)))
    try:
        return np.dtype(kind).itemsize
    except TypeError:
        return _LARGEST_ITEM


def _lengths(kind: Any) -> Iterator[int]:
    """Yield all lengths in bytes in the description of a type, including those of a record's fields."""
    parts = kind.items() if isinstance(kind, dict) else enumerate(kind) if isinstance(kind, list) else ()
    for name, part in parts:
        if name == "length_bytes" and isinstance(part, int):
            yield part
        else:
            yield from _lengths(part)
