"""What a digest tells apart, and that trajectories from a cache are those of their digest."""

import numpy as np
import pytest

from crossreg.data import cache
from crossreg.data.trajectories import Trajectories, digest
from crossreg.errors import InputError
from crossreg.files.sealed import write_sealed


def test_a_digest_tells_shapes_types_order_and_every_number_apart():
    numbers = np.arange(6, dtype=np.float32)
    other = numbers.copy()
    other[5] = np.nextafter(other[5], 9)
    arrays = [
        (numbers,), (numbers.reshape(2, 3),), (numbers.reshape(3, 2),), (numbers.view(np.int32),), (other,),
        (numbers[:3], numbers[3:]), (numbers[3:], numbers[:3]), (numbers[::-1],),
    ]  # fmt: skip
    found = [digest(*some) for some in arrays]
    assert len(set(found)) == len(found)
    # What counts is what they hold, not how it lies in memory.
    assert digest(np.asfortranarray(numbers.reshape(2, 3))) == digest(numbers.reshape(2, 3))


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_sealed_file_of_other_numbers_than_its_header_says_is_refused(part, tmp_path):
    """The seal is that of its content: only the digest tells that the numbers are not those that were generated."""
    made = {name: np.random.default_rng(n).normal(size=(n + 2, 3, 2, 5)) for n, name in enumerate(("train", "test"))}
    arrays = {name: array.astype(np.float32) for name, array in made.items()}
    path = tmp_path / "t.npz"
    wanted = digest(arrays["train"], arrays["test"])
    cache.write(path, Trajectories(**arrays, origin={"source": "made up"}, digest=wanted))
    read = cache.read(path)
    assert (read.digest, read.origin) == (wanted, {"source": "made up"})
    np.testing.assert_array_equal(read.train, arrays["train"])
    np.testing.assert_array_equal(read.test, arrays["test"])
    with np.load(path) as file:
        content = {name: file[name] for name in ("header", "train", "test")}
    changed = content[part].copy()
    changed[0, 1, 0, 2] += 0.5
    write_sealed(path, content | {part: changed})
    with pytest.raises(InputError, match="its content does not match its hash"):
        cache.read(path)
