"""The command line: parse, run, and turn errors into one line and an exit code.

JAX is imported only once a command has been parsed.
"""

import contextlib
import functools
import io
import os
import re
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import tyro

from crossreg.cli import actions, commands, train_actions
from crossreg.cli.flags import in_flags, read_first, with_settings
from crossreg.config import OWN_DATA, load_yaml
from crossreg.designs.car_study import FAMILY, NO_FLAGS, car_study
from crossreg.designs.presets import preset
from crossreg.errors import InputError, did_you_mean
from crossreg.machine.stopping import code_of, ends_at_once, stops_in_time

_REFUSED, _NOT_WRITTEN, _STOPPED, _PIPE = 2, 3, (130, 143), 141


def _prepare_jax() -> None:
    """Keep compiled programs between commands, so that a second run of the same shapes starts at once."""
    from crossreg.machine.compilation import keep_compiled

    keep_compiled()


_COMMANDS = {
    "train": (commands.Train, train_actions.train),
    "data": (commands.DataFiles, actions.data),
    "evaluate": (commands.Evaluate, actions.evaluate),
    "predict": (commands.Predict, actions.predict),
    "rollout": (commands.Rollout, actions.rollout),
    "export": (commands.Export, actions.export),
    "quickstart": (commands.Quickstart, train_actions.quickstart),
    "sweep": (commands.Sweep, train_actions.sweep),
    "plan": (commands.Plan, train_actions.plan),
    "table": (commands.Table, actions.table),
    "figures": (commands.Figures, actions.figures),
    "report": (commands.Report, actions.report),
    "extract": (commands.Extract, actions.extract),
    "car": (commands.Car, train_actions.car),
    "watch": (commands.Watch, actions.watch),
}


def _usage() -> str:
    lines = [f"  {name:<12}{(kind.__doc__ or '').splitlines()[0]}" for name, (kind, _) in _COMMANDS.items()]
    return "\n".join(
        [
            "usage: crossreg COMMAND [options]",
            "",
            "Calibrated uncertainty for neural PDE surrogates, learned during training.",
            "",
            *lines,
            "",
            "crossreg COMMAND --help lists the options of a command; crossreg --version prints the version.",
        ]
    )


def _train_with_defaults(arguments: list[str]) -> type[commands.Train]:
    """Return `Train` with the defaults that --preset, --config and --data set."""
    known = read_first(arguments, preset="reference", config=None, data=None, scenario=None)
    settings = preset(known.preset)
    if known.data is not None:
        if known.scenario is not None:
            raise InputError(f"--scenario {known.scenario} and --data exclude each other")
        settings = settings.replace(data=known.data, **OWN_DATA)
    if known.config is not None:
        settings = load_yaml(Path(known.config), base=settings)
    return with_settings(commands.Train, settings)


def _car_with_defaults(arguments: list[str]) -> type[commands.Car]:
    """Return `Car` with the defaults that --profile and --data set."""
    known = read_first(arguments, profile="quick", data=FAMILY)
    return with_settings(commands.Car, car_study(known.profile, data=known.data), hidden=NO_FLAGS)


_WITH_DEFAULTS = {"train": _train_with_defaults, "car": _car_with_defaults}


def _parse(name: str, arguments: list[str]):
    """Return the command's dataclass, filled from its flags."""
    kind = _WITH_DEFAULTS[name](arguments) if name in _WITH_DEFAULTS else _COMMANDS[name][0]
    read = functools.partial(tyro.cli, kind, prog=f"crossreg {name}", config=(tyro.conf.OmitArgPrefixes,))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return read(args=arguments)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            read(args=["--help"])
        message = _unknown_flag(arguments, shown.getvalue()) or _first_message(said.getvalue())
        raise InputError(f"{message} (see crossreg {name} --help)") from None


def _unknown_flag(arguments: list[str], help_text: str) -> str | None:
    """Return a message that names the flags that are not in the help, and the one that was probably meant."""
    known = set(re.findall(r"--[a-z][a-z0-9-]*", help_text))
    given = [argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("--")]
    if not (unknown := [flag for flag in given if flag not in known]):
        return None
    hint = next(filter(None, (did_you_mean(flag, sorted(known)) for flag in unknown)), "")
    return f"Unrecognized options: {', '.join(unknown)}{hint}"


def _first_message(box: str) -> str:
    """Return the message inside tyro's framed error, on one line."""
    lines = [line.strip(" │|") for line in box.splitlines() if not line.startswith(("╭", "+"))]
    # Rules separate the title, the message and a hint; the message is the first part with a colon.
    said, *_ = " ".join(lines).split("For full helptext")
    parts = [part.strip() for part in re.split(r"[─-]{5,}", said)]
    message = next((part for part in parts if ":" in part), " ".join(filter(None, parts)))
    message = re.sub(r"^Error parsing (settings(\.\w+)?: )?", "", message)
    # An optional value is tried as None too; the reason is what the other type says.
    message = re.sub(r"no type matching .*- <class '\w+'>: ", "", message)
    return re.sub(r"invalid literal for int\(\) with base 10: '(.*)'", r"\1 is not a whole number", message)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; an error is one line on the standard error.

    0 success; 2 bad input or a corrupted file; 3 a disk that is full or gone; 4 more runs diverged than --max-diverged
    allows; 5 jobs of a sweep's workers failed; 130 after Ctrl-C and 143 after SIGTERM, both with a snapshot saved; 141
    if the reader of a pipe has closed it.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else _REFUSED
    if arguments == ["--version"]:
        print(f"crossreg {version('crossreg')}")
        return 0
    name, *rest = arguments
    command = None
    try:
        with stops_in_time(_after("stopped", name)):
            if name not in _COMMANDS:
                hint = did_you_mean(name, _COMMANDS, f"; there are {', '.join(_COMMANDS)}")
                raise InputError(f"{name}: no such command{hint}")
            command = _parse(name, rest)
            _prepare_jax()
            return _COMMANDS[name][1](command) or 0
    except InputError as error:
        print(f"crossreg: {in_flags(str(error))}", file=sys.stderr)
        return _REFUSED
    except BrokenPipeError:  # the reader of a pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE
    except OSError as error:
        # A failed write names no file; it was in the command's output folder.
        out = getattr(command, "out", None) or getattr(command, "output", None)
        where = error.filename or out
        what = f"{where}: {error.strerror or error}" if where else f"{error.strerror or error}"
        print(_after(what, name, is_gone=out is not None and not out.exists()), file=sys.stderr)
        return _NOT_WRITTEN
    except KeyboardInterrupt as stop:
        print(_after("stopped", name), file=sys.stderr)
        return code_of(stop)


def _after(what: str, name: str, *, is_gone: bool = False) -> str:
    """Return the last line of a command that was interrupted, with what to do next."""
    if name not in ("train", "sweep", "car"):
        return f"crossreg: {what}"
    then = "resumes once the folder is back, and starts anew without it" if is_gone else "resumes from here"
    return f"crossreg: {what}; the same command {then}"


def run() -> NoReturn:
    """The console command."""
    try:
        code = main()
    except Exception:
        if not ends_at_once():
            raise
        traceback.print_exc()
        code = 1
    if code in _STOPPED or ends_at_once():
        # A compilation that still runs in a thread would crash the interpreter while it shuts down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
