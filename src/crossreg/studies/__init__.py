"""Studies: trainings that end in scores, in a folder.

`train.py` trains one run (`crossreg train`). `sweep/` trains and scores many trials (`crossreg sweep`), `launchers/`
runs their programs on workers, and `planning/` predicts what a sweep takes on other devices (`crossreg plan`).

May import the packages before it (`crossreg/__init__.py` has the order).
`launchers/__init__.py` and `launchers/settings.py` stay free of JAX.
"""
