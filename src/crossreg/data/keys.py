"""Constants that keep random streams apart.

All randomness of a run follows from a few seeds. Each use folds its own constant into the key
first, so that no two uses share a key even where the seeds are equal (in JAX,
`split(key)[i]` is `fold_in(key, i)`: small numbers would collide).
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
    """The key of the noise an evaluation draws: none that training draws from."""
    return jax.random.fold_in(jax.random.key(seed), EVALUATION_STREAM)


def calibration_key() -> PRNGKeyArray:
    """The key of the noise that a wrapper calibrates under: none that an evaluation draws."""
    return jax.random.fold_in(evaluation_key(0), EVALUATION_STREAM)
