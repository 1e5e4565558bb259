"""Cars from folders: the four real ones, files in every layout, and what is refused."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest

from crossreg.data.cars.car_set import split_cars
from crossreg.data.cars.normals import estimate_normals
from crossreg.data.cars.readers import find_cars, load_cars
from crossreg.data.cars.surface import make_surface
from crossreg.errors import InputError

# The sizes of ShapeNet-Car's surface and of its pressure: 22 · 163 = 3586.
SHAPENET, SHAPENET_VALUES = (22, 163), 3682


def body(around: int, tube: int):
    """Vertices, quads and a pressure on a ring with a tube of its own width."""
    u, v = np.meshgrid(2 * np.pi * np.arange(around) / around, 2 * np.pi * np.arange(tube) / tube, indexing="ij")
    radius = 2 + np.cos(v)
    vertices = np.stack([radius * np.cos(u), np.sin(v), radius * np.sin(u)], axis=-1).reshape(-1, 3)
    number = np.arange(around * tube).reshape(around, tube)
    ahead = np.roll(number, -1, axis=0)
    quads = np.stack([number, ahead, np.roll(ahead, -1, axis=1), np.roll(number, -1, axis=1)], axis=-1).reshape(-1, 4)
    return vertices, quads, -35 + 40 * np.cos(vertices[:, 2])


def triangles(quads):
    return quads[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)


def ply(vertices, faces=None, *, text: bool = False) -> bytes:
    """A PLY file as Open3D writes it: double xyz, triangles of unsigned integers."""
    header = f"ply\nformat {'ascii' if text else 'binary_little_endian'} 1.0\nelement vertex {len(vertices)}\n"
    header += "".join(f"property double {axis}\n" for axis in "xyz")
    if faces is not None:
        header += f"element face {len(faces)}\nproperty list uchar uint vertex_indices\n"
    rows = [] if faces is None else faces
    if text:
        lines = [" ".join(map(repr, row)) for row in vertices.tolist()]
        lines += [" ".join(map(str, (len(row), *row))) for row in rows]
        return (header + "end_header\n" + "\n".join(lines) + "\n").encode()
    count = 3 if faces is None else faces.shape[1]
    packed = np.array([(count, row) for row in rows], dtype=[("count", "u1"), ("corners", "<u4", (count,))])
    return (header + "end_header\n").encode() + vertices.astype("<f8").tobytes() + packed.tobytes()


def vtk(vertices, quads) -> str:
    """A legacy VTK file of quads, as in the original release."""
    lines = [
        "# vtk DataFile Version 2.0",
        "car",
        "ASCII",
        "DATASET UNSTRUCTURED_GRID",
        f"POINTS {len(vertices)} double",
    ]
    lines += [" ".join(map(repr, row)) for row in vertices.tolist()]
    lines += [f"CELLS {len(quads)} {5 * len(quads)}", *(f"4 {' '.join(map(str, row))}" for row in quads)]
    return "\n".join([*lines, f"CELL_TYPES {len(quads)}", *["9"] * len(quads), ""])


def npy_promising(shape: tuple[int, ...]) -> bytes:
    """An NPY file whose header promises an array that it does not hold."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(80)


def write(path: Path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, np.ndarray):
        np.save(path, content)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_neuraloperator(folder: Path, sizes: dict[str, tuple[int, int]]) -> None:
    for name, size in sizes.items():
        vertices, quads, pressure = body(*size)
        write(folder / "data" / name / "tri_mesh.ply", ply(vertices, triangles(quads)))
        write(folder / "data" / name / "press.npy", pressure)


def check_body(surface, size: tuple[int, int], *, rtol: float = 1e-12) -> None:
    vertices, quads, pressure = body(*size)
    wanted = make_surface("wanted", vertices, pressure, quads)
    np.testing.assert_allclose(surface.vertices, wanted.vertices, rtol, atol=rtol)
    np.testing.assert_allclose(surface.pressure, wanted.pressure, rtol, atol=rtol)
    np.testing.assert_allclose(surface.normals, wanted.normals, rtol, atol=1e-9 + rtol)


# The real cars.


