"""Names of an FNO's noise sites, against which configs check theirs. Does not import JAX."""


def site_names(num_blocks: int) -> tuple[str, ...]:
    """Return the feature sites from the input to the heads.

    They are after the GELU of blocks 1 … L−1, before the GELU of block L, and after it.
    """
    return (*(f"block{i}" for i in range(1, num_blocks)), f"block{num_blocks}_pre", "pre_head")


def mode_site_names(num_blocks: int) -> tuple[str, ...]:
    """Return the sites on Fourier modes, one in each block."""
    return tuple(f"modes{i}" for i in range(1, num_blocks + 1))
