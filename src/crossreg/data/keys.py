"""Constants that keep random streams apart.

All randomness of a run follows from a few seeds. Each use folds its own constant into the key
first, so that no two uses share a key even where the seeds are equal (in JAX,
`split(key)[i]` is `fold_in(key, i)`: small numbers would collide).
"""

MODEL_STREAM = 0x6D6F64
TRAIN_STREAM = 0x747261
REG_STREAM = 0x726567
MASK_STREAM = 0x6D6173
MEMBER_STREAM = 0x6D656D
EVALUATION_STREAM = 0x657661
