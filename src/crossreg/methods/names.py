"""From a method's name, as a command line and a table's row have it, to what it stands for.

    base[-variant…][-all-data][+early][+temperature|+sigma-temperature][+conformal]

One method has one name, whatever it was called by: `ensemble-3` is `ensemble`, `xreg-scaled-layer` is `xreg-layer`.
A base is a change of the config, or several of which held-out data choose one; and a number of members that are
pooled. `-all-data` lets a method that needs nothing held out train on train and reg together. The wrappers act after
training. No JAX here.
"""

import dataclasses
import decimal
import difflib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crossreg.config import Config, all_settings, changed_fields
from crossreg.errors import InputError
from crossreg.methods import dropout, fixed_noise, unregularized, xreg

ENSEMBLE_SIZE = 3
WRAPPERS = ("early", "temperature", "sigma-temperature", "conformal")
ALL_DATA = "-all-data"
UNTRAINED = ("persistence", "persistence-masked")
_BASES = ("unregularized", "dropout", "dropout-reg", "ensemble", "fixed-noise")
FORMS = (
    f"xreg[-{'|'.join(xreg.VARIANTS)}|ensemble…]",
    "unregularized",
    "dropout[-P|-reg]",
    "ensemble[-M]",
    "fixed-noise[-SIGMA]",
    *UNTRAINED,
)
# What cars take: nothing persists, and what needs nothing held out may train on all data.
CAR_FORMS = tuple(f"{form}[{ALL_DATA}]" if form[:4] != "xreg" else form for form in FORMS if form not in UNTRAINED)


@dataclass(frozen=True)
class Method:
    """How a row of a table comes about.

    `candidates` are changes of the config; with more than one, the lowest NLL on held-out data decides. Each is
    trained `members` times and pooled. A method without candidates is not trained. `named` are the settings that the
    words of its name stand for, as `mm` stands for a `reg_objective`.
    """

    name: str
    candidates: tuple[Callable[[Config], Config], ...]
    members: int = 1
    early: bool = False
    temperature: bool = False
    sigma_temperature: bool = False
    conformal: bool = False
    all_data: bool = False
    named: Collection[str] = ()

    def configs(self, config: Config, changes: dict[str, Any] | None = None) -> list[Config]:
        """The config of each candidate; `changes` are made last, so that a sweep may vary what a method sets."""
        return [candidate(config).replace(**(changes or {})) for candidate in self.candidates]

    def check_settings(self, config: Config, changes: Mapping[str, Any]) -> None:
        """Refuse settings that this method would replace by its own, so that something else would be trained.

        `config` holds settings from before the method is applied: one at its default is taken as not given. `changes`
        are made after it: they may vary what the method sets, but not contradict what its name says.
        """
        asked = {name: value for name, value in changed_fields(config).items() if name not in changes}
        asked |= {name: value for name, value in changes.items() if name in self.named}
        for candidate in self.candidates:
            own = all_settings(candidate(config))
            replaced = {name: value for name, value in asked.items() if own[name] != value}
            if replaced:
                said = [f"{k} to {json.dumps(own[k])}, not {json.dumps(v)}" for k, v in replaced.items()]
                raise InputError(
                    f"--methods {self.name}: this method sets {' and '.join(said)}; leave"
                    f" {', '.join(replaced)} out, or name a method that has {'it' if len(said) == 1 else 'them'}"
                )

    @property
    def wrapped(self) -> bool:
        """Whether anything is done after training that reads held-out data."""
        return self.early or self.temperature or self.sigma_temperature or self.conformal

    def learns_on_reg(self, configs: Sequence[Config]) -> bool:
        """Whether training or the choice among candidates uses reg."""
        return len(configs) > 1 or any(config.model.learns_on_reg for config in configs)


