"""The settings of a run in three groups, as frozen dataclasses: data, model and training.

They are the one source of the Python API, the flags of the command line and the stored YAML: the text after a field is
its help text too. Does not import JAX.
"""

from dataclasses import dataclass
from typing import Any, Literal

from crossreg.config.field_types import check, check_fields, check_seed
from crossreg.config.sites import site_names

FeatureNoise = Literal["none", "generalization", "predictive", "both", "dropout"]
TrainObjective = Literal["likelihood", "crps"]
RegObjective = Literal["fair", "moment-matched", "mixture", "crps", "scaled-crps"]
ModeNoise = Literal["none", "generalization", "predictive", "both"]
MaskPer = Literal["run", "trajectory", "pair", "step"]

_MOST_BLOCKS = 1000
# Updates of ρ from rollouts, in any training that is long enough: more of them change little.
ROLLOUTS = 300


def _known(size: int | None) -> int:
    if size is None:
        raise ValueError("the sizes of files are known once they are opened: see `resolved` in `data/files/load.py`")
    return size


@dataclass(frozen=True)
class DataConfig:
    """Which trajectories are used, how they are split, and what the model sees of them.

    Example:
        >>> xr.DataConfig(observed_fraction=0.4).train_size
        50
    """

    data: str | None = None
    """Your data in place of a scenario: an NPY, NPZ, HDF5, NetCDF or Zarr file, or a folder of such files."""
    field: str | None = None
    """Your data: the array to use, or several separated by commas (u,v), which become channels."""
    axes: str | None = None
    """Your data: a letter for each axis of the array: b trajectory, t time, c channel, x y z space. By default btc,
    followed by space."""
    split: Literal["trajectory", "time"] = "trajectory"
    """Your data: whether train, reg and test are different trajectories, or different times of each trajectory. Sizes
    of a split by time are numbers of steps."""
    split_seed: int = 0
    """Your data: seed of the random split by trajectory."""
    time_stride: int = 1
    """Your data: use every n-th time, so that one step spans n steps of the file."""
    in_memory_gib: float = 1.0
    """Your data: the size in GiB above which data stay in their files, and batches are read during training."""
    scenario: str = "diff_ks"
    """Name of an APEBench scenario; for your data, the name of the file."""
    num_spatial_dims: int | None = None
    """Number of spatial dimensions; by default the scenario's own."""
    num_points: int | None = None
    """Grid points along each axis; by default the scenario's own."""
    train_size: int | None = 50
    """Number of train trajectories: the first ones of the train pool, at most 70. For your data, 70% by default."""
    reg_size: int | None = 50
    """Number of reg trajectories: the first ones of the reg pool, at most 50, or 0 for methods that do not use reg. For
    your data, 10% by default."""
    one_pool: bool = False
    """Take train and reg trajectories from one common pool of 150, train first, to compare methods at equal data."""
    test_size: int | None = 30
    """Number of test trajectories: the first ones of APEBench's own test set, at most 30. For your data, 20% by
    default."""
    train_horizon: int | None = 10
    """Steps (that is, pairs) of each train and reg trajectory. For your data, all by default."""
    test_horizon: int | None = 200
    """Steps (that is, pairs) of each test trajectory. For your data, all by default."""
    reg_steps: int | None = None
    """Scenarios: steps of each reg trajectory; by default train_horizon. More of them let ρ learn from longer
    rollouts."""
    observed_fraction: float = 0.7
    """Share of the input's points that are observed; the others are set to 0. For your data, 1 by default."""
    mask_per: MaskPer = "run"
    """What a mask is drawn for: the run, each trajectory, each pair, or each use of a pair in training (step)."""
    mask_seed: int = 0
    """Seed of the masks; all methods and seeds of a comparison share it."""
    mask_channel: bool = False
    """Give the network the mask as an additional input channel."""
    score_on: Literal["all", "observed"] = "all"
    """Points that the loss and the scores cover: all, or those observed in the input."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of train, reg and test trajectories, which for data from files is known once these are opened."""
        return _known(self.train_size), _known(self.reg_size), _known(self.test_size)

    @property
    def horizons(self) -> tuple[int, int]:
        """Steps of train and reg trajectories, and those of test trajectories."""
        return _known(self.train_horizon), _known(self.test_horizon)

    @property
    def reg_pairs_per_row(self) -> int:
        """Steps of each reg trajectory."""
        return self.horizons[0] if self.reg_steps is None else self.reg_steps

    def __post_init__(self):
        check_fields(self)
        fraction, num_dims = self.observed_fraction, self.num_spatial_dims
        check(0 < fraction <= 1, "observed_fraction", fraction, "must lie in (0, 1]")
        check(num_dims in (None, 1, 2, 3), "num_spatial_dims", num_dims, "must be 1, 2 or 3")
        for name in ("train_size", "reg_size", "test_size", "train_horizon", "test_horizon"):
            value, least = getattr(self, name), 0 if name == "reg_size" else 1
            check(value is None or value >= least, name, value, f"must be at least {least}")
            check(value is not None or self.data is not None, name, value, "needs a number, unless `data` is given")
        steps = self.reg_steps
        check(steps is None or steps >= 1, "reg_steps", steps, "must be at least 1")
        check(
            steps is None or self.data is None, "reg_steps", steps, "is for scenarios; your data have their own steps"
        )
        for name in ("field", "axes"):
            value = getattr(self, name)
            check(value is None or self.data is not None, name, value, "describes `data`, which is not given")
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
    """Settings of the FNO, its noise sites and its heads.

    Example:
        >>> xr.ModelConfig(feature_noise="dropout", generalization_head=False).learns_on_reg
        False
    """

    width: int = 8
    """Hidden channels."""
    num_blocks: int = 4
    """Spectral blocks."""
    num_modes: int = 12
    """Fourier modes kept along each axis, k = 0 … num_modes − 1."""
    predict_increment: bool = False
    """Let the head of the mean predict the change from the (masked) input."""
    feature_noise: FeatureNoise = "generalization"
    """Noise at the feature sites: learned with ρ (generalization), with ψ (predictive), or with both at each site;
    dropout; or none."""
    sites: tuple[str, ...] = ()
    """Feature sites in use (block1, block2, …, pre_head); by default all."""
    sigma_per: Literal["layer", "channel"] = "channel"
    """Feature sites: one σ per site (layer), or one per channel."""
    epsilon_per: Literal["channel", "element"] = "channel"
    """Feature sites: one draw of ε per channel, shared over space, or one per element."""
    dropout_rate: float = 0.1
    """Probability that an element is dropped, where feature_noise is dropout."""
    lift_noise: float = 0.0
    """σ of noise h ↦ h ⊙ (1 + σε) after the lift, the same for all channels and not learned; 0 for none."""
    mode_noise: ModeNoise = "none"
    """Noise on the kept Fourier modes of each block, learned with ρ (generalization), ψ (predictive) or both; or
    none."""
    mode_sigma_per: Literal["layer", "channel", "mode"] = "mode"
    """Mode sites: one σ per block (layer), per channel, or per mode."""
    mode_epsilon_per: Literal["channel", "element"] = "element"
    """Mode sites: one draw of ε per channel, or one per channel and mode (element)."""
    generalization_head: bool = True
    """Add a head for log σ_gen, learned on reg."""
    log_sigma_pred_start: float | None = None
    """Initial log σ_pred; by default the log of the spread of the train targets, minus 1/2. The paper uses −5."""
    scaled_start: bool = True
    """Initialise the lift as if its input had unit RMS, and the blocks so that they preserve the scale."""
    log_sigma_gen_start: float = -5.0
    """Initial value of every generalization log σ, and of every predictive log σ at a noise site."""
    log_sigma_min: float = -8.0
    """Lower end of the smooth bound on the log σ of the sites."""
    log_sigma_max: float = 3.0
    """Upper end of the smooth bound on the log σ of the sites."""
    head_log_sigma_min: float = -12.0
    """Lower end of the smooth bound on the log σ of the heads."""
    head_log_sigma_max: float = 3.0
    """Upper end of the smooth bound on the log σ of the heads."""
    lead_growth: bool = False
    """Let ρ learn factors of σ_pred and of the whole spread by lead, from rollouts on reg (reg_horizon above 1)."""

    @property
    def learns_on_reg(self) -> bool:
        """Whether any parameter is in ρ."""
        owned = ("generalization", "both")
        noisy = self.feature_noise in owned or self.mode_noise in owned
        return noisy or self.generalization_head or self.lead_growth

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
    """Settings of training (Algorithm 1).

    Example:
        >>> xr.TrainConfig(steps=1000, k_reg=5, settle=0.1).reg_updates_until(1000)
        280
    """

    steps: int = 30_000
    """Number of train updates, that is, updates of θ and ψ."""
    batch_size: int = 16
    """Pairs per train update."""
    reg_batch_size: int | None = None
    """Pairs per update of ρ from single steps; by default half of batch_size."""
    k_reg: int = 5
    """Train updates for each update of ρ."""
    settle: float = 0.05
    """Share of the run, at its end, in which ρ is updated after every train update, to catch up with θ, or else from
    rollouts (reg_horizon above 1)."""
    num_samples: int = 4
    """Model instances per update, S; rollouts on reg have rollout_particles."""
    train_samples: int | None = 2
    """Model instances per train update; null for as many as num_samples."""
    antithetic: bool = True
    """Draw model instances of single steps in pairs with opposite noise, ε and −ε, so that few of them are enough: in
    train updates, and in those of ρ by a CRPS. Where their number is odd, they are drawn independently."""
    evaluation_samples: int = 30
    """Model instances for scores and predictions; evaluations during training use at most 10. With 10 draws, a further
    draw falls outside their range 2 times in 11: too few to estimate the tails."""
    train_objective: TrainObjective = "likelihood"
    """Objective of θ and ψ on train: the likelihood of the sampled mixture, or its CRPS (crps)."""
    train_rollout_steps: int = 1
    """Steps of the rollouts on train that θ and ψ learn from at the end of training, in the share settle of it; with 1,
    they learn from single steps alone. Train trajectories must have as many steps."""
    reg_horizon: int = 1
    """Steps of the rollouts on reg that ρ learns from at the end of training; with 1, it learns from single steps
    alone, as in the paper. Reg trajectories must have as many steps."""
    rollout_particles: int = 30
    """Particles of each rollout on reg, at least 3. With fewer than 30, error bars of forecasts come out too wide: by a
    tenth with 10."""
    reg_objective: RegObjective = "scaled-crps"
    """Objective of ρ on reg: the CRPS (crps), its scale-invariant form (scaled-crps), or an NLL: of the mixture, or of
    the Gaussian with its moments (moment-matched, as in the paper; fair corrects it for the bias of few samples)."""
    learning_rate: float = 2e-3
    """Adam's learning rate for the backbone θ and the head of log σ_pred."""
    site_learning_rate: float = 2e-2
    """Adam's learning rate for the σ of the noise sites, whether ρ or ψ owns them."""
    generalization_head_learning_rate: float = 1e-3
    """Adam's learning rate for the head of log σ_gen."""
    schedule: Literal["constant", "decay", "cosine"] = "decay"
    """Learning rate of θ and ψ over time: constant; constant, then linear to 0 over the last fifth (decay); or cosine
    to 0."""
    clip: float = 10.0
    """Clip a gradient whose norm exceeds this many times the running root mean square of past norms; 0 clips none."""
    engine: Literal["auto", "reference", "fused"] = "auto"
    """Compute training steps in plain JAX (reference), or with fused GPU kernels where these support the shapes (fused;
    slow on a CPU, where kernels are interpreted). auto uses the kernels on a GPU that trains several models at once. On
    a GPU, both round the factors of matrix products to TF32 during training."""
    rollout_steps: int = 0
    """Steps of forecasts of the test trajectories that are scored by lead at the end, or 0 for none. No more steps are
    scored than the test trajectories have."""
    scored_pairs: int | None = None
    """Number of pairs of each split, evenly spaced, to score at the end; by default all, or 1,000 of a split that stays
    in its files."""
    evaluate_every: int = 250
    """Steps between evaluations on reg. With the default, a run of fewer than 2,500 steps is evaluated ten times."""
    seed: int = 0
    """Seed of the weights, the batches and the noise."""

    @property
    def record_every(self) -> int:
        """Steps between two evaluations on reg: at its default, a short run is evaluated ten times too."""
        is_default = self.evaluate_every == TrainConfig.evaluate_every
        return min(self.evaluate_every, max(1, self.steps // 10)) if is_default else self.evaluate_every

    @property
    def settled_after(self) -> int:
        """The step after which ρ settles: it is updated more often, or from rollouts."""
        return round(self.steps * (1 - self.settle))

    @property
    def k_settled(self) -> int:
        """Train updates per update of ρ while it settles. An update from a rollout takes the time of many."""
        return 1 if self.reg_horizon == 1 else max(1, round(self.steps * self.settle / ROLLOUTS))

    @property
    def reg_pairs(self) -> int:
        """Pairs per update of ρ from single steps."""
        return max(1, self.batch_size // 2) if self.reg_batch_size is None else self.reg_batch_size

    @property
    def rollout_batch_size(self) -> int:
        """Rollouts per update: they have many steps and, on reg, several times the particles of a prediction."""
        return max(1, self.batch_size // 2)

    def reg_updates_until(self, step: int) -> int:
        """Return the number of updates of ρ in the first steps."""
        before = min(step, self.settled_after)
        return before // self.k_reg + (step - before) // self.k_settled

    def __post_init__(self):
        check_fields(self)
        counts = ("steps", "batch_size", "k_reg", "train_rollout_steps", "reg_horizon", "num_samples")
        for name in (*counts, "evaluation_samples", "evaluate_every"):
            check(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        check(self.rollout_steps >= 0, "rollout_steps", self.rollout_steps, "must be at least 0")
        for name in ("train_samples", "reg_batch_size", "scored_pairs"):
            value = getattr(self, name)
            check(value is None or value >= 1, name, value, "must be at least 1")
        for name in ("learning_rate", "site_learning_rate", "generalization_head_learning_rate"):
            check(0 < getattr(self, name) < float("inf"), name, getattr(self, name), "must be positive and finite")
        allowed = self.clip == 0 or 1 <= self.clip < float("inf")
        check(allowed, "clip", self.clip, "must be 0, or at least 1 and finite")
        check(0 <= self.settle <= 1, "settle", self.settle, "must lie in [0, 1]")
        rolls = self.reg_horizon > 1 or self.train_rollout_steps > 1
        check(self.settle > 0 or not rolls, "settle", self.settle, "must be above 0 for rollouts in training")
        # Two particles have no best spread about their own mean.
        check(self.rollout_particles >= 3, "rollout_particles", self.rollout_particles, "must be at least 3")
        check_seed("seed", self.seed)
