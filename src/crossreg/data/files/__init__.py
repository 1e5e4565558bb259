"""Your files as data: sources of `formats/`, divided into splits.

    split.py     which trajectories, or times, are train, reg and test
    overlap.py   a warning of steps that are in two splits
    load.py      from a source to the three splits
    streamed.py  splits too large for memory, whose pairs are read when they are needed
    pool.py      files that the runs of a sweep share, in memory
    check.py     the summary of `crossreg data check`
    likeness.py  a warning of channels that look like points of a grid

May import `formats/`, and `pairs.py`, `dataset.py`, `observation.py` and `units.py` beside it.
"""
