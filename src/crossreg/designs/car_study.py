"""The settings of `crossreg car` and its profiles. Every field is a flag of the command. Does not import JAX."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from crossreg.config import Config, ModelConfig, TrainConfig, to_dict
from crossreg.config.field_types import check, check_fields
from crossreg.errors import InputError
from crossreg.methods.names import Method, parse_methods
from crossreg.methods.xreg import INDEPENDENT

METHODS = "xreg,unregularized,dropout,ensemble"
# `methods="all"`: also the paper's xreg, without a σ_gen head and with ρ trained on a likelihood; and baselines that
# are stopped, calibrated or selected by the reg cars, or trained on them too.
ALL_METHODS = (
    f"{METHODS},xreg-internal-mm,xreg-internal-mixture,unregularized+early,dropout+early,ensemble+early,"
    "unregularized+temperature,unregularized+sigma-temperature,dropout+conformal,ensemble+temperature,"
    "ensemble+sigma-temperature,ensemble+conformal,dropout-reg,unregularized-all-data,dropout-all-data,ensemble-all-data"
)
FAMILY = "family"
MOST_SEEDS = 1000
Profile = Literal["quick", "full"]
# Fields of the config without a flag: `methods` and `seeds` set the first ones, a car's input is no pressure that could
# change (predict_increment), all cars of a split are scored (scored_pairs), and a prediction is no step in time (the
# last three).
NO_FLAGS = (
    "feature_noise",
    "sites",
    "sigma_per",
    "epsilon_per",
    "dropout_rate",
    "lift_noise",
    "mode_noise",
    "generalization_head",
    "train_samples",
    "reg_objective",
    "seed",
    "predict_increment",
    "scored_pairs",
    "train_objective",
    "train_rollout_steps",
    "reg_horizon",
    "rollout_particles",
    "lead_growth",
    "rollout_steps",
)


@dataclass(frozen=True)
class CarStudy:
    """All settings of the experiment."""

    data: str = FAMILY
    """A folder of cars (ShapeNet-Car in any of its layouts, NPZ files, or PLY and NPY files), or `family` for the
    built-in cars."""
    methods: str = METHODS
    """Methods, separated by commas, for example xreg,dropout,ensemble+conformal,ensemble-all-data (trained on the reg
    cars too); or all. If the vertices of all cars correspond, their vertex mean is scored too."""
    seeds: int = 5
    """Number of seeds of each method."""
    train_size: int = 30
    """Number of cars on which θ and ψ learn."""
    reg_size: int = 50
    """Number of cars on which ρ learns."""
    test_size: int = 60
    """Number of cars on which methods are scored."""
    split_seed: int = 0
    """Seed of the split, and of the shapes of the built-in cars."""
    points: int = 2850
    """Approximate number of vertices of each built-in car, at least 400."""
    grid: int = 64
    """Cells of the torus along each axis. The torus needs at least as many cells as a car has vertices. By default 64,
    or 32 for the built-in cars of the quick profile."""
    own_maps: bool = False
    """Give every car its own map to the torus, even where vertices correspond and one map would serve all cars."""
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self):
        check_fields(self)
        check(self.seeds <= MOST_SEEDS, "seeds", self.seeds, f"must be at most {MOST_SEEDS}")
        least = {"seeds": 1, "train_size": 1, "reg_size": 1, "test_size": 1, "split_seed": 0, "points": 400, "grid": 2}
        for name, low in least.items():
            check(getattr(self, name) >= low, name, getattr(self, name), f"must be at least {low}")

    @property
    def config(self) -> Config:
        """Return the settings of the network and of the training, which methods change."""
        return Config(model=self.model, train=self.train)

    def replace(self, **fields: Any) -> "CarStudy":
        """Return a copy with changed fields, also those of model and train: `study.replace(grid=32, steps=1000)`."""
        names = {f.name for f in dataclasses.fields(self)}
        own = {name: fields.pop(name) for name in list(fields) if name in names}
        config = self.config.replace(**fields)
        return dataclasses.replace(self, **{"model": config.model, "train": config.train} | own)


def car_study(profile: str, *, data: str = FAMILY) -> CarStudy:
    """Return the settings of a profile, with the paper's learning rates.

    Args:
        profile: `quick`, with fewer and coarser cars and a smaller network, takes minutes on two cores; `full` is for a
            GPU.
        data: a folder of cars, which get the grid of `full`, or `family` for the built-in cars.
    """
    check(profile in get_args(Profile), "profile", profile, f"must be one of {', '.join(get_args(Profile))}")
    rates = {"learning_rate": 1e-3, "site_learning_rate": 1e-2, "generalization_head_learning_rate": 1e-3}
    # Fewer samples were not tried on cars. How many there are on train is a method's to say.
    draws = {name: value for name, value in INDEPENDENT.items() if name != "train_samples"} | {"reg_batch_size": 4}
    study = CarStudy(data=data).replace(width=32, num_modes=16, batch_size=4, steps=10_000, **draws | rates)
    if profile == "full":
        return study
    # In so few steps, the end of a run alone has too few updates of ρ.
    study = study.replace(width=16, num_modes=8, num_samples=6, steps=2500, settle=0.4)
    study = study.replace(seeds=1, train_size=20, reg_size=20, test_size=20, points=714)
    return study.replace(grid=32) if data == FAMILY else study


def methods_of(study: CarStudy) -> list[Method]:
    """Return the methods of a study."""
    names = ALL_METHODS if study.methods == "all" else study.methods
    methods = parse_methods(names, for_cars=True)
    for method in methods:
        if not method.candidates:
            raise InputError(f"methods {method.name}: the input of a car is not a pressure that could persist")
    return methods


def study_of(settings: dict[str, Any]) -> CarStudy:
    """Return the study with these settings (see `settings_of`); fields that they lack have their defaults."""
    fields = settings["model"] | {"sites": tuple(settings["model"]["sites"])} | settings["train"]
    return CarStudy(**settings["cars"]).replace(**fields)


def settings_of(study: CarStudy) -> dict[str, Any]:
    """Return all settings as plain values, in three groups."""
    groups = {name: group for name, group in to_dict(study.config).items() if name in ("model", "train")}
    own = {f.name: getattr(study, f.name) for f in dataclasses.fields(study) if f.name not in groups}
    return {"cars": own} | groups
