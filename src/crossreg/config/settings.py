"""The settings of a run in three groups, as frozen dataclasses: data, model and training.

They are the one source of the Python API, the flags of the command line and the stored YAML: the text after a field is
its help text too. Does not import JAX.
"""

from dataclasses import dataclass
from typing import Any, Literal

from crossreg.config.field_types import check, check_fields, check_seed
from crossreg.config.sites import site_names

FeatureNoise = Literal["none", "generalization", "predictive", "both", "dropout"]
RegObjective = Literal["fair", "moment-matched", "mixture", "crps", "scaled-crps"]
ModeNoise = Literal["none", "generalization", "predictive", "both"]
MaskPer = Literal["run", "trajectory", "pair", "step"]

_MOST_BLOCKS = 1000


def _known(size: int | None) -> int:
    if size is None:
        raise ValueError("the sizes of files are known once they are opened: see `resolved` in `data/files/load.py`")
    return size


@dataclass(frozen=True)
class DataConfig:
    """Which trajectories are used, how they are split, and what the model sees of them."""

    data: str | None = None
    """Your data in place of a scenario: an NPY, NPZ, HDF5, NetCDF or Zarr file, or a folder of such files."""
    field: str | None = None
    """Your data: the array to use, or several, as in u,v, which become channels."""
    axes: str | None = None
    """Your data: a letter per axis, b sample, t time, c channel, x y z space; by default btc and then space."""
    split: Literal["trajectory", "time"] = "trajectory"
    """Your data: divide the trajectories among the splits, or the times of each, with sizes in steps."""
    split_seed: int = 0
    """Your data: seed of the division of trajectories."""
    time_stride: int = 1
    """Your data: use every n-th time, so that a step is n of the file's."""
    in_memory_gib: float = 1.0
    """Your data: above this size, in GiB, data stay in their files, and batches are read during training."""
    scenario: str = "diff_ks"
    """Name of an APEBench scenario; for your data, the name of their file."""
    num_spatial_dims: int | None = None
    """Dimensions of the scenario; by default the scenario's own."""
    num_points: int | None = None
    """Grid points per dimension; by default the scenario's own."""
    train_size: int | None = 50
    """Training trajectories, the first ones of the train pool (at most 70); by default 70% of your data."""
    reg_size: int | None = 50
    """Regularization trajectories, the first ones of the reg pool (at most 50); by default 10% of your data. 0: none,
    for methods that use none."""
    one_pool: bool = False
    """Take train and reg trajectories from one pool of 150, train first, so that both together are all the data."""
    test_size: int | None = 30
    """Test trajectories, the first ones of APEBench's own test set (at most 30); by default 20% of your data."""
    train_horizon: int | None = 10
    """Steps (one-step pairs) of each train and reg trajectory; by default all of your data."""
    test_horizon: int | None = 200
    """Steps of each test trajectory; by default all of your data."""
    observed_fraction: float = 0.7
    """Fraction of the input's points that are observed; the others are set to 0. By default all of your data."""
    mask_per: MaskPer = "run"
    """Draw one mask per run, trajectory or pair; `step` draws a new one each time a training pair is used."""
    mask_seed: int = 0
    """Seed of the masks, which all methods and seeds that are compared have in common."""
    mask_channel: bool = False
    """Give the network the mask as an additional input channel."""
    score_on: Literal["all", "observed"] = "all"
    """Points that the loss and the metrics cover."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of train, reg and test trajectories, which for data from files is known once these are opened."""
        return _known(self.train_size), _known(self.reg_size), _known(self.test_size)

    @property
    def horizons(self) -> tuple[int, int]:
        """Steps of train and reg trajectories, and those of test trajectories."""
        return _known(self.train_horizon), _known(self.test_horizon)

    def __post_init__(self):
        check_fields(self)
        fraction, num_dims = self.observed_fraction, self.num_spatial_dims
        check(0 < fraction <= 1, "observed_fraction", fraction, "must lie in (0, 1]")
        check(num_dims in (None, 1, 2, 3), "num_spatial_dims", num_dims, "1, 2 or 3")
        for name in ("train_size", "reg_size", "test_size", "train_horizon", "test_horizon"):
            value, least = getattr(self, name), 0 if name == "reg_size" else 1
            check(value is None or value >= least, name, value, f"must be at least {least}")
            check(value is not None or self.data is not None, name, value, "needs a number, unless `data` is given")
        for name in ("field", "axes"):
            value = getattr(self, name)
            check(value is None or self.data is not None, name, value, "says something of `data`, which is not given")
        check(self.time_stride >= 1, "time_stride", self.time_stride, "must be at least 1")
        check(0 <= self.in_memory_gib < float("inf"), "in_memory_gib", self.in_memory_gib, "must be at least 0")
        check_seed("mask_seed", self.mask_seed)
        check_seed("split_seed", self.split_seed)
        check(self.num_points is None or self.num_points >= 4, "num_points", self.num_points, "must be at least 4")