def _number(base: str, text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low < value < high:
        raise InputError(f"--methods {base}-{text}: {text} must be a number in ({low:g}, {high:g})")
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
                raise InputError(f"--methods {name}: {' and '.join(both)} exclude each other")
        if all(part in xreg.VARIANTS for part in words) and len(set(rest)) == len(rest):
            words = xreg.canonical_words(words)
            said = "-".join(["xreg", *words, *(["ensemble"] if members > 1 else [])])
            named = frozenset(name for part in words for name in xreg.VARIANTS[part])
            return Method(said, (lambda config: xreg.configure(config, words),), members, named=named)
    if name == "unregularized":
        return Method(name, (unregularized.configure,))
    if word == "ensemble" and len(rest) <= 1:
        members = ENSEMBLE_SIZE
        if rest:
            if not rest[0].isdecimal() or not 1 <= int(rest[0]) <= 100:
                raise InputError(f"--methods {name}: an ensemble has 1 to 100 members")
            members = int(rest[0])
        return Method(
            "ensemble" if members == ENSEMBLE_SIZE else f"ensemble-{members}", (unregularized.configure,), members
        )
    if word == "dropout" and len(rest) <= 1:
        if rest == ["reg"]:
            return Method(name, tuple(_dropout(rate) for rate in dropout.RATES), named=("dropout_rate",))
        rate = _number(word, rest[0], 0.0, 1.0) if rest else dropout.RATE
        if rate == dropout.RATE:
            return Method("dropout", (_dropout(rate),))
        return Method(f"dropout-{_written(rate)}", (_dropout(rate),), named=("dropout_rate",))
    if word == "fixed" and rest[:1] == ["noise"] and len(rest) <= 2:
        sigma = _number("fixed-noise", rest[1], 0.0, float("inf")) if len(rest) == 2 else fixed_noise.SIGMA
        said = "fixed-noise" if sigma == fixed_noise.SIGMA else f"fixed-noise-{_written(sigma)}"
        return Method(said, (lambda config: fixed_noise.configure(config, sigma),))
    known = ("xreg", *(f"xreg-{w}" for w in (*xreg.VARIANTS, "ensemble")), *_BASES)
    known += UNTRAINED if forms is FORMS else ()
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError(f"--methods {name}: no such method; {hint}there are {', '.join(forms)}")


def _written(number: float) -> str:
    """All digits of a number and no exponent, whose sign would part the name."""
    return f"{decimal.Decimal(repr(number)).normalize():f}"


def _dropout(rate: float) -> Callable[[Config], Config]:
    return lambda config: dropout.configure(config, rate)


def parse_method(name: str, flag: str = "--methods", *, for_cars: bool = False) -> Method:
    """The method of that name, which a command line gave to `flag`."""
    try:
        method = _parse_method(name, CAR_FORMS if for_cars else FORMS)
        if method.all_data and not for_cars:
            raise InputError(
                f"--methods {name}: {ALL_DATA} is for cars; `crossreg sweep equal-data` compares like this"
            )
        return method
    except InputError as error:
        raise InputError(str(error).replace("--methods", flag, 1)) from None


def _parse_method(name: str, forms: Sequence[str]) -> Method:
    base, *wrappers = name.split("+")
    all_data = base.endswith(ALL_DATA)
    method = _base(base.removesuffix(ALL_DATA), forms)
    for wrapper in wrappers:
        if wrapper not in WRAPPERS:
            raise InputError(f"--methods {name}: no wrapper +{wrapper}; there are +{', +'.join(WRAPPERS)}")
    order = [w for w in WRAPPERS if w in wrappers]
    if wrappers != order:
        raise InputError(f"--methods {name}: write it as {'+'.join([base, *order])}")
    if {"temperature", "sigma-temperature"} <= {*wrappers}:
        raise InputError(f"--methods {name}: +temperature and +sigma-temperature exclude each other")
    if "early" in wrappers and not method.candidates:
        raise InputError(f"--methods {name}: {base} is not trained, so it cannot stop early")
    if all_data and (wrappers or not method.candidates or method.learns_on_reg(method.configs(Config()))):
        reason = "needs held-out data" if method.candidates else "is not trained"
        without = "+".join([method.name, *wrappers])
        raise InputError(f"--methods {name}: {without} {reason}, so that it cannot train on all data")
    said = "+".join([method.name + ALL_DATA * all_data, *wrappers])
    fields = dict.fromkeys((wrapper.replace("-", "_") for wrapper in wrappers), True)
    return dataclasses.replace(method, name=said, all_data=all_data, **fields)


def parse_methods(names: str, *, for_cars: bool = False) -> list[Method]:
    """The methods of a comma-separated list."""
    listed = [name.strip() for name in names.split(",") if name.strip()]
    if not listed:
        forms = CAR_FORMS if for_cars else FORMS
        raise InputError(f"--methods {names!r}: names none; there are {', '.join(forms)}")
    methods = [parse_method(name, for_cars=for_cars) for name in listed]
    called = [method.name for method in methods]
    if repeated := {name for name in called if called.count(name) > 1}:
        raise InputError(f"--methods {names}: {min(repeated)} stands there twice")
    return methods
