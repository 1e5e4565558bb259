"""A program as a `jax.export` artefact: StableHLO for several platforms, for batches of any size."""

import contextlib
from collections.abc import Iterator

import jax
from jax import export

from crossreg.export.program import ExportedFunction

PLATFORMS = ("cpu", "cuda", "tpu")


def to_stablehlo(program: ExportedFunction) -> bytearray:
    """Return the serialized artefact, which `jax.export.deserialize(…).call(fields)` runs."""
    [batch] = export.symbolic_shape("batch")
    with _without_source_locations():
        return export.export(jax.jit(program.function), platforms=PLATFORMS)(*program.batched(batch)).serialize()


@contextlib.contextmanager
def _without_source_locations() -> Iterator[None]:
    """Leave out the source location of each operation, which contains paths of this machine."""
    name = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, name)
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)
