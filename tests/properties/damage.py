"""Damage to bytes as disks, transfers, editors and ill will do it, from a seeded generator."""

import io
import re
import zipfile

import numpy as np

# Numbers that sizes overflow at, or that promise more than any machine has.
NUMBERS = (
    b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"4294967295", b"9223372036854775807", b"10000000000000000000",
    b"1e400", b"nan", b"9" * 40, b"9" * 5000, b"1_0", b"0x10", b"",
)  # fmt: skip
WORDS = (b"\xff" * 8, b"\x00" * 8, b"\x7f" + b"\xff" * 7, b"\xff" * 7 + b"\x7f", b"\x00\x00\x00\x80" * 2)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """The content after one to three accidents."""
    for _ in range(rng.integers(1, 4)):
        content = ACCIDENTS[rng.integers(len(ACCIDENTS))](content, rng)
    return content


def damaged_inside(content: bytes, rng: np.random.Generator) -> bytes:
    """An NPZ archive with one damaged array, whose checksums are right all the same."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = list(members)[rng.integers(len(members))]
    members[name] = damaged(members[name], rng)
    packed = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[rng.integers(2)]
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packed) as archive:
        for each, values in members.items():
            archive.writestr(each, values)
    return file.getvalue()


def _place(content: bytes, rng: np.random.Generator) -> int:
    """A place in the content, half of the time in its first 200 bytes, where headers are."""
    end = max(1, len(content))
    return int(rng.integers(min(end, 200) if rng.integers(2) else end))


def _flip(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.integers(1, 9) if changed else 0):
        changed[_place(content, rng)] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _truncate(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: _place(content, rng)]


def _lengthen(content: bytes, rng: np.random.Generator) -> bytes:
    return content + rng.bytes(int(rng.integers(1, 100)))


def _cut_out(content: bytes, rng: np.random.Generator) -> bytes:
    start = _place(content, rng)
    return content[:start] + content[start + int(rng.integers(1, 100)) :]


def _splice(content: bytes, rng: np.random.Generator) -> bytes:
    start, target, length = _place(content, rng), _place(content, rng), int(rng.integers(1, 200))
    return content[:target] + content[start : start + length] + content[target:]


def _overwrite(content: bytes, rng: np.random.Generator) -> bytes:
    start, word = _place(content, rng), WORDS[rng.integers(len(WORDS))][: 2 ** int(rng.integers(4))]
    return content[:start] + word + content[start + len(word) :]


def _renumber(content: bytes, rng: np.random.Generator) -> bytes:
    found = list(re.finditer(rb"\d+", content[:4000]))
    if not found:
        return content
    number = found[rng.integers(len(found))]
    return content[: number.start()] + NUMBERS[rng.integers(len(NUMBERS))] + content[number.end() :]


def _noise(content: bytes, rng: np.random.Generator) -> bytes:
    start = _place(content, rng)
    return content[:start] + rng.bytes(16) + content[start + 16 :]


ACCIDENTS = (_flip, _flip, _truncate, _lengthen, _cut_out, _splice, _overwrite, _renumber, _renumber, _noise)
