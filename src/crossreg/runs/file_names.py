"""The names of files and folders in the folders of runs, sweeps and car experiments. Imports nothing."""

# Of runs and of car experiments.
CONFIG, VERSIONS = "config.yaml", "versions.json"
# Of runs.
HISTORY, METRICS, MODEL, FIELDS, MASK = "metrics.jsonl", "metrics.json", "model.npz", "fields.json", "mask.npy"
TEST_FIELDS = "test_fields.npz"
ROLLOUT, ROLLOUT_FIELDS = "rollout.json", "rollout_fields.npz"
# Of sweeps: what was asked for, and the folders of trained programs and of jobs.
PLAN, ROWS, TRAINED, JOBS = "sweep.json", "rows.jsonl", "trained", "jobs"
# Of car experiments. The summary is a file of quickstarts too.
SUMMARY, TEST_CARS = "summary.json", "test_cars.npz"
PREDICTIONS, HISTORIES, MODELS = "predictions", "history", "models"
FIGURES = "figures"  # where figures go unless another folder is named
# Of all.
MANIFEST, SNAPSHOTS, LOCK = "manifest.json", "snapshots", "lock"
