"""A trained model as files that need nothing of this package.

write       `export_run` and `export_model`: make the files, check them, write all of them or none
subject     a surrogate in memory, brought into the form of a run
program     the run as one deterministic function of its fields; folding computes its constants
stablehlo   the function as a `jax.export` artefact
onnx_graph  the function as an ONNX model; onnx_rules has the nodes for each operation of JAX
tensors     the trained arrays as safetensors, and a surrogate read back from them
check       run the written programs, and compare them with `crossreg predict`
readme      the README of an exported folder; examples/ holds the servers copied into it

May import the packages before it (`crossreg/__init__.py` has the order).
"""

from typing import TYPE_CHECKING

from crossreg.lazy import public_names

if TYPE_CHECKING:
    from crossreg.export.tensors import read_model as read_model
    from crossreg.export.write import export_model as export_model
    from crossreg.export.write import export_run as export_run

__getattr__, __dir__, __all__ = public_names(
    __name__,
    {
        "tensors": ["read_model"],
        "write": ["export_model", "export_run"],
    },
)
