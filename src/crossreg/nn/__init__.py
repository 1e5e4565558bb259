"""Networks: noise sites, layers and heads, and the surrogates that are built from them.

- `groups.py`: the types `Psi` and `Rho`, which say what group a parameter is in: θ, ψ or ρ.
- `bounds.py`, `noise.py`: bounded log σ, and the noise sites that multiply features by 1 + σε.
- `pointwise.py`, `spectral.py`, `heads.py`: the layers.
- `growth.py`: how error bars grow by lead.
- `surrogate.py`: `Surrogate`, and `predict`, which samples it.
- `fourier.py`, `backbone.py`, `build.py`: a Fourier neural operator; any module with noise; models from a config.
- `kernels/`: the speed layer.

May import the packages before it (`crossreg/__init__.py` has the order).
"""

from typing import TYPE_CHECKING

from crossreg.lazy import public_names

if TYPE_CHECKING:
    from crossreg.nn.backbone import cross_regularize as cross_regularize
    from crossreg.nn.build import build_model as build_model
    from crossreg.nn.fourier import fno as fno
    from crossreg.nn.groups import Psi as Psi
    from crossreg.nn.groups import Rho as Rho
    from crossreg.nn.heads import Heads as Heads
    from crossreg.nn.heads import make_heads as make_heads
    from crossreg.nn.noise import AbstractNoise as AbstractNoise
    from crossreg.nn.noise import Dropout as Dropout
    from crossreg.nn.noise import GaussianNoise as GaussianNoise
    from crossreg.nn.noise import gaussian_noise as gaussian_noise
    from crossreg.nn.surrogate import Surrogate as Surrogate
    from crossreg.nn.surrogate import predict as predict

__getattr__, __dir__, __all__ = public_names(
    __name__,
    {
        "backbone": ["cross_regularize"],
        "build": ["build_model"],
        "fourier": ["fno"],
        "groups": ["Psi", "Rho"],
        "heads": ["Heads", "make_heads"],
        "noise": ["AbstractNoise", "Dropout", "GaussianNoise", "gaussian_noise"],
        "surrogate": ["Surrogate", "predict"],
    },
)
