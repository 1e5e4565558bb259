"""The registry of methods: from a name, as `--methods` and the rows of tables have it, to a `Method`.

    base[-variant…][-all-data][+early][+growth|+temperature|+sigma-temperature][+conformal]

Every method has one canonical name: `ensemble-3` becomes `ensemble`, `xreg-scaled-layer` becomes `xreg-layer`. A base
is a change of the config, or several of which one is chosen on held-out data, and a number of members that are pooled.
`-all-data` trains a method that needs no held-out data on train and reg together. The wrappers act after training.
This module does not import JAX.
"""

import dataclasses
import decimal
import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crossreg.config import Config, all_settings, changed_fields
from crossreg.errors import InputError, did_you_mean
from crossreg.methods import dropout, fixed_noise, train_noise, unregularized, xreg

ENSEMBLE_SIZE = 3
WRAPPERS = ("early", "growth", "temperature", "sigma-temperature", "conformal")
ALL_DATA = "-all-data"
UNTRAINED = ("persistence", "persistence-masked")
_BASES = ("unregularized", "dropout", "dropout-reg", "ensemble", "fixed-noise", "train-noise", "train-noise-rollout")
FORMS = (
    f"xreg[-{'|'.join(xreg.VARIANTS)}|ensemble…]",
    "unregularized",
    "dropout[-P|-reg]",
    "ensemble[-M]",
    "fixed-noise[-SIGMA]",
    "train-noise[-rollout]",
    *UNTRAINED,
)
# Cars have no persistence; methods that need no held-out data may train on all data.
CAR_FORMS = tuple(f"{form}[{ALL_DATA}]" if form[:4] != "xreg" else form for form in FORMS if form not in UNTRAINED)


@dataclass(frozen=True)
class Method:
    """A method, as a row of a table names it.

    Attributes:
        name: Its canonical name.
        candidates: Changes of the config; with several, the one with the lowest NLL on held-out data is chosen. A
            method without candidates is not trained.
        members: How many models each candidate trains and pools.
        early: Whether members are taken at their lowest NLL on held-out data.
        growth: Whether a growth by lead is fitted after training, to rollouts.
        temperature: Whether a temperature is fitted to the whole mixture after training.
        sigma_temperature: Whether a temperature is fitted to σ alone after training.
        conformal: Whether conformal quantiles are fitted after training.
        all_data: Whether it trains on train and reg together.
        named: The settings that the words of its name stand for, as `mm` stands for a `reg_objective`.

    Example:
        >>> method = xr.methods.parse_method("ensemble-3+temperature")
        >>> method.members, method.temperature
        (3, True)
    """

    name: str
    candidates: tuple[Callable[[Config], Config], ...]
    members: int = 1
    early: bool = False
    growth: bool = False
    temperature: bool = False
    sigma_temperature: bool = False
    conformal: bool = False
    all_data: bool = False
    named: Collection[str] = ()

    def configs(self, config: Config, changes: dict[str, Any] | None = None) -> list[Config]:
        """Return the config of each candidate.

        Args:
            config: Settings before the method is applied.
            changes: Changes made after it, so that a sweep may vary what the method sets.

        Returns:
            One config for each candidate.
        """
        return [candidate(config).replace(**(changes or {})) for candidate in self.candidates]

    def check_settings(self, config: Config, changes: Mapping[str, Any]) -> None:
        """Raise InputError if the method would replace settings that were asked for.

        Args:
            config: Settings before the method is applied; a setting at its default counts as not given.
            changes: Changes made after it: they may vary what the method sets, but not contradict its name.

        Raises:
            InputError: If the method would replace a setting.
        """
        asked = {name: value for name, value in changed_fields(config).items() if name not in changes}
        asked |= {name: value for name, value in changes.items() if name in self.named}
        for candidate in self.candidates:
            own = all_settings(candidate(config))
            replaced = {name: value for name, value in asked.items() if own[name] != value}
            if replaced:
                said = [f"{k} to {json.dumps(own[k])}, not {json.dumps(v)}" for k, v in replaced.items()]
                raise InputError(
                    f"methods {self.name}: this method sets {' and '.join(said)}; leave"
                    f" {', '.join(replaced)} out, or name a method that has {'it' if len(said) == 1 else 'them'}"
                )

    @property
    def wrapped(self) -> bool:
        """Whether a wrapper reads held-out data after training."""
        return self.early or self.growth or self.temperature or self.sigma_temperature or self.conformal

    @property
    def learns_from_rollouts(self) -> bool:
        """Whether the end of training is on rollouts."""
        trains = [config.train for config in self.configs(Config())]
        return any(train.reg_horizon > 1 or train.train_rollout_steps > 1 for train in trains)

    def learns_on_reg(self, configs: Sequence[Config]) -> bool:
        """Return whether training or the choice among candidates uses reg.

        Args:
            configs: The config of each candidate.

        Returns:
            Whether it does.
        """
        return len(configs) > 1 or any(config.model.learns_on_reg for config in configs)


