"""From trajectories to pairs: sources, their division into train, reg and test, observation masks, and batches.

    load.py          load: any source, a scenario, files or arrays, to `Data`
    apebench.py      APEBench scenarios, through cache.py
    trajectories.py  trajectories in memory, which checks.py checks and split.py divides
    observation.py   where masks are drawn and applied (to new fields, when a run predicts: `runs/prediction.py`; to
                     what a rollout reads: `forecasts/particles.py`)
    pairs.py         the pairs of a split; batches
    dataset.py       Data: the three splits of a run, and the calibration part of reg
    units.py         units of a user's fields (undone after the network: `predictive/in_units.py`)
    keys.py          constants that keep random streams apart
    formats/         one module per file format; where a new format is added
    files/           your files, divided into splits: in memory, shared by a sweep, or read while training

May import the packages before it (`crossreg/__init__.py` has the order).
"""

from typing import TYPE_CHECKING

from crossreg.lazy import public_names

if TYPE_CHECKING:
    from crossreg.data.apebench import load_trajectories as load_trajectories
    from crossreg.data.dataset import Data as Data
    from crossreg.data.load import make_data as make_data
    from crossreg.data.pairs import Batch as Batch
    from crossreg.data.pairs import Pairs as Pairs
    from crossreg.data.trajectories import Trajectories as Trajectories

__getattr__, __dir__, __all__ = public_names(
    __name__,
    {
        "apebench": ["load_trajectories"],
        "dataset": ["Data"],
        "load": ["make_data"],
        "pairs": ["Batch", "Pairs"],
        "trajectories": ["Trajectories"],
    },
)
