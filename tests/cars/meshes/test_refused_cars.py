"""Folders and files of cars that are refused, each with a line."""

import numpy as np
import pytest

from car_files import body, npy_promising, ply, triangles, vtk, write, write_neuraloperator
from crossreg.cars.meshes.readers import find_cars, load_cars
from crossreg.errors import InputError


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "data/b/press.npy").unlink(), r"data/b/press\.npy: missing"),
        (lambda f: (f / "data/b/tri_mesh.ply").unlink(), r"data/b/tri_mesh\.ply: missing"),
        (lambda f: write(f / "train.txt", "a,z"), r"train\.txt: lists car z, whose files are missing"),
        (lambda f: write(f / "train.txt", "a,b,a"), r"train\.txt: lists car a more than once"),
        (lambda f: (write(f / "train.txt", "a,b"), write(f / "test.txt", "b")), "both list car b"),
        (lambda f: write(f / "train.txt", b"\xff\xfe\x81"), "not a text file"),
        (lambda f: write(f / "data/b/press.npy", np.ones(62)), "car b: 62 pressure values for 63 vertices"),
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
        (vtk(*body(9, 8)[:2]), "car param1/a: 63 pressure values for 72 vertices"),
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
    with pytest.raises(InputError, match="holds several sets of cars, first, second; name one of them"):
        find_cars(tmp_path)
