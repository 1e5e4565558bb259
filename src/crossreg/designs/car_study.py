"""The settings of `crossreg car`, and its profiles. Every field is a flag of the command. No JAX here."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from crossreg.config import Config, ModelConfig, TrainConfig, to_dict
from crossreg.config.field_types import check_fields
from crossreg.errors import InputError
from crossreg.methods.names import Method, parse_methods

METHODS = "xreg,unregularized,dropout,ensemble"
# `--methods all`: xreg also as the paper has it, without a σ_gen head and with ρ on a likelihood; baselines
# also stopped or fitted on the reg cars, chosen by them, and trained on them.
ALL_METHODS = (
    f"{METHODS},xreg-internal-mm,xreg-internal-mixture,unregularized+early,dropout+early,ensemble+early,"
    "unregularized+temperature,unregularized+sigma-temperature,dropout+conformal,ensemble+temperature,"
    "ensemble+sigma-temperature,ensemble+conformal,dropout-reg,unregularized-all-data,dropout-all-data,ensemble-all-data"
)
FAMILY = "family"
MOST_SEEDS = 1000
Profile = Literal["quick", "full"]
# Fields of the config that are no flags: methods differ in them, and `--methods` names methods; a seed is one of
# `--seeds`; a car's input is no pressure that could change; and all cars of a split are scored.
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
)


@dataclass(frozen=True)
class CarStudy:
    """All settings of the experiment."""

    data: str = FAMILY
    """A folder of cars: ShapeNet-Car in any of its layouts, NPZ files, PLY and NPY files; or `family`, the built-in
    ones."""
    methods: str = METHODS
    """Comma-separated, for instance xreg,dropout,ensemble+conformal,ensemble-all-data (trained on the reg cars too); or
    all. The vertex mean is there besides, where vertices correspond."""
    seeds: int = 5
    """Trainings of each method."""
    train_size: int = 30
    """Cars that θ and ψ learn from."""
    reg_size: int = 50
    """Cars that ρ learns from."""
    test_size: int = 60
    """Cars that are scored."""
    split_seed: int = 0
    """Which cars are which, and which built-in family it is."""
    points: int = 2850
    """Vertices of a built-in car, about; at least 400."""
    grid: int = 64
    """Cells of the torus along each axis; at least as many in all as a car has vertices. By default 64, also with
    --data, and 32 for the built-in cars of quick."""
    own_maps: bool = False
    """Map every car to the torus on its own, even where vertices correspond and one map would do."""
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self):
        check_fields(self)
        if self.seeds > MOST_SEEDS:
            raise InputError(f"--seeds {self.seeds}: must be at most {MOST_SEEDS}")
        least = {"seeds": 1, "train_size": 1, "reg_size": 1, "test_size": 1, "split_seed": 0, "points": 400, "grid": 2}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least {low}")

    @property
    def config(self) -> Config:
        """The settings of the network and of the training, as methods change them."""
        return Config(model=self.model, train=self.train)

    def replace(self, **fields: Any) -> "CarStudy":
        """A copy with fields changed, those of model and train too: `study.replace(grid=32, steps=1000)`."""
        names = {f.name for f in dataclasses.fields(self)}
        own = {name: fields.pop(name) for name in list(fields) if name in names}
        config = self.config.replace(**fields)
        return dataclasses.replace(self, **{"model": config.model, "train": config.train} | own)


def car_study(profile: str, *, data: str = FAMILY) -> CarStudy:
    """The settings of a profile, for the built-in cars or a folder of others; all with the paper's rates.

    `quick` has fewer and coarser cars and a smaller network: minutes on two cores. `full` is for a GPU. Cars of a
    folder are as fine as they are: they get the grid of `full`.
    """
    if profile not in get_args(Profile):
        raise InputError(f"--profile {profile}: must be one of {', '.join(get_args(Profile))}")
    rates = {"learning_rate": 1e-3, "site_learning_rate": 1e-2, "generalization_head_learning_rate": 1e-3}
    study = CarStudy(data=data).replace(width=32, num_modes=16, batch_size=4, steps=10_000, **rates)
    if profile == "full":
        return study
    # In so few steps ρ has too few updates at the end of a run alone.
    study = study.replace(width=16, num_modes=8, num_samples=6, steps=2500, settle=0.4)
    study = study.replace(seeds=1, train_size=20, reg_size=20, test_size=20, points=714)
    return study.replace(grid=32) if data == FAMILY else study


def methods_of(study: CarStudy) -> list[Method]:
    """The methods that a study names."""
    names = ALL_METHODS if study.methods == "all" else study.methods
    methods = parse_methods(names, for_cars=True)
    for method in methods:
        if not method.candidates:
            raise InputError(f"--methods {method.name}: a car's input is no pressure that could persist")
    return methods


def study_of(settings: dict[str, Any]) -> CarStudy:
    """The study that `settings_of` was made of; what an older version did not know is as it is by default."""
    fields = settings["model"] | {"sites": tuple(settings["model"]["sites"])} | settings["train"]
    return CarStudy(**settings["cars"]).replace(**fields)


def settings_of(study: CarStudy) -> dict[str, Any]:
    """All settings as plain values, in three groups."""
    groups = {name: group for name, group in to_dict(study.config).items() if name in ("model", "train")}
    own = {f.name: getattr(study, f.name) for f in dataclasses.fields(study) if f.name not in groups}
    return {"cars": own} | groups
