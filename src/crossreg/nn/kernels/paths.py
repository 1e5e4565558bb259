"""The ways in which a model's samples are computed, and the precision of matrix products in training."""

from typing import Literal

# `plain` is JAX throughout and can be differentiated in any way. The others are for gradients in reverse mode only:
# `reverse` has gradients written out where JAX's own are slow; `kernels` has fused kernels for a GPU; `noise kernels`
# has them with the gradients of the noise alone, without those of the weights.
ComputePath = Literal["plain", "reverse", "kernels", "noise kernels"]
# In training, a GPU rounds the factors of matrix products to TF32, as its kernels do; a CPU does not. Predictions and
# scores have full float32.
TRAINING_PRECISION = "tensorfloat32"
