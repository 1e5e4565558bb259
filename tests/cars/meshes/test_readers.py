"""Cars from folders: four as they were released, and files in every layout."""

import numpy as np
import pytest

from car_files import SHAPENET, SHAPENET_VALUES, body, check_body, ply, triangles, vtk, write, write_neuraloperator
from crossreg.cars.meshes.car_set import split_cars
from crossreg.cars.meshes.normals import estimate_normals, vertex_normals
from crossreg.cars.meshes.readers import find_cars, load_cars, read_geometries
from crossreg.cars.meshes.surface import make_surface
from crossreg.errors import InputError

# The released cars, real or made up.


@pytest.mark.parametrize("inside", ["", "neuraloperator_mini"])
def test_released_cars_are_split_as_their_release_says(released_cars, inside):
    cars = find_cars(released_cars / inside)
    assert (cars.train, cars.test) == (("001", "002", "004"), ("005",))
    for seed in range(5):
        split = split_cars(cars, seed=seed)
        assert (len(split.train), len(split.reg), split.test) == (2, 1, ("005",))
        assert {*split.train, *split.reg} == {"001", "002", "004"}
        assert split.note == (
            f"{released_cars / 'neuraloperator_mini'} (neuraloperator): 4 cars, 1 of them its test part: too few for"
            " 30 train, 50 reg and 60 test, so split in proportion into 2 train, 1 reg and 1 test"
        )


def test_released_cars_are_what_is_known_of_them(released_cars, capsys):
    train, reg, test, note = load_cars(released_cars)
    assert note is not None
    everywhere = np.concatenate([surface.pressure for surface in (*train, *reg, *test)])
    assert abs(everywhere.mean() + 35) < 3
    assert abs(everywhere.std() - 46) < 3
    for surface in (*train, *reg, *test):
        assert surface.vertices.shape == (3586, 3)
        assert surface.faces is not None
        assert surface.faces.shape == (7168, 3)
        raw = np.load(released_cars / "neuraloperator_mini" / "data" / surface.name / "press.npy")
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


def test_normals_of_the_real_cars_are_the_references(reference):
    np.testing.assert_array_equal(reference.vertices[reference.encode], reference.positions.astype(np.float64))
    normals = vertex_normals(reference.vertices, reference.faces)[reference.rows]
    np.testing.assert_allclose(normals, reference.normals, atol=1e-7)


@pytest.mark.parametrize("scaling", ["none", "unit cube"])
def test_normals_from_the_points_of_released_cars(released_cars, scaling):
    cars = find_cars(released_cars)
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


@pytest.mark.parametrize("listed", ["train", "test"])
def test_cars_that_one_list_leaves_out_are_the_other_part(tmp_path, listed):
    names = ("001", "002", "003", "004")
    for name in names:
        write(tmp_path / "data" / f"mesh_{name}.ply", "")
        write(tmp_path / "data" / f"press_{name}.npy", "")
    write(tmp_path / "watertight_meshes.txt", "\n".join(names))
    write(tmp_path / f"{listed}.txt", "4 1")
    cars = find_cars(tmp_path)
    parts = (("001", "004"), ("002", "003"))
    assert (cars.train, cars.test) == (parts if listed == "train" else parts[::-1])


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
    around = np.hypot(vertices[:, 0], vertices[:, 2])
    normals = vertices - 2 * np.stack([vertices[:, 0] / around, 0 * around, vertices[:, 2] / around], axis=1)
    np.savez_compressed(
        tmp_path / "a.npz", vertices=vertices, pressure=pressure, normals=-3 * normals, extra=np.ones(2)
    )
    cars = find_cars(tmp_path)
    assert (cars.train, cars.test) == (("a", "b", "c"), ())
    check_body(cars.read("c"), (17, 12))
    assert cars.read("b").faces is None
    np.testing.assert_allclose(cars.read("a").normals, normals, atol=1e-12)
    write(tmp_path / "test.txt", "b")
    assert (find_cars(tmp_path).train, find_cars(tmp_path).test) == (("a", "c"), ("b",))


def test_the_cars_that_are_read_are_those_of_the_split_by_its_seed(tmp_path):
    vertices, _, pressure = body(9, 8)
    for number in range(8):
        np.savez(tmp_path / f"car{number}.npz", vertices=vertices, pressure=pressure + number)
    sizes = {"train_size": 2, "reg_size": 3, "test_size": 3}
    drawn = []
    for seed in range(3):
        cars = load_cars(tmp_path, **sizes, seed=seed)
        drawn.append([[car.name for car in part] for part in cars[:3]])
        split = split_cars(find_cars(tmp_path), **sizes, seed=seed)
        assert drawn[-1] == [[*split.train], [*split.reg], [*split.test]]
        for car in (*cars.train, *cars.reg, *cars.test):
            np.testing.assert_allclose(car.pressure, pressure + int(car.name[-1]))
    assert drawn[0] != drawn[1] != drawn[2]


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


def test_a_set_may_stand_two_folders_below(tmp_path):
    """As DINOZAUR's does in its repository."""
    write(tmp_path / "data" / "shapenetcar" / "train" / "b.h5", "")
    write(tmp_path / "data" / "shapenetcar" / "test" / "a.h5", "")
    assert (find_cars(tmp_path).train, find_cars(tmp_path).test) == (("train/b",), ("test/a",))
    write(tmp_path / "data" / "other" / "train" / "b.h5", "")
    with pytest.raises(InputError, match="holds several sets of cars, data/other, data/shapenetcar; name one"):
        find_cars(tmp_path)


def test_geometries_need_no_pressure(tmp_path):
    vertices, quads, _ = body(9, 7)
    inside = np.concatenate([vertices[:5] / 2, vertices])
    write(tmp_path / "b.ply", ply(vertices, triangles(quads)))
    write(tmp_path / "c.vtk", vtk(inside, quads + 5))
    np.savez(tmp_path / "a.npz", vertices=vertices)
    cars = read_geometries(tmp_path)
    assert [car.name for car in cars] == ["a", "b", "c"]
    for car in cars:
        np.testing.assert_allclose(car.vertices, vertices)
        assert not car.pressure.any()
    np.testing.assert_allclose(cars[1].normals, cars[2].normals)
    assert read_geometries(tmp_path / "b.ply")[0].name == "b"
    write(tmp_path / "d.stl", "")
    with pytest.raises(InputError, match=r"d\.stl: expected a car as \.npz, \.ply, \.vtk, or a folder of cars"):
        read_geometries(tmp_path / "d.stl")