@pytest.mark.parametrize("inside", ["", "neuraloperator_mini"])
def test_the_real_cars_are_split_as_their_release_says(real_cars, inside):
    cars = find_cars(real_cars / inside)
    assert (cars.train, cars.test) == (("001", "002", "004"), ("005",))
    for seed in range(5):
        split = split_cars(cars, seed=seed)
        assert (len(split.train), len(split.reg), split.test) == (2, 1, ("005",))
        assert {*split.train, *split.reg} == {"001", "002", "004"}
        assert split.note == (
            f"{real_cars / 'neuraloperator_mini'} (neuraloperator): 4 cars, 1 of them its test part: too few for"
            " 30 train, 50 reg and 60 test, so split in proportion into 2 train, 1 reg and 1 test"
        )


def test_the_real_cars_are_what_is_known_of_them(real_cars, capsys):
    train, reg, test, note = load_cars(real_cars)
    assert note is not None
    for surface in (*train, *reg, *test):
        assert surface.vertices.shape == (3586, 3)
        assert surface.faces is not None
        assert surface.faces.shape == (7168, 3)
        raw = np.load(real_cars / "neuraloperator_mini" / "data" / surface.name / "press.npy")
        np.testing.assert_array_equal(surface.pressure, np.concatenate([raw[:16], raw[112:]]))
        # The flow comes to rest at the nose, which is at −z; y is up, x to the side.
        nose, rear = surface.vertices[:, 2] < -1.9, surface.vertices[:, 2] > 1.9
        assert surface.pressure[nose].max() > 100
        assert abs(surface.pressure[rear].mean() + 30) < 25
        assert surface.normals[nose & (surface.pressure > 100), 2].mean() < -0.7
        assert abs(surface.vertices[:, 0].mean()) < 0.02
        roofline = (np.abs(surface.vertices[:, 0]) < 0.01) & (surface.normals[:, 1] > 0.2)
        assert 58 <= roofline.sum() <= 66
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["001", "002"])
def test_normals_of_the_real_cars_are_the_references(real_cars, name):
    surface = find_cars(real_cars).read(name)
    with np.load(real_cars / "reference_transport.npz") as reference:
        np.testing.assert_array_equal(surface.vertices, reference[f"{name}_target"].astype(np.float64))
        np.testing.assert_allclose(surface.normals, reference[f"{name}_nor_t"], atol=1e-7)


@pytest.mark.parametrize("scaling", ["none", "unit cube"])
def test_normals_from_the_points_of_the_real_cars(real_cars, scaling):
    cars = find_cars(real_cars)
    for name in (*cars.train, *cars.test):
        surface = cars.read(name)
        scale = np.ones(3) if scaling == "none" else np.ptp(surface.vertices, axis=0)
        wanted = make_surface(name, surface.vertices / scale, surface.pressure, surface.faces).normals
        cosine = np.einsum("vi,vi->v", estimate_normals(surface.vertices / scale), wanted)
        assert np.mean(cosine > 0) >= 0.99
        assert np.degrees(np.arccos(cosine.clip(-1, 1))).mean() < 7


# The layouts.


def test_neuraloperator_layout(tmp_path):
    sizes = {"010": (9, 7), "002": (10, 8), "003": (11, 6), "9": (12, 5), "unlisted": (8, 7)}
    write_neuraloperator(tmp_path, sizes)
    cars = find_cars(tmp_path)
    assert (cars.train, cars.test) == (("002", "003", "010", "9", "unlisted"), ())
    write(tmp_path / "test.txt", "9\n")
    assert find_cars(tmp_path).train == ("002", "003", "010", "unlisted")
    write(tmp_path / "train.txt", "010, 002,003")
    cars = find_cars(tmp_path)
    assert (cars.train, cars.test) == (("002", "003", "010"), ("9",))
    for name in (*cars.train, *cars.test):
        check_body(cars.read(name), sizes[name])


def test_processed_layout_and_the_cut_of_its_pressure(tmp_path):
    vertices, quads, pressure = body(*SHAPENET)
    values = np.insert(pressure, 16, np.full(SHAPENET_VALUES - len(pressure), 1e3))
    assert len(values) == SHAPENET_VALUES
    for number in (7, 21, 3, 700):
        write(tmp_path / "data" / f"mesh_{number:03d}.ply", ply(vertices, triangles(quads)))
        write(tmp_path / "data" / f"press_{number:03d}.npy", values)
    write(tmp_path / "watertight_meshes.txt", "21\n3\n007\n")
    cars = find_cars(tmp_path)
    assert (cars.train, cars.test) == (("003", "007", "021"), ())
    check_body(cars.read("021"), SHAPENET)
    write(tmp_path / "train.txt", "021,7")  # numbers as people write them
    write(tmp_path / "test.txt", "3")
    assert (find_cars(tmp_path).train, find_cars(tmp_path).test) == (("007", "021"), ("003",))


