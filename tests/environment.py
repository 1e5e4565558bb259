"""Where compiled programs and real data are kept, and how programs are compiled. To be imported before JAX."""

import os
from importlib.metadata import version
from pathlib import Path

_KEPT = Path(__file__).parents[1] / ".venv" / "test-cache"
os.environ["CROSSREG_CACHE"] = str(_KEPT / "data")
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_KEPT / "jax")
# Small programs, too: each file of tests and each process meets the same hundreds again.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
# Programs here run for milliseconds: what counts is how soon they are compiled. The last two take a training's program
# from 4.0 to 1.7 seconds of CPU time: one piece of code instead of many, and the older way to write fusions, which
# newer versions no longer have (and XLA ends a process that asks for what it does not know).
_QUICK = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
    _QUICK.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(_QUICK))
