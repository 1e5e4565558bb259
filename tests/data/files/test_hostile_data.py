"""Data files that reach out of themselves, run code, or promise more than they hold: each is a real file made here."""

import json
import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import crossreg as xr
from crossreg.cars.meshes.mesh_files import read_hdf5
from crossreg.config import OWN_DATA
from crossreg.data.files.check import check_data
from crossreg.data.files.pool import Pool, pool_of
from crossreg.data.files.split import split_source
from crossreg.data.files.streamed import StreamedPairs
from crossreg.data.formats.open import open_source
from crossreg.data.pairs import Pairs
from crossreg.errors import InputError
from made_fields import fields, read_all

xarray, zarr = pytest.importorskip("xarray"), pytest.importorskip("zarr")
SHAPE = (5, 4, 2, 20)


def peak_of(path: Path) -> tuple[str, int]:
    """What `data check` and loading say of a file, and how many bytes they took, in a process of its own."""
    code = """
import json, re, sys
from pathlib import Path
from typing import Any
import crossreg as xr
from crossreg.data.files.check import check_data
import crossreg.data.formats.xarray_files, crossreg.data.formats.hdf5_files, xarray, jax
jax.numpy.zeros(3).block_until_ready()
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
before, said = peak(), ""
for read in (check_data, xr.load):
    try:
        read(Path(sys.argv[1]))
    except xr.InputError as error:
        said = str(error)
print(json.dumps([said, peak() - before]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    said, size = json.loads(done.stdout)
    return said, size


def external_storage(file: h5py.File, elsewhere: Path) -> None:
    elsewhere.write_bytes(np.ones(SHAPE, "f4").tobytes())
    file.create_dataset("u", SHAPE, "f4", external=[(str(elsewhere), 0, h5py.h5f.UNLIMITED)])


def external_link(file: h5py.File, elsewhere: Path) -> None:
    with h5py.File(elsewhere, "w") as other:
        other["u"] = np.ones(SHAPE, "f4")
    file["u"] = h5py.ExternalLink(elsewhere.name, "/u")


def link_to_a_group(file: h5py.File, elsewhere: Path) -> None:
    external_link(file, elsewhere)
    del file["u"]
    file["deep/g"] = h5py.ExternalLink(elsewhere.name, "/")
    file["u"] = h5py.SoftLink("/deep/g/u")


def virtual(file: h5py.File, elsewhere: Path) -> None:
    with h5py.File(elsewhere, "w") as other:
        other["u"] = np.ones(SHAPE, "f4")
    layout = h5py.VirtualLayout(SHAPE, "f4")
    layout[:] = h5py.VirtualSource(elsewhere, "u", SHAPE)
    file.create_virtual_dataset("u", layout)


@pytest.mark.parametrize("reach", [external_storage, external_link, link_to_a_group, virtual])
@pytest.mark.parametrize("name", ["u.h5", "u.nc", "well.h5", "car.h5"])
def test_hdf5_that_reads_other_files_is_refused(tmp_path, reach, name):
    with h5py.File(tmp_path / name, "w") as file:
        where = file
        if name == "well.h5":
            file.create_group("dimensions").attrs["spatial_dims"] = ["x"]
            where = file.create_group("t0_fields")
        reach(where, tmp_path / "elsewhere")
    read = (lambda path: read_hdf5(path, ("u", "u"))) if name == "car.h5" else open_source
    with pytest.raises(InputError, match=r"(u|deep/g) is in another file; expected it in this one"):
        read(tmp_path / name)


def test_links_inside_a_file_are_followed(tmp_path):
    u = fields(1)
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["a/u"] = u
        file["v"] = h5py.SoftLink("/a/u")
        file["hard"] = file["a/u"]
    np.testing.assert_array_equal(read_all(open_source(tmp_path / "u.h5")), u)


class Boom:
    def __init__(self, path: str):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def write_zarr(path: Path, version: int, **options) -> np.ndarray:
    u = fields(1, channels=1)[:, :, 0]
    group = zarr.open_group(path, mode="w", zarr_format=version)
    own = {"dimension_names": ["sample", "time", "x"]} if version == 3 else {}
    array = group.create_array("u", shape=u.shape, dtype="f4", chunks=(1, *u.shape[1:]), **own, **options)
    array[:] = u
    if version == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = ["sample", "time", "x"]
    return u


def change(path: Path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("field", ["compressor", "filters"])
def test_a_pickle_in_a_zarr_store_is_not_run(tmp_path, field):
    write_zarr(tmp_path / "u.zarr", 2)
    codec = {"id": "pickle", "protocol": 5}
    options = {"compressor": codec} if field == "compressor" else {"compressor": None, "filters": [codec]}
    change(tmp_path / "u.zarr" / "u" / ".zarray", dtype="|O", fill_value=None, **options)
    for chunk in (tmp_path / "u.zarr" / "u").glob("[0-9]*"):
        chunk.write_bytes(pickle.dumps(Boom(str(tmp_path / "ran"))))
    with pytest.raises(InputError, match=r"u: needs the codec pickle, which is not supported; expected one of adler32"):
        read_all(open_source(tmp_path / "u.zarr"))
    assert not (tmp_path / "ran").exists()


def test_a_zarr_store_that_is_packed_twice_is_refused(tmp_path):
    pack = {"id": "zlib", "level": 9}
    for number, (filters, more) in enumerate(
        [([pack], "zlib and zlib"), ([{"id": "shuffle", "elementsize": 4}, {"id": "bz2", "level": 1}], "zlib and bz2")]
    ):
        write_zarr(tmp_path / f"{number}.zarr", 2)
        change(tmp_path / f"{number}.zarr" / "u" / ".zarray", compressor=pack, filters=filters)
        with pytest.raises(InputError, match=f"u: is packed more than once, by {more}; expected at most one of them"):
            open_source(tmp_path / f"{number}.zarr")
    write_zarr(tmp_path / "u.zarr", 3)
    packed = [
        {"name": "gzip", "configuration": {"level": 1}},
        {"name": "numcodecs.zstd", "configuration": {"level": 1}},
    ]
    change(tmp_path / "u.zarr" / "u" / "zarr.json", codecs=[{"name": "bytes"}, *packed])
    with pytest.raises(InputError, match=r"u: is packed more than once, by gzip and numcodecs\.zstd"):
        open_source(tmp_path / "u.zarr")


def test_an_hdf5_file_that_is_packed_twice_is_refused(tmp_path):
    u = fields(1)
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk(u.shape)
    settings.set_shuffle()
    settings.set_fletcher32()
    for name in ("once", "twice"):
        settings.set_filter(h5py.h5z.FILTER_DEFLATE, h5py.h5z.FLAG_OPTIONAL, (9,))
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            h5py.h5d.create(file.id, b"u", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(u.shape), settings)
            file["u"][:] = u  # pyright: ignore[reportIndexIssue]
    np.testing.assert_array_equal(read_all(open_source(tmp_path / "once.h5")), u)
    with pytest.raises(InputError, match="u is packed more than once; expected at most one filter that packs"):
        open_source(tmp_path / "twice.h5")


@pytest.mark.parametrize(
    "codecs",
    [
        [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "numcodecs.pickle"}],
        ["bytes", "mine"],
        [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 6, 20], "codecs": [{"name": "mine"}]}}],
        [{"name": "sharding_indexed", "configuration": {"codecs": ["bytes"], "index_codecs": [{"name": "mine"}]}}],
    ],
)
def test_unknown_codecs_of_version_3(tmp_path, codecs):
    write_zarr(tmp_path / "u.zarr", 3)
    change(tmp_path / "u.zarr" / "u" / "zarr.json", codecs=codecs)
    with pytest.raises(InputError, match=r"u: needs the codec (numcodecs\.pickle|mine), which is not supported"):
        open_source(tmp_path / "u.zarr")


def test_codecs_of_numbers_are_read(tmp_path):
    from numcodecs import Blosc, Delta, Zlib
    from zarr.codecs import BloscCodec, ZstdCodec

    for version, options in (
        (2, {"compressors": Zlib(3), "filters": [Delta("f4")]}),
        (2, {"compressors": Blosc("lz4")}),
        (3, {"compressors": BloscCodec()}),
        (3, {"compressors": ZstdCodec(), "shards": (5, 6, 20)}),
    ):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.zarr"
        u = write_zarr(path, version, **options)
        np.testing.assert_allclose(read_all(open_source(path))[:, :, 0], u, atol=1e-6)


def test_a_zarr_store_is_in_its_folder(tmp_path):
    write_zarr(tmp_path / "u.zarr", 2)
    (tmp_path / "u.zarr" / "u").rename(tmp_path / "u")
    (tmp_path / "u.zarr" / "u").symlink_to(tmp_path / "u")
    with pytest.raises(InputError, match=r"u\.zarr/u: is a link"):
        open_source(tmp_path / "u.zarr")
    (tmp_path / "link.zarr").symlink_to(tmp_path / "own.zarr")  # the store itself may be linked to
    u = write_zarr(tmp_path / "own.zarr", 3)
    np.testing.assert_array_equal(read_all(open_source(tmp_path / "link.zarr"))[:, :, 0], u)


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_chunks_and_coordinates_that_are_larger_than_their_store(tmp_path, version):
    large = [2**16, 2**10, 2]
    for number, (name, size) in enumerate((("u", large), ("x", [2**27]))):
        path = tmp_path / f"{number}.zarr"
        write_zarr(path, version)
        file = path / "u" / (".zarray" if version == 2 else "zarr.json")
        chunk = {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": size if name == "u" else [1]}}}
        change(file, shape=size, **({"chunks": size if name == "u" else [1]} if version == 2 else chunk))
        with pytest.raises(InputError, match=r"u: a chunk, or all of a coordinate, would take 536870912 bytes"):
            open_source(path)


@pytest.mark.parametrize("names", [["a", "bcd", "ef"], np.array(["a", "bcd", "ef"], object)])
@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_store_with_names_of_its_samples_is_read(tmp_path, version, names):
    u = fields(1, samples=3, channels=1)[:, :, 0].astype("f4")
    data = xarray.Dataset({"u": (("sample", "time", "x"), u)}, {"sample": names})
    data.to_zarr(tmp_path / "u.zarr", zarr_format=version, consolidated=False)
    np.testing.assert_array_equal(read_all(open_source(tmp_path / "u.zarr"))[:, :, 0], u)


def test_long_texts_of_a_zarr_store_are_counted_before_they_are_unpacked(tmp_path):
    u = fields(1, samples=3, channels=1)[:, :, 0].astype("f4")
    data = xarray.Dataset({"u": (("sample", "time", "x"), u)}, {"sample": ["a", "bcd", "ef"]})
    data.to_zarr(tmp_path / "u.zarr", zarr_format=3, consolidated=False)
    about = {"name": "fixed_length_utf32", "configuration": {"length_bytes": 2**27}}
    record = {"name": "structured", "configuration": {"fields": [["a", "float32"], ["b", about], ["c", about]]}}
    for kind, size in ((about, 3 * 2**27), (record, 6 * 2**27)):
        change(tmp_path / "u.zarr" / "sample" / "zarr.json", data_type=kind)
        with pytest.raises(InputError, match=rf"sample: a chunk, or all of a coordinate, would take {size} bytes"):
            open_source(tmp_path / "u.zarr")


def test_more_samples_than_a_file_can_hold(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_dataset("u", (20_000_000, 2, 1, 8), "f4", chunks=(1000, 2, 1, 8))
    assert (tmp_path / "u.h5").stat().st_size < 4000
    said, size = peak_of(tmp_path / "u.h5")
    assert "the list of its 20,000,000 trajectories would take 1280000000 bytes" in said
    assert size < 30e6


def bomb(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> Path:
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("u", shape, "f4", chunks=chunks, compression="gzip", compression_opts=9)
        packed = zlib.compress(bytes(4 * int(np.prod(chunks))), 9)
        for sample in range(0, shape[0], chunks[0]):
            dataset.id.write_direct_chunk((sample, 0, 0, 0), packed)
    return path


def test_a_deflate_bomb_is_not_unpacked_into_memory(tmp_path):
    """Of one chunk it is refused; of many, pairs are read when they are needed, and take what these take."""
    one = bomb(tmp_path / "one.h5", (200, 4, 1, 2**16), (200, 4, 1, 2**16))
    assert one.stat().st_size < 0.3e6
    with pytest.raises(InputError, match="a chunk of it would take 209715200 bytes"):
        open_source(one)
    said, size = peak_of(one)
    assert "u: a chunk of it would take 209715200 bytes (200.0 MiB), and a file of this size may" in said
    assert size < 30e6
    many = bomb(tmp_path / "many.h5", (800, 4, 1, 2**16), (1, 4, 1, 2**16))
    said, size = peak_of(many)
    assert said == ""
    assert size < 300e6  # in memory it would be 839 MB, and twice that while it is loaded
    data = xr.load(many)
    assert isinstance(data.train, StreamedPairs)
    assert not check_data(many).summary["in_memory"]
    # A sweep holds no more than it is allowed to, and allocates nothing before it knows.
    settings: dict[str, Any] = OWN_DATA | {"data": str(many), "in_memory_gib": 0.5}
    config = xr.DataConfig(**settings)
    with pytest.raises(InputError, match=r"takes 838860800 bytes .* a sweep needs its data in memory; set in_memory"):
        pool_of(config).parts(config)


def test_a_sweep_holds_packed_data_that_its_memory_has_room_for(tmp_path, monkeypatch):
    """Fields of zeros with a few values: 33 times and more as large as their file, and far smaller than allowed."""
    u = np.zeros((9, 50, 1, 2**16), np.float32)
    u[..., ::4096] = np.random.default_rng(0).normal(size=(9, 50, 1, 16))
    path = tmp_path / "u.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=u, chunks=(1, 5, 1, 2**16), compression="gzip", shuffle=True)
    settings: dict[str, Any] = OWN_DATA | {"data": str(path), "train_size": 6, "reg_size": 1, "test_size": 2}
    config = xr.DataConfig(**settings)
    source = open_source(path)
    assert source.num_bytes > source.most_held  # a run streams it
    data = pool_of(config).data(config)
    part = split_source(source, config)["test"]
    np.testing.assert_array_equal(data.test.trajectories, u[list(part.samples)])
    monkeypatch.setattr("crossreg.files.memory.available_bytes", lambda: 2 * u.nbytes - 1)
    with pytest.raises(InputError, match=f"its splits would take {2 * u.nbytes} bytes"):
        Pool(source).parts(config)


def test_packed_data_that_vary_are_held_in_memory(tmp_path):
    u = fields(1, samples=9)
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_dataset("u", data=u, compression="gzip")
    assert isinstance(xr.load(tmp_path / "u.h5").train, Pairs)
    assert check_data(tmp_path / "u.h5").summary["in_memory"]


def test_a_field_or_a_coordinate_far_larger_than_its_file(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_dataset("u", (3, 2, 1, 2**25), "f4", chunks=(1, 1, 1, 1000))
    with pytest.raises(
        InputError, match=r"a step of its fields, 1 channels on \(33554432,\) points, would take 268435456"
    ):
        open_source(tmp_path / "u.h5")
    for name in ("c.h5", "c.nc"):
        with h5py.File(tmp_path / name, "w") as file:
            file["u"] = fields(1)
            file.create_dataset("x", (2**28,), "f8", chunks=(1000,))
        with pytest.raises(InputError, match="x: itself would take 2147483648 bytes"):
            open_source(tmp_path / name)


@pytest.mark.parametrize("count", [2**40, 7, -1])
def test_the_well_has_as_many_trajectories_as_its_fields(tmp_path, count):
    """Where no field varies over trajectories there is one, whatever the file says."""
    for varies in (False, True):
        with h5py.File(tmp_path / "u.h5", "w") as file:
            file.attrs["n_trajectories"] = count
            file.create_group("dimensions").attrs["spatial_dims"] = ["x"]
            u = fields(1, channels=1)[:, :, 0]
            file["t0_fields/u"] = u if varies else u[0]
            file["t0_fields/u"].attrs["sample_varying"] = varies
        with pytest.raises(
            InputError, match=rf"promises {count} trajectories, but its fields have \[{11 if varies else 1}\]"
        ):
            open_source(tmp_path / "u.h5")