def test_processed_layout_tests_on_what_follows_the_first_500(tmp_path):
    names = [f"{number:03d}" for number in np.random.default_rng(0).permutation(798)[:611]]
    for name in names:
        write(tmp_path / "data" / f"mesh_{name}.ply", "")
        write(tmp_path / "data" / f"press_{name}.npy", "")
    write(tmp_path / "watertight_meshes.txt", "\n".join(names))
    cars = find_cars(tmp_path)
    assert (cars.train, cars.test) == (tuple(sorted(names[:500])), tuple(sorted(names[500:])))


@pytest.mark.parametrize("inside", [".", "training_data"])
def test_original_layout(tmp_path, inside):
    sizes = {"param0/b2": (9, 7), "param0/a1": (10, 8), "param8/0f": (11, 6)}
    for name, size in sizes.items():
        vertices, quads, pressure = body(*size)
        # Points that no face uses stand between the others.
        vertices = np.insert(vertices, 16, np.zeros((5, 3)), axis=0)
        write(
            tmp_path / "training_data" / name / "quadpress_smpl.vtk",
            vtk(vertices, np.where(quads < 16, quads, quads + 5)),
        )
        write(tmp_path / "training_data" / name / "press.npy", np.insert(pressure, 16, np.full(5, 1e3)))
    (tmp_path / "training_data" / "param3" / "empty").mkdir(parents=True)
    write(tmp_path / "training_data" / "param0" / "list.txt", "a1")
    cars = find_cars(tmp_path / inside)
    assert (cars.train, cars.test) == (("param0/a1", "param0/b2", "param8/0f"), ())
    for name, size in sizes.items():
        check_body(cars.read(name), size)


@pytest.mark.parametrize("separator", [".", "/"])
def test_dinozaur_layout(tmp_path, separator):
    h5py = pytest.importorskip("h5py", reason="HDF5 files need h5py")
    sizes = {"train/car_2": (19, 12), "train/car_1": (20, 13), "test/car_2": (21, 11)}
    for name, size in sizes.items():
        vertices, _, pressure = body(*size)
        (tmp_path / f"{name}.h5").parent.mkdir(exist_ok=True)
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file[f"surface{separator}pressure"] = pressure[:, None]
            file[f"surface{separator}min_max_normalized_vertices"] = vertices
            file[f"surface{separator}min_max_normalized_sdf"] = np.zeros((4, 5, 6))
    cars = find_cars(tmp_path)
    assert (cars.train, cars.test) == (("train/car_1", "train/car_2"), ("test/car_2",))
    for name, size in sizes.items():
        surface = cars.read(name)
        vertices, quads, pressure = body(*size)
        np.testing.assert_array_equal(surface.vertices, vertices)
        np.testing.assert_array_equal(surface.pressure, pressure)
        assert surface.faces is None
        wanted = make_surface(name, vertices, pressure, quads).normals
        assert np.einsum("vi,vi->v", surface.normals, wanted).min() > 0.8


def test_npz_layout(tmp_path):
    vertices, quads, pressure = body(17, 12)
    np.savez(tmp_path / "c.npz", vertices=vertices, pressure=pressure, faces=quads)
    np.savez(tmp_path / "b.npz", vertices=vertices, pressure=pressure)
    np.savez_compressed(tmp_path / "a.npz", vertices=vertices, pressure=pressure, normals=-vertices, extra=np.ones(2))
    cars = find_cars(tmp_path)
    assert (cars.train, cars.test) == (("a", "b", "c"), ())
    check_body(cars.read("c"), (17, 12))
    assert cars.read("b").faces is None
    np.testing.assert_allclose(cars.read("a").normals, vertices / np.linalg.norm(vertices, axis=1, keepdims=True))
    write(tmp_path / "test.txt", "b")
    assert (find_cars(tmp_path).train, find_cars(tmp_path).test) == (("a", "c"), ("b",))


