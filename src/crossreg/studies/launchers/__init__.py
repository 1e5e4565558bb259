"""Launchers: the programs of a sweep on local processes, as Ray tasks, or as Slurm jobs.

`settings.py` has the flags, `base.py` jobs, outcomes and the base class, and `work.py` what a worker does with a job.
`open.py` opens the launcher that is asked for: `local.py` (with `process.py`, the main program of a worker),
`ray_core.py` or `slurm.py`, which know nothing of sweeps. The driver is `studies/sweep/distributed.py`.

May import what `studies` may, and `studies/sweep/programs.py` and `scoring.py`, which workers call.

No imports here: `crossreg sweep --help` reads `settings.py` without JAX.
"""
