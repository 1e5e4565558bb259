"""The speed layer: faster ways to values and gradients that plain JAX computes too.

`paths.py` names these ways; `draws.py` has keys and normal numbers at little cost; `gelu.py` and `products.py` have
pointwise work and matrix products with gradients written out; `pending.py` has fields whose pointwise work is put off
until a later stage takes it in; `fused.py` has kernels for a GPU. Other packages import the names below from here, and
nothing from the modules. The modules import nothing else of `crossreg`.
"""

from crossreg.nn.kernels.draws import fold_in as fold_in
from crossreg.nn.kernels.draws import normal as normal
from crossreg.nn.kernels.paths import TRAINING_PRECISION as TRAINING_PRECISION
from crossreg.nn.kernels.paths import ComputePath as ComputePath
from crossreg.nn.kernels.pending import BatchedStage as BatchedStage
from crossreg.nn.kernels.pending import Pending as Pending
from crossreg.nn.kernels.products import mix_channels as mix_channels
from crossreg.nn.kernels.products import mix_modes as mix_modes
from crossreg.nn.kernels.products import mix_modes_in_reverse as mix_modes_in_reverse
