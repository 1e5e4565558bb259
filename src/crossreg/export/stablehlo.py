"""A program as a `jax.export` artefact: StableHLO for several platforms, the batch's size left open."""

import jax
from jax import export

from crossreg.export.program import Program

PLATFORMS = ("cpu", "cuda", "tpu")


def to_stablehlo(program: Program) -> bytearray:
    """The serialized artefact; `jax.export.deserialize(…).call(fields)` runs it."""
    [batch] = export.symbolic_shape("batch")
    return export.export(jax.jit(program.function), platforms=PLATFORMS)(*program.batched(batch)).serialize()
