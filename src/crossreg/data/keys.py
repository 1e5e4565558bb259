"""Constants that keep random streams apart.

All randomness of a run follows from a few seeds. Each use first folds a constant of its own into the key, so that no
two uses share a key even where their seeds are equal. (In JAX, `split(key)[i]` is `fold_in(key, i)`: small numbers
would collide.)
"""

import jax
from jaxtyping import PRNGKeyArray

MODEL_STREAM = 0x6D6F64
TRAIN_STREAM = 0x747261
REG_STREAM = 0x726567
MASK_STREAM = 0x6D6173
MEMBER_STREAM = 0x6D656D
EVALUATION_STREAM = 0x657661


def evaluation_key(seed: int) -> PRNGKeyArray:
    """Return the key of an evaluation's noise, which training does not draw from."""
    return jax.random.fold_in(jax.random.key(seed), EVALUATION_STREAM)


def calibration_key() -> PRNGKeyArray:
    """Return the key of the noise that a wrapper is calibrated under, which no evaluation draws from."""
    return jax.random.fold_in(evaluation_key(0), EVALUATION_STREAM)
