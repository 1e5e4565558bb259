"""What `benchmarks/ceilings.py` counts, against programs whose work is known."""

import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def count():
    sys.path.insert(0, str(BENCHMARKS))
    yield runpy.run_path(str(BENCHMARKS / "ceilings.py"))
    sys.path.remove(str(BENCHMARKS))


def test_operations_are_those_of_products_however_deep(count):
    def program(a, b, many):
        once = jnp.einsum("ij,jk->ik", a, b)
        turns, _ = jax.lax.scan(lambda x, _: (jax.jit(jnp.matmul)(x, b @ b.T), None), once @ b.T, length=6)
        return jnp.sum(turns), jax.vmap(lambda m: m @ b)(many)

    a, b, many = jnp.ones((3, 5)), jnp.ones((5, 7)), jnp.ones((11, 2, 5))
    known = 2 * 3 * 5 * 7 + 2 * 3 * 7 * 5 + 6 * (2 * 5 * 7 * 5 + 2 * 3 * 5 * 5) + 11 * 2 * 2 * 5 * 7
    assert count["product_operations"](jax.make_jaxpr(program)(a, b, many).jaxpr) == known


def test_bytes_are_those_of_every_array_once(count):
    x, y = jnp.ones((1000, 3)), jnp.ones((1000, 3), jnp.int16)
    text = jax.jit(lambda x, y: jnp.sin(x + 2 * y) * x).lower(x, y).compile().as_text()
    assert count["kernel_bytes"](text) == x.nbytes + y.nbytes + x.nbytes


def test_a_graph_of_kernels_counts_and_a_fusion_is_one(count):
    """As a GPU's compiler writes it: kernels in a computation that the program calls, in a tuple, asynchronous."""
    text = """HloModule jit_f

%fused_add (p: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  ROOT %inner = f32[8,4]{1,0} add(%p, %p)
}

%command_buffer (q: f32[8,4]) -> (f32[8,4], bf16[16]) {
  %q = f32[8,4]{1,0} parameter(0)
  %sum = f32[8,4]{1,0} fusion(%q), kind=kLoop, calls=%fused_add
  %both = (f32[8,4]{1,0}, bf16[16]{0}) custom-call(%sum, %q), custom_call_target="kernel"
  %left = f32[8,4]{1,0} get-tuple-element(%both), index=0
  ROOT %all = (f32[8,4]{1,0}, bf16[16]{0}) tuple(%left, %both)
}

ENTRY %main (x: f32[8,4]) -> (f32[8,4], bf16[16]) {
  %x = f32[8,4]{1,0} parameter(0)
  ROOT %call = (f32[8,4]{1,0}, bf16[16]{0}) call(%x), to_apply=%command_buffer
}
"""
    field, short = 8 * 4 * 4, 16 * 2
    assert count["kernel_bytes"](text) == (field + field) + (field + field + field + short)
