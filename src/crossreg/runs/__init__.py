"""All that lies on disk: folders of runs, sweeps and car experiments, each with one reader and one writer.

- The names of all files: `file_names`. The kind of a folder: `kinds`.
- Runs: `run_folder` (read), `run_writer` (written), `final_scores`, `input_range`, `fields/` (predictions of some test
  trajectories), `prediction` (a run applied to new fields), `forecasting` (a run fed its own output, and its scores by
  lead, which `forecasts/scores.py` computes).
- Sweeps: `sweep_folder` (what was asked for, and the rows), `programs` (trained models), `archive` (one of them).
- Car experiments: `car_folder`.
- In all folders: `safeguards/` (locks, the SHA-256 of every file, and snapshots: where they are written, and where a
  killed training resumes), and `older_names` (files of older versions).

May import the packages before it (`crossreg/__init__.py` has the order).
"""