# Settings of data from files that differ from the defaults; None means as many as the files have.
OWN_DATA: dict[str, Any] = {
    "train_size": None,
    "reg_size": None,
    "test_size": None,
    "train_horizon": None,
    "test_horizon": None,
    "observed_fraction": 1.0,
}


@dataclass(frozen=True)
class ModelConfig:
    """Settings of the FNO, its noise sites and its heads."""

    width: int = 8
    """Hidden channels."""
    num_blocks: int = 4
    """Spectral blocks."""
    num_modes: int = 12
    """Fourier modes kept per axis, k = 0 … num_modes − 1."""
    predict_increment: bool = False
    """Let the mean head predict the change from the (masked) input."""
    feature_noise: FeatureNoise = "generalization"
    """Noise at the feature sites: learned with ρ, with ψ, with both at each site, dropout, or none."""
    sites: tuple[str, ...] = ()
    """Feature sites in use (block1 …, pre_head); by default all."""
    sigma_per: Literal["layer", "channel"] = "channel"
    """Feature sites: one σ per site, or one per channel."""
    epsilon_per: Literal["channel", "element"] = "channel"
    """Feature sites: one draw per channel, shared over space, or one per element."""
    dropout_rate: float = 0.1
    """Drop probability where feature_noise is dropout."""
    lift_noise: float = 0.0
    """σ of noise h ↦ h ⊙ (1 + σε) after the lift, the same for all channels and never learned; 0: none."""
    mode_noise: ModeNoise = "none"
    """Noise on the kept Fourier modes of each block."""
    mode_sigma_per: Literal["layer", "channel", "mode"] = "mode"
    """Mode sites: one σ per block, per channel, or per mode."""
    mode_epsilon_per: Literal["channel", "element"] = "element"
    """Mode sites: one draw per channel, or one per channel and mode."""
    generalization_head: bool = True
    """A log σ_gen head, learned on reg."""
    log_sigma_pred_start: float | None = None
    """Initial log σ_pred; by default the log of the train targets' spread, minus 1/2. The paper uses −5."""
    scaled_start: bool = True
    """Initialise the lift as if its input had unit RMS, and the blocks so that they preserve the scale."""
    log_sigma_gen_start: float = -5.0
    """Initial value of every generalization log σ, and of predictive ones at noise sites."""
    log_sigma_min: float = -8.0
    """Lower end of the smooth bound on the sites' log σ."""
    log_sigma_max: float = 3.0
    """Upper end of the smooth bound on the sites' log σ."""
    head_log_sigma_min: float = -12.0
    """Lower end of the smooth bound on the heads' log σ."""
    head_log_sigma_max: float = 3.0
    """Upper end of the smooth bound on the heads' log σ."""

    @property
    def learns_on_reg(self) -> bool:
        """Whether any parameter is in ρ."""
        owned = ("generalization", "both")
        return self.feature_noise in owned or self.mode_noise in owned or self.generalization_head

    def __post_init__(self):
        check_fields(self)
        for name in ("width", "num_blocks", "num_modes"):
            check(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        check(0 <= self.dropout_rate < 1, "dropout_rate", self.dropout_rate, "must lie in [0, 1)")
        check(0 <= self.lift_noise < float("inf"), "lift_noise", self.lift_noise, "must be at least 0 and finite")
        check(self.num_blocks <= _MOST_BLOCKS, "num_blocks", self.num_blocks, f"must be at most {_MOST_BLOCKS}")
        known = site_names(self.num_blocks)
        for site in self.sites:
            check(site in known, "sites", site, f"an FNO of {self.num_blocks} blocks has {', '.join(known)}")
        site_bounds = (self.log_sigma_min, self.log_sigma_max)
        head_bounds = (self.head_log_sigma_min, self.head_log_sigma_max)
        starts = [("log_sigma_gen_start", site_bounds), ("log_sigma_pred_start", head_bounds)]
        if self.generalization_head:
            starts.append(("log_sigma_gen_start", head_bounds))
        for name, (low, high) in starts:
            value = getattr(self, name)
            if value is not None:
                check(low < value < high, name, value, f"must lie inside the bounds ({low:g}, {high:g})")


@dataclass(frozen=True)
class TrainConfig:
    """Settings of training (Algorithm 1)."""

    steps: int = 30_000
    """Updates of θ and ψ."""
    batch_size: int = 16
    """Pairs per update."""
    k_reg: int = 5
    """Train updates per update of ρ."""
    settle: float = 0.1
    """Share of a run at its end in which ρ is updated after every train update, to catch up with θ."""
    num_samples: int = 10
    """Model instances S per update."""
    train_samples: int | None = None
    """Model instances per train update, if different; by default num_samples."""
    evaluation_samples: int = 30
    """Model instances for scores and predictions; at most 10 of them while training. With 10 draws, 2 of 11 further
    draws fall outside their range: too few to estimate the tails."""
    reg_objective: RegObjective = "scaled-crps"
    """Objective of ρ on reg: the scaled CRPS, the CRPS, or the NLL of the moment-matched Gaussian (as in the paper, or
    fair: corrected for the bias of few samples) or of the mixture."""
    learning_rate: float = 2e-3
    """Adam's rate for the backbone θ and the log σ_pred head."""
    site_learning_rate: float = 1e-2
    """Adam's rate for the σ of the noise sites, of either owner."""
    generalization_head_learning_rate: float = 1e-3
    """Adam's rate for the log σ_gen head."""
    schedule: Literal["constant", "decay", "cosine"] = "decay"
    """Learning rate of θ and ψ over time: constant, constant but linear to 0 over the last fifth, or cosine to 0."""
    clip: float = 10.0
    """Clip gradients whose norm exceeds this many times its running root mean square; 0: never."""
    engine: Literal["auto", "reference", "fused"] = "auto"
    """Compute a training step in plain JAX (reference), or with fused GPU kernels where they support the shapes (on a
    CPU they are interpreted, which is slow); auto uses the kernels on a GPU where several runs train at once. On a GPU,
    either rounds factors of matrix products to TF32 while training."""
    scored_pairs: int | None = None
    """Evenly spaced pairs of each split that are scored at the end; by default all, or 1,000 of a split in files."""
    evaluate_every: int = 250
    """Steps between two evaluations on reg. At its default, a run of fewer than 2,500 steps is evaluated ten times."""
    seed: int = 0
    """Seed of the weights, the batches and the noise."""

    @property
    def record_every(self) -> int:
        """Steps between two evaluations on reg: at its default, a short run is evaluated ten times too."""
        is_default = self.evaluate_every == TrainConfig.evaluate_every
        return min(self.evaluate_every, max(1, self.steps // 10)) if is_default else self.evaluate_every

    @property
    def settled_after(self) -> int:
        """The step after which ρ is updated at every step."""
        return round(self.steps * (1 - self.settle))

    def reg_updates_until(self, step: int) -> int:
        """Return the number of updates of ρ in the first steps."""
        before = min(step, self.settled_after)
        return before // self.k_reg + step - before

    def __post_init__(self):
        check_fields(self)
        for name in ("steps", "batch_size", "k_reg", "num_samples", "evaluation_samples", "evaluate_every"):
            check(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        for name in ("train_samples", "scored_pairs"):
            value = getattr(self, name)
            check(value is None or value >= 1, name, value, "must be at least 1")
        for name in ("learning_rate", "site_learning_rate", "generalization_head_learning_rate"):
            check(0 < getattr(self, name) < float("inf"), name, getattr(self, name), "must be positive and finite")
        allowed = self.clip == 0 or 1 <= self.clip < float("inf")
        check(allowed, "clip", self.clip, "must be 0, or at least 1 and finite")
        check(0 <= self.settle <= 1, "settle", self.settle, "must lie in [0, 1]")
        check_seed("seed", self.seed)
