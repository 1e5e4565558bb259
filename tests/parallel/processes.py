"""What the tests of this folder know of the processes that they start."""

import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def finish(process: subprocess.Popen, code: int = 0) -> tuple[str, str]:
    """What a process says, once it has ended as it should."""
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err
    return out, err