def test_ply_and_npy_layout(tmp_path):
    contents = {
        "text": lambda v, q: ply(v, q, text=True),
        "triangles": lambda v, q: ply(v, triangles(q)),
        "quads": ply,
        "points": lambda v, q: ply(v),
    }
    vertices, quads, pressure = body(17, 12)
    for name, content in contents.items():
        write(tmp_path / f"{name}.ply", content(vertices, quads))
        write(tmp_path / f"{name}.npy", pressure.astype(np.float32))
    cars = find_cars(tmp_path)
    assert cars.train == ("points", "quads", "text", "triangles")
    for name in ("quads", "text", "triangles"):
        check_body(cars.read(name), (17, 12), rtol=1e-6)
    assert cars.read("points").faces is None


# What is refused.


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "data/b/press.npy").unlink(), r"data/b/press\.npy: missing"),
        (lambda f: (f / "data/b/tri_mesh.ply").unlink(), r"data/b/tri_mesh\.ply: missing"),
        (lambda f: write(f / "train.txt", "a,z"), r"train\.txt: lists car z, whose files are missing"),
        (lambda f: write(f / "train.txt", "a,b,a"), r"train\.txt: lists car a more than once"),
        (lambda f: (write(f / "train.txt", "a,b"), write(f / "test.txt", "b")), "both list car b"),
        (lambda f: write(f / "train.txt", b"\xff\xfe\x81"), "not a text file"),
        (lambda f: write(f / "data/b/press.npy", np.ones(62)), "car b: 62 values of pressure for 63 vertices"),
        (lambda f: write(f / "data/b/press.npy", np.array(3.0)), r"car b: pressure has shape \(\); expected"),
        (lambda f: write(f / "data/b/press.npy", np.full(63, np.nan)), "car b: pressure not finite"),
        (lambda f: write(f / "data/b/press.npy", "text"), r"press\.npy: not a readable NPY array"),
        (lambda f: write(f / "data/b/press.npy", npy_promising((10**12,))), r"press\.npy: not a readable NPY array"),
        (lambda f: write(f / "data/b/press.npy", np.array([None] * 63)), r"press\.npy: not a readable NPY array"),
        (lambda f: write(f / "data/b/tri_mesh.ply", "text"), r"tri_mesh\.ply: not a readable PLY mesh"),
        (lambda f: write(f / "data/b/tri_mesh.ply", b""), r"tri_mesh\.ply: not a readable PLY mesh"),
        (
            lambda f: write(
                f / "data/b/tri_mesh.ply", ply(*body(9, 7)[:2]).replace(b"vertex 63", b"vertex 6300000000")
            ),
            r"tri_mesh\.ply: promises 6300000000 vertices and 63 faces, but has \d+ bytes",
        ),
        (lambda f: write(f / "data/b/tri_mesh.ply", ply(*body(9, 7)[:2])[:-9]), "faces, but ends before them"),
        (
            lambda f: write(f / "data/b/tri_mesh.ply", b"\n".join(ply(*body(9, 7)[:2], text=True).split(b"\n")[:-9])),
            r"tri_mesh\.ply: promises 63 vertices and 63 faces, but ends before them",
        ),
        (
            lambda f: write(f / "data/b/tri_mesh.ply", ply(body(9, 7)[0], body(9, 7)[1] + 1)),
            "car b: a face has vertex 63; there are 63 vertices",
        ),
    ],
)
def test_damaged_files_are_named(tmp_path, damage, message):
    write_neuraloperator(tmp_path, {"a": (10, 8), "b": (9, 7), "c": (8, 6)})
    damage(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        load_cars(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_mesh_with_unused_vertices_names_both_counts(tmp_path):
    vertices, quads, pressure = body(9, 7)
    write(tmp_path / "a.ply", ply(np.insert(vertices, 63, np.zeros((4, 3)), axis=0), triangles(quads)))
    write(tmp_path / "a.npy", np.append(pressure, np.zeros(4)))
    with pytest.raises(InputError, match="car a: 67 vertices, but the faces use only 63 of them"):
        find_cars(tmp_path).read("a")
    write(tmp_path / "drag.npy", np.ones(3))
    with pytest.raises(InputError, match=r"drag\.ply: missing"):
        find_cars(tmp_path)


def test_damaged_npz_files(tmp_path):
    vertices, _, pressure = body(9, 7)
    np.savez(tmp_path / "a.npz", points=vertices, pressure=pressure)
    with pytest.raises(InputError, match=r"a\.npz: has no vertices; it has points, pressure"):
        find_cars(tmp_path).read("a")
    write(tmp_path / "a.npz", "text")
    with pytest.raises(InputError, match=r"a\.npz: not a readable NPZ archive"):
        find_cars(tmp_path).read("a")
    write(tmp_path / "b.ply", ply(vertices))
    with pytest.raises(InputError, match="both NPZ and PLY files"):
        find_cars(tmp_path)


def test_damaged_hdf5_files(tmp_path):
    h5py = pytest.importorskip("h5py", reason="HDF5 files need h5py")
    write(tmp_path / "train" / "a.h5", "version https://git-lfs.github.com/spec/v1")
    with pytest.raises(InputError, match=r"a\.h5: not a readable HDF5 file"):
        find_cars(tmp_path).read("train/a")
    with h5py.File(tmp_path / "train" / "a.h5", "w") as file:
        file["surface.pressure"] = np.ones((4, 1))
    with pytest.raises(InputError, match=r"no dataset surface\.min_max_normalized_vertices; it has surface\.pressure"):
        find_cars(tmp_path).read("train/a")
    with h5py.File(tmp_path / "train" / "a.h5", "w") as file:
        file.create_dataset("surface.min_max_normalized_vertices", shape=(10**9, 3), dtype="f8")
    with pytest.raises(InputError, match=r"has shape \(1000000000, 3\); expected at most 5000000 points"):
        find_cars(tmp_path).read("train/a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text", "not a readable VTK mesh"),
        (vtk(*body(9, 7)[:2]).replace("POINTS 63", "POINTS 63000000000"), "POINTS promises 189000000000 numbers"),
        (vtk(*body(9, 7)[:2])[:900], "POINTS promises 189 numbers, but has"),
        (vtk(body(9, 7)[0], body(9, 7)[1] + 1), r"smpl\.vtk: a face has vertex 63; there are 63 vertices"),
        (vtk(*body(9, 8)[:2]), "car param1/a: 63 values of pressure for 72 vertices"),
    ],
)
def test_damaged_vtk_files(tmp_path, content, message, capfd):
    write(tmp_path / "param1" / "a" / "quadpress_smpl.vtk", content)
    write(tmp_path / "param1" / "a" / "press.npy", body(9, 7)[2])
    with pytest.raises(InputError, match=message):
        find_cars(tmp_path).read("param1/a")
    assert capfd.readouterr().err == ""
    (tmp_path / "param1" / "a" / "press.npy").unlink()
    with pytest.raises(InputError, match=r"press\.npy: missing"):
        find_cars(tmp_path)


