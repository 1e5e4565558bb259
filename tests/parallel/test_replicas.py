"""Replicas over devices: the numbers are those of one device, and nothing of what fills the devices up is seen."""

import numpy as np
import pytest
from processes import HERE, finish

from crossreg.cli.main import main


@pytest.fixture(scope="module")
def found(start, tmp_path_factory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("replicas")
    finish(start(4, HERE / "replicas.py", folder))
    return dict(np.load(folder / "results.npz"))


def part(found: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in found.items() if name.startswith(prefix)}


@pytest.mark.parametrize(("devices", "used"), [(2, 2), (4, 3)])
def test_the_numbers_are_those_of_one_device(found, devices, used):
    """Three replicas: on two devices one is filled up, of four one is idle."""
    assert found[f"{devices}/used"] == used
    for kind in ("models/", "record/", "snapshot/"):
        alone, divided = part(found, f"1/{kind}"), part(found, f"{devices}/{kind}")
        assert alone.keys() == divided.keys()
        assert len(alone) > 3
        for name, array in alone.items():
            assert divided[name].shape == array.shape, name
            np.testing.assert_allclose(divided[name], array, rtol=2e-4, atol=2e-5, err_msg=name)


def test_what_fills_a_device_up_is_not_counted(found):
    assert found["diverged"].tolist() == [-1, -1, 1, 1]


def test_a_resume_on_as_many_devices_has_the_same_bits(found):
    assert 0 < found["begun_at"] < 12
    whole, resumed = part(found, "2/snapshot/"), part(found, "resumed/snapshot/")
    for name, array in whole.items():
        np.testing.assert_array_equal(resumed[name], array, err_msg=name)


def test_a_resume_on_other_devices_is_refused_unless_forced(found):
    assert "number of devices in use: was 2, is 1" in str(found["refused"])
    assert "`force_resume`" in str(found["refused"])


def test_more_devices_than_there_are_are_refused(found, tmp_path, capsys):
    assert str(found["too many"]) == "devices is 5: there are 4 on this machine (cpu)"
    assert main(["sweep", "paper", "--out", str(tmp_path / "a"), "--devices", "2"]) == 2
    assert capsys.readouterr().err == "crossreg: --devices 2: there is 1 on this machine (cpu)\n"
