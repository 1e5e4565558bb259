"""Files that were made to do harm: what they promise is held against their size before memory is taken."""

import io
import os
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from entrances import PRESSURE, VERTICES, saved

from crossreg.cars.meshes.mesh_files import read_hdf5
from crossreg.cars.meshes.mesh_files import read_npz as read_car
from crossreg.cars.meshes.ply_files import read_ply
from crossreg.config import load_yaml
from crossreg.errors import InputError
from crossreg.files.arrays import most_unpacked, open_npz, read_npy, read_npz
from crossreg.files.yaml_files import parse_settings


def refused(read, *arguments: Any, most: int = 2**20) -> str:
    """The line by which a file is refused, for little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            read(*arguments)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
    return str(caught.value)


def npy(header: str, content: bytes = b"", version: int = 1) -> bytes:
    text = header.encode("latin1")
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + content


def described(shape: str = "(10,)", descr: str = "'<f8'", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (npy(described("(1000000000000,)"), bytes(80)), "8000000000000 bytes (7.3 TiB), but holds 80 bytes"),
        (npy(described(f"({10**30}, {10**300})"), bytes(80)), "10^330 bytes, but holds 80 bytes"),
        (npy(described("(0, 99999999999999999999)")), "not readable"),
        (npy(described("(-10,)"), bytes(80)), "0 or more each"),
        (npy(described("(10.0,)"), bytes(80)), "0 or more each"),
        (npy(described("(True,)"), bytes(8)), "0 or more each"),
        (npy(described("10"), bytes(80)), "expected a tuple"),
        (npy(described(f"({'1, ' * 33})"), bytes(8)), "at most 32 sizes"),
        (npy(described("(9,)"), bytes(80)), "72 bytes, but holds 80 bytes"),
        (npy(described(descr="'|O'"), bytes(80)), "has type |O; expected numbers"),
        (npy(described(descr="[('a', '<f4'), ('b', '<f4')]"), bytes(80)), "expected numbers"),
        (npy(described(descr="'<f3'"), bytes(30)), "not readable"),
        (npy(described(descr="'|S0'")), "whose values take no bytes"),
        (npy(described(descr="'(4,)<f8'"), bytes(320)), "expected numbers"),
        (npy(described(order="0"), bytes(80)), "not the header of an NPY array"),
        (npy(described(descr="__import__('os').system('true')"), bytes(80)), "not the header of an NPY array"),
        (npy("(" * 5000), "not the header of an array"),
        (npy(described("(" + "9" * 5000 + ",)"), bytes(80)), "not the header of an NPY array"),
        (npy("{'descr': '<f8'}"), "not the header of an NPY array"),
        (npy(described(), bytes(80), version=9), "NPY version 9; expected 1, 2 or 3"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "its header promises 4294967295 bytes"),
        (b"\x93NUMPY", "not an NPY array"),
        (b"", "not an NPY array"),
        (b"PK\x03\x04 and so on", "is an NPZ archive; expected a single NPY array"),
    ],
)
def test_an_npy_file_keeps_what_its_header_promises(tmp_path, content, said):
    (tmp_path / "a.npy").write_bytes(content)
    assert said in refused(read_npy, tmp_path / "a.npy")


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2", ">u4", "|b1", "<c8", "<U5", "|S3", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_arrays_are_read_as_numpy_reads_them(tmp_path, dtype, order, version):
    array = np.asarray(np.random.default_rng(0).integers(0, 100, (3, 4, 5)), dtype, order=order)
    (tmp_path / "a.npy").write_bytes(saved(array, version))
    read = read_npy(tmp_path / "a.npy")
    np.testing.assert_array_equal(read, np.load(tmp_path / "a.npy"))
    assert read.dtype == array.dtype.newbyteorder("=")
    np.savez_compressed(tmp_path / "a.npz", a=array, b=array[0], c=array[:0], d=array[1, 1, 1])
    stored = read_npz(tmp_path / "a.npz", "abcd")
    with np.load(tmp_path / "a.npz") as file:
        for name, values in stored.items():
            np.testing.assert_array_equal(values, file[name])
            assert values.shape == file[name].shape


def zipped(path: Path, content: dict[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packed) as archive:
        for name, values in content.items():
            archive.writestr(name, values)
    return path


def test_a_bomb_does_not_go_off(tmp_path):
    zeros = saved(np.zeros(3 * 10**7, np.uint8))
    bomb = zipped(tmp_path / "a.npz", {"vertices.npy": zeros, "pressure.npy": zeros})
    del zeros
    assert bomb.stat().st_size < 2**17
    assert "or more; a file of" in refused(read_car, bomb)
    # Many small ones are a large one: what is already read is held by who reads.
    part = saved(np.zeros(10**6, np.uint8))
    names = [f"a{number}" for number in range(30)]
    many = zipped(tmp_path / "b.npz", {f"{name}.npy": part for name in names})
    most = most_unpacked(many.stat().st_size)
    assert "or more; a file of" in refused(read_npz, many, names, most=most + 2**21)
    for packed in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        other = zipped(tmp_path / "c.npz", {"a.npy": part}, packed)
        assert "in a way that NumPy does not use" in refused(read_npz, other, ["a"])


def test_an_archive_that_lies_about_sizes(tmp_path):
    path = zipped(tmp_path / "a.npz", {"a.npy": saved(np.arange(10.0))}, zipfile.ZIP_STORED)
    content = path.read_bytes()
    size = struct.pack("<I", len(saved(np.arange(10.0))))
    assert content.count(size * 2) == 2  # in front of the member, and in the list at the end
    for lie in (0, 7, 2**31, 2**32 - 2):
        path.write_bytes(content.replace(size * 2, struct.pack("<II", lie, lie)))
        refused(read_npz, path, ["a"])
    path.write_bytes(content.replace(size * 2, size + struct.pack("<I", 2**31)))
    refused(read_npz, path, ["a"])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", saved(np.arange(10.0)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", saved(np.arange(9.0)))
    assert "holds a twice" in refused(read_npz, path, ["a"])
    with pytest.raises(InputError, match="has no array b; it has a"):
        read_npz(zipped(path, {"a.npy": saved(np.arange(3))}), ["b"])


def test_a_header_is_read_without_its_array(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.zeros((1000, 1000)))
    tracemalloc.start()
    with open_npz(tmp_path / "a.npz") as archive:
        assert archive.header("a").shape == (1000, 1000)
        assert archive.header("a").num_bytes == 8_000_000
    assert tracemalloc.get_traced_memory()[1] < 2**18
    tracemalloc.stop()


def test_what_is_no_file_has_no_array(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    for name, said in (("pipe.npy", "is not a file"), (".", "is not a file"), ("nothing", "No such file")):
        for read in (read_npy, lambda path: read_npz(path, ["a"])):
            assert said in refused(read, tmp_path / name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [1,1]\nb: &b [*a,*a]\nc: &c [*b,*b]\ndata: [*c,*c]", "has an alias in line 2"),
        ("data: " + "[" * 5000 + "]" * 5000, "more than 20 levels"),
        ("- " * 5000, "more than 20 levels"),
        ("data: [" + "1," * 20_000 + "]", "or 5000 values"),
        ("data: {}\n" + "# " * 40_000, "more than 65536 bytes"),
        ("data: {scenario: a, scenario: b}", "a name appears twice, in line 1"),
        ("train: {steps: 1}\ntrain: {steps: 2}", "a name appears twice"),
        ("train: !!python/object/apply:os.system [true]", "has a tag in line 1"),
        ("train: {seed: !!timestamp foo}", "has a tag in line 1"),
        ("train: {steps: 0x" + "f" * 5000 + "}", "steps is a number of thousands of digits: must lie in"),
        ("train: {steps: " + "9" * 4000 + "}", "steps is 9999"),
        ("train: {steps: 3000000000}", "must lie in 0 … 2147483647"),
        ("train: {learning_rate: " + "9" * 400 + "}", "train.learning_rate is 9999"),
        ("train: {learning_rate: .nan}", "learning_rate is nan: must be finite"),
        ("train: {learning_rate: -.inf}", "learning_rate is -inf: must be finite"),
        ("model: {log_sigma_max: .inf}", "log_sigma_max is inf: must be finite"),
        ("model: {num_blocks: 2000000000}", "num_blocks is 2000000000: must be at most 1000"),
        ("data: {observed_fraction: true}", "expected a number"),
        ("train: {steps: 2001-99-99}", "not YAML (month must be in 1..12)"),
        ("? [data]\n: {}", "not YAML (while constructing a mapping)"),
        ("? {data: 1}\n: {}", "not YAML"),
        ("train: {1: 2}", "train has no setting 1"),
        ("\x00", "not YAML"),
        ("", "expected the sections"),
    ],
)
def test_settings_that_were_made_to_do_harm(tmp_path, text, said):
    (tmp_path / "c.yaml").write_text(text)
    assert said in refused(load_yaml, tmp_path / "c.yaml", most=2**23)


def test_settings_that_are_no_text(tmp_path):
    for content in (b"\xff\xfe\x81", b"data: {scenario: \xe9}"):
        (tmp_path / "c.yaml").write_bytes(content)
        assert "not YAML" in refused(load_yaml, tmp_path / "c.yaml")
    assert "No such file" in refused(load_yaml, tmp_path / "nothing.yaml")
    assert parse_settings("train: {steps: 7}\ndata: {scenario: é}".encode(), "c") == {
        "train": {"steps": 7},
        "data": {"scenario": "é"},
    }


def test_a_ply_file_of_promises(tmp_path):
    for head in ("vertex 99999999999", "face 99999999999", "edge 99999999999", "vertex -5", "vertex 1e9"):
        text = f"ply\nformat binary_little_endian 1.0\nelement {head}\nproperty float x\nend_header\n"
        (tmp_path / "a.ply").write_bytes(text.encode() + bytes(64))
        refused(read_ply, tmp_path / "a.ply")
    lists = (
        "ply\nformat binary_little_endian 1.0\nelement face 1\nproperty list uint double vertex_indices\nend_header\n"
    )
    (tmp_path / "a.ply").write_bytes(lists.encode() + b"\xff\xff\xff\x7f" + bytes(64))
    refused(read_ply, tmp_path / "a.ply")
    (tmp_path / "a.ply").write_bytes(b"ply\nformat ascii 1.0\n" + b"comment a\n" * 10_000 + b"end_header\n")
    assert "its header has no end" in refused(read_ply, tmp_path / "a.ply")


def test_an_hdf5_file_of_promises(tmp_path):
    path, outside, linked = (tmp_path / f"{name}.h5" for name in ("a", "outside", "linked"))
    with h5py.File(path, "w") as file:
        file.create_dataset("never written", shape=(5_000_000, 3), dtype="f8")
        file.create_dataset("packed", data=np.zeros((2_000_000, 3)), compression="gzip")
        file["text"] = "a"
        file["complex"] = np.zeros(3, complex)
        file["good"] = VERTICES
    for name, said in {
        "never written": "has 120000000 bytes (114.4 MiB); the whole file has",
        "packed": "has 48000000 bytes (45.8 MiB); the whole file has",
        "text": "expected at most 5000000 points|has type object; expected real numbers",
        "complex": "has type complex128; expected real numbers",
    }.items():
        assert any(part in refused(read_hdf5, path, (name,)) for part in said.split("|")), name
    np.testing.assert_array_equal(read_hdf5(path, ("good",))[0], VERTICES)
    with h5py.File(outside, "w") as file:
        file.create_dataset("outside", shape=(3,), dtype="f8", external=[("/etc/hostname", 0, 24)])
    with h5py.File(linked, "w") as file:
        file["link"] = h5py.ExternalLink("/nowhere.h5", "a")
    for wrong in (outside, linked):
        # Wherever it stands in the file, and whatever of it is asked for.
        with h5py.File(wrong, "a") as file:
            file["good"] = VERTICES
        assert "is in another file" in refused(read_hdf5, wrong, ("good",))


def test_an_archive_of_a_car_may_be_packed(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", vertices=VERTICES, pressure=PRESSURE)
    with np.load(io.BytesIO((tmp_path / "a.npz").read_bytes())) as file:
        np.testing.assert_array_equal(read_car(tmp_path / "a.npz")["vertices"], file["vertices"])
