"""From trajectories to pairs: sources, their division into train, reg and test, observation masks, and batches.

    load.py          load: any source, a scenario, files or arrays, to Data
    apebench.py      APEBench scenarios, through cache.py
    trajectories.py  trajectories in memory, which checks.py checks and split.py divides
    observation.py   where masks are drawn and applied
    pairs.py         the pairs of a split; batches; Data
    units.py         units of a user's fields
    keys.py          constants that keep random streams apart
    formats/         one module per file format; where a new format is added
    files/           your files, divided into splits: in memory, shared by a sweep, or read while training

May import `errors`, `files`, `machine` and `config`.
"""
