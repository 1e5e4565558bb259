"""The methods that are compared.

A trained method is a change of a config: where noise acts, on which split its size is learned, and how many samples
training draws. All methods use the same training loop and predict the same kind of mixture.

`names.py` is the only registry, where a baseline is added: it turns a name such as `dropout-0.2+temperature` into a
`Method`. `xreg.py`, `unregularized.py`, `dropout.py`, `fixed_noise.py` and `train_noise.py` hold the changes of the
config, `early.py` the trained replica with its early-stopped state, and `readout.py` turns trained replicas into a
predictor.

May import the packages before it (`crossreg/__init__.py` has the order).
"""

from typing import TYPE_CHECKING

from crossreg.lazy import public_names

if TYPE_CHECKING:
    from crossreg.methods.names import Method as Method
    from crossreg.methods.names import config_of as config_of
    from crossreg.methods.names import parse_method as parse_method
    from crossreg.predictors.conformal import fit_conformal as fit_conformal
    from crossreg.predictors.correlation import fit_correlation as fit_correlation
    from crossreg.predictors.ensemble import EnsemblePredictor as EnsemblePredictor
    from crossreg.predictors.persistence import fit_persistence as fit_persistence
    from crossreg.predictors.predictor import Predictor as Predictor
    from crossreg.predictors.temperature import fit_temperature as fit_temperature

__getattr__, __dir__, __all__ = public_names(
    __name__,
    {
        "crossreg.predictors.conformal": ["fit_conformal"],
        "crossreg.predictors.correlation": ["fit_correlation"],
        "crossreg.predictors.ensemble": ["EnsemblePredictor"],
        "crossreg.predictors.persistence": ["fit_persistence"],
        "crossreg.predictors.predictor": ["Predictor"],
        "crossreg.predictors.temperature": ["fit_temperature"],
        "names": ["Method", "config_of", "parse_method"],
    },
)
