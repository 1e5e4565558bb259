"""`crossreg sweep` and `crossreg extract`: trials are trained, scored, and written as rows of a folder.

`run.py` trains and scores what is missing, `open_work.py` finds what that is, `programs.py` groups trainings into
programs and trains them, and `scoring.py` makes rows of trained replicas. `distributed.py` is the driver of workers.
`extract.py` copies one model into a run folder, and `fields.py` has the test fields for reports.

May import what `studies` may, and `studies/launchers`.
"""
