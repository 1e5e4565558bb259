"""What `crossreg plan` is asked, as its flags. This module does not import JAX."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crossreg.config.field_types import check
from crossreg.runs.safeguards.saving import SAVE_EVERY, Saving


@dataclass(frozen=True)
class Asked:
    """The sweep to plan for; the flags `what` and `grid` are described where they are read, in `cli/commands.py`."""

    what: str
    methods: str | None = None
    """As for sweep."""
    seeds: int = 5
    """As for sweep. For example, 25000 seeds of paper make a million replicas."""
    first_seed: int = 0
    """As for sweep."""
    steps: int | None = None
    """As for sweep."""
    grid: Sequence[str] = ()
    scenario: str | None = None
    """As for sweep."""
    config: Path | None = None
    """As for sweep."""


@dataclass(frozen=True)
class Risks:
    """Slow jobs and failures."""

    straggler_rate: float = 0.0
    """Share of jobs that are stragglers, that is, run slowly."""
    straggler_slowdown: float = 3.0
    """Factor by which stragglers take longer."""
    failures_per_hour: float = 0.0
    """Random failures per device per hour."""
    save_every: float = SAVE_EVERY
    """Seconds between snapshots; a failed job resumes from its last one."""
    retries: int = 1
    """Number of times that a failed job is restarted before it is abandoned."""
    runs: int = 0
    """Number of simulations with random stragglers and failures; 0 means 5 to 100, as many as are quick."""
    seed: int = 0
    """Seed of the simulations."""

    def checked(self) -> "Risks":
        """Return self after validation."""
        rate, slowdown = self.straggler_rate, self.straggler_slowdown
        check(0 <= rate <= 1, "straggler_rate", rate, "must be a share of the jobs, in [0, 1]")
        check(1 <= slowdown < math.inf, "straggler_slowdown", slowdown, "must be a factor, 1 or more")
        for name, most in (("failures_per_hour", 1000), ("retries", 1000), ("runs", 10**5), ("seed", 2**31 - 1)):
            value = getattr(self, name)
            check(0 <= value <= most, name, value, f"must lie in 0 … {most}")
        Saving(self.save_every).checked()
        return self