def _number(base: str, text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low < value < high:
        raise InputError(f"methods {base}-{text}: {text} must be a number in ({low:g}, {high:g})")
    return value


def _base(name: str, forms: Sequence[str]) -> Method:
    word, *rest = name.split("-")
    if name in UNTRAINED:
        return Method(name, ())
    if word == "xreg":
        members = ENSEMBLE_SIZE if "ensemble" in rest else 1
        words = tuple(part for part in rest if part != "ensemble")
        for choice in xreg.CHOICES:
            if len(both := [part for part in words if part in choice]) > 1:
                raise InputError(f"methods {name}: {' and '.join(both)} exclude each other")
        if all(part in xreg.VARIANTS for part in words) and len(set(rest)) == len(rest):
            words = xreg.canonical_words(words)
            said = "-".join(["xreg", *words, *(["ensemble"] if members > 1 else [])])
            # The word rollout does not say how long: a sweep may vary it.
            named = frozenset(name for part in words for name in xreg.VARIANTS[part]) - {"reg_horizon"}
            return Method(said, (functools.partial(xreg.configure, words=words),), members, named=named)
    if name == "unregularized":
        return Method(name, (unregularized.configure,))
    if word == "ensemble" and len(rest) <= 1:
        members = ENSEMBLE_SIZE
        if rest:
            if not rest[0].isdecimal() or not 1 <= int(rest[0]) <= 100:
                raise InputError(f"methods {name}: an ensemble has 1 to 100 members")
            members = int(rest[0])
        return Method(
            "ensemble" if members == ENSEMBLE_SIZE else f"ensemble-{members}", (unregularized.configure,), members
        )
    if word == "dropout" and len(rest) <= 1:
        if rest == ["reg"]:
            candidates = tuple(functools.partial(dropout.configure, rate=rate) for rate in dropout.RATES)
            return Method(name, candidates, named=("dropout_rate",))
        rate = _number(word, rest[0], 0.0, 1.0) if rest else dropout.RATE
        candidates = (functools.partial(dropout.configure, rate=rate),)
        if rate == dropout.RATE:
            return Method("dropout", candidates)
        return Method(f"dropout-{_written(rate)}", candidates, named=("dropout_rate",))
    if word == "fixed" and rest[:1] == ["noise"] and len(rest) <= 2:
        sigma = _number("fixed-noise", rest[1], 0.0, float("inf")) if len(rest) == 2 else fixed_noise.SIGMA
        said = "fixed-noise" if sigma == fixed_noise.SIGMA else f"fixed-noise-{_written(sigma)}"
        return Method(said, (functools.partial(fixed_noise.configure, sigma=sigma),))
    if name in ("train-noise", "train-noise-rollout"):
        rollout_steps = train_noise.ROLLOUT_STEPS if name.endswith("-rollout") else 1
        return Method(name, (functools.partial(train_noise.configure, rollout_steps=rollout_steps),))
    known = ("xreg", *(f"xreg-{w}" for w in (*xreg.VARIANTS, "ensemble")), *_BASES)
    known += UNTRAINED if forms is FORMS else ()
    hint = did_you_mean(name, known, ";")
    raise InputError(f"methods {name}: no such method{hint} there are {', '.join(forms)}")


def _written(number: float) -> str:
    """Return all digits of a number, without an exponent, whose minus sign would split the name."""
    return f"{decimal.Decimal(repr(number)).normalize():f}"


def parse_method(name: str, argument: str = "methods", *, for_cars: bool = False) -> Method:
    """Return the method of a name.

    Args:
        name: A name such as `dropout-0.2+temperature`.
        argument: The name of the argument that gave it, for errors.
        for_cars: Whether the method is for the car experiment, which has no persistence but allows `-all-data`.

    Returns:
        The method.

    Raises:
        InputError: If there is no such method.

    Example:
        >>> xr.methods.parse_method("ensemble-3+early").name
        'ensemble+early'
    """
    try:
        method = _parse_method(name, CAR_FORMS if for_cars else FORMS)
        if method.all_data and not for_cars:
            raise InputError(f"methods {name}: {ALL_DATA} is for cars; `crossreg sweep equal-data` compares like this")
        return method
    except InputError as error:
        raise InputError(str(error).replace("methods", argument, 1)) from None


def _parse_method(name: str, forms: Sequence[str]) -> Method:
    base, *wrappers = name.split("+")
    all_data = base.endswith(ALL_DATA)
    method = _base(base.removesuffix(ALL_DATA), forms)
    for wrapper in wrappers:
        if wrapper not in WRAPPERS:
            raise InputError(f"methods {name}: no wrapper +{wrapper}; there are +{', +'.join(WRAPPERS)}")
    order = [w for w in WRAPPERS if w in wrappers]
    if wrappers != order:
        raise InputError(f"methods {name}: write it as {'+'.join([base, *order])}")
    widens = [f"+{wrapper}" for wrapper in order if wrapper in ("growth", "temperature", "sigma-temperature")]
    if len(widens) > 1:
        raise InputError(f"methods {name}: {' and '.join(widens)} exclude each other")
    if "early" in wrappers and method.learns_from_rollouts:
        raise InputError(f"methods {name}: {base} learns from rollouts in the end, which stopping early would undo")
    if "early" in wrappers and not method.candidates:
        raise InputError(f"methods {name}: {base} is not trained, so it cannot stop early")
    if all_data and (wrappers or not method.candidates or method.learns_on_reg(method.configs(Config()))):
        reason = "needs held-out data" if method.candidates else "is not trained"
        without = "+".join([method.name, *wrappers])
        raise InputError(f"methods {name}: {without} {reason}, so that it cannot train on all data")
    said = "+".join([method.name + ALL_DATA * all_data, *wrappers])
    fields = dict.fromkeys((wrapper.replace("-", "_") for wrapper in wrappers), True)
    return dataclasses.replace(method, name=said, all_data=all_data, **fields)


def config_of(name: str, config: Config) -> Config:
    """Return a config as a method changes it.

    Args:
        name: The name of a method with one candidate, such as `dropout-0.2`.
        config: Settings before the method is applied.

    Returns:
        The changed settings.

    Raises:
        InputError: If there is no such method.

    Example:
        >>> xr.methods.config_of("dropout-0.2", xr.Config()).model.dropout_rate
        0.2
    """
    [changed] = parse_method(name).configs(config)
    return changed


def parse_methods(names: str, *, for_cars: bool = False) -> list[Method]:
    """Return the methods of a comma-separated list, each of which may appear once."""
    listed = [name.strip() for name in names.split(",") if name.strip()]
    if not listed:
        forms = CAR_FORMS if for_cars else FORMS
        raise InputError(f"methods {names!r}: names no method; there are {', '.join(forms)}")
    methods = [parse_method(name, for_cars=for_cars) for name in listed]
    called = [method.name for method in methods]
    if repeated := {name for name in called if called.count(name) > 1}:
        raise InputError(f"methods {names}: {min(repeated)} is given twice")
    return methods