def test_a_package_that_is_not_installed_is_named(tmp_path, monkeypatch):
    write(tmp_path / "train" / "a.h5", "")
    monkeypatch.setitem(sys.modules, "h5py", None)
    cars = find_cars(tmp_path)
    with pytest.raises(InputError, match="needs the package h5py, which is not installed"):
        cars.read(cars.train[0])


def test_folders_without_cars(tmp_path):
    with pytest.raises(InputError, match="nowhere: missing; expected a folder of cars"):
        find_cars(tmp_path / "nowhere")
    write(tmp_path / "file.txt", "text")
    with pytest.raises(InputError, match=r"file\.txt: not a folder"):
        find_cars(tmp_path / "file.txt")
    with pytest.raises(InputError, match="no cars found; expected") as caught:
        find_cars(tmp_path)
    for layout in (
        "neuraloperator",
        "processed ShapeNet-Car",
        "original ShapeNet-Car",
        "DINOZAUR",
        "npz",
        "<name>.ply",
    ):
        assert layout in str(caught.value)
    write(tmp_path / "data" / "mesh_001.ply", ply(body(9, 7)[0]))
    with pytest.raises(InputError, match=r"watertight_meshes\.txt: missing"):
        find_cars(tmp_path)


def test_of_several_data_sets_one_must_be_named(tmp_path):
    write_neuraloperator(tmp_path / "first", {"a": (9, 7)})
    assert find_cars(tmp_path).train == ("a",)
    write(tmp_path / "second" / "train" / "a.h5", "")
    with pytest.raises(InputError, match="several sets of cars, first, second; name one of them"):
        find_cars(tmp_path)
