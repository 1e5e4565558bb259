"""The names of an FNO's noise sites. No JAX here: configs check names against it."""


def site_names(num_blocks: int) -> tuple[str, ...]:
    """The feature sites, from the input to the heads: after the GELU of blocks 1 … L−1, before the GELU of block L
    and after it."""
    return (*(f"block{i}" for i in range(1, num_blocks)), f"block{num_blocks}_pre", "pre_head")


def mode_site_names(num_blocks: int) -> tuple[str, ...]:
    """The sites on Fourier modes, one in each block."""
    return tuple(f"modes{i}" for i in range(1, num_blocks + 1))
