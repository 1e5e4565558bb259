# Two commands for a newcomer, both doing all set-up themselves:
#
#   make quickstart   train XReg and its baselines side by side, with figures (about 3 minutes, set-up included)
#   make test         the tests, but for those that start processes of their own (`make test-all` runs these too)
#
# and one for every commit: make check, lint, types and a few quick tests in about a minute.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

# Every n-th mutant of those that `make mutants` tries.
EVERY ?= 1

.PHONY: quickstart test test-all check mutants faults paper bench docs lint types lock

quickstart: $(READY)
	$(BIN)/crossreg quickstart

# Kills, workers, Ray and Slurm, devices of several processes: a third of the time.
PROCESSES := tests/faults tests/launchers tests/parallel

test: $(READY)
	$(BIN)/python -m pytest -n 2 $(addprefix --ignore=,$(PROCESSES))

test-all: $(READY)
	$(BIN)/python -m pytest -n 2

# What is worth knowing before a commit.
check: lint types
	$(BIN)/python -m pytest -n 2 tests/test_defaults.py tests/test_commands.py tests/test_objectives.py \
	  tests/test_predictive.py tests/test_interface.py tests/mutants/test_list.py tests/claims/test_readme_prose.py

# Whether the tests notice: small changes of meaning, one at a time, each with the tests that must fail then.
mutants: $(READY)
	$(BIN)/python tests/mutants/run_mutants.py --every $(EVERY)

# The long part of the fault suite: hundreds of kills, stops in every phase, and a sweep of 2,000 replicas.
faults: $(READY)
	CROSSREG_FAULTS=long $(BIN)/python -m pytest -n 2 tests/faults tests/properties tests/launchers

# Every table and figure of the paper, from nothing, and the comparisons beyond it. Minutes on a GPU, days on two
# cores; stopped at any time, it goes on where it was.
paper: $(READY)
	$(BIN)/crossreg sweep paper --seeds 10 --methods all --out runs/paper
	$(BIN)/crossreg figures runs/paper
	$(BIN)/crossreg sweep paper --seeds 10 --methods xreg,dropout,ensemble --steps 30000 --out runs/paper-long
	$(BIN)/crossreg sweep paper-regimes --seeds 10 --out runs/regimes
	$(BIN)/crossreg figures runs/regimes
	$(BIN)/crossreg sweep equal-data --seeds 10 --out runs/equal-data
	$(BIN)/crossreg sweep ablation --seeds 5 --out runs/ablation
	$(BIN)/crossreg car --profile full --split-seed 1 --methods all --out runs/cars
	$(BIN)/crossreg sweep paper --seeds 5 --first-seed 200 --methods xreg,dropout,ensemble,ensemble+temperature \
	  --grid mask_seed=4,5,6 --out runs/confirmation
	$(BIN)/crossreg sweep paper-exact --seeds 10 --out runs/paper-exact-long
	$(BIN)/crossreg sweep paper-exact --seeds 10 --steps 10000 --out runs/paper-exact
	$(BIN)/crossreg sweep paper --seeds 10 --methods xreg --config benchmarks/independent_draws.yaml --out runs/gradient
	$(BIN)/crossreg sweep paper --seeds 10 --methods xreg --out runs/draws
	$(BIN)/crossreg sweep paper --seeds 10 --methods dropout --config benchmarks/paper_training.yaml \
	  --grid train_samples=1,10 --out runs/dropout-samples
	$(BIN)/crossreg sweep rollouts --seeds 10 --out runs/rollouts
	$(BIN)/crossreg sweep rollouts-equal-data --seeds 10 --out runs/rollouts-equal
	for s in diff_ks_cons diff_kdv diff_burgers; do $(BIN)/crossreg sweep rollouts --scenario $$s --seeds 10 \
	  --grid test_horizon=100 --out runs/rollouts-$$s; done
	$(BIN)/python benchmarks/publish.py runs/paper paper
	$(BIN)/python benchmarks/publish.py runs/paper-long paper --add
	$(BIN)/python benchmarks/publish.py runs/regimes regimes
	$(BIN)/python benchmarks/publish.py runs/equal-data equal_data
	$(BIN)/python benchmarks/publish.py runs/ablation ablation
	$(BIN)/python benchmarks/publish.py runs/confirmation confirmation
	$(BIN)/python benchmarks/publish.py runs/paper-exact paper_exact
	$(BIN)/python benchmarks/publish.py runs/paper-exact-long paper_exact --add
	$(BIN)/python benchmarks/publish.py runs/gradient gradient
	$(BIN)/python benchmarks/publish.py runs/dropout-samples dropout_samples
	$(BIN)/python benchmarks/publish.py runs/draws draws
	$(BIN)/python benchmarks/price.py
	$(BIN)/python benchmarks/publish_cars.py runs/cars
	$(BIN)/python benchmarks/publish_rollouts.py runs/rollouts runs/rollouts-*
	$(BIN)/python benchmarks/publish_rollouts.py --page

# The speed of a step beside its peers, whose packages stand apart from everything else.
bench: $(READY) .venv/bench/ready
	PYTHONPATH=.venv/bench $(BIN)/python benchmarks/speed.py

.venv/bench/ready: benchmarks/peers/requirements.txt $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --upgrade --require-hashes \
	  --target .venv/bench -r $<
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --upgrade --target .venv/bench \
	  $$(grep '^torch==' benchmarks/peers/requirements.in)
	touch $@

# The documentation, in site/, from docs/ and the docstrings; nothing is fetched, and a warning is an error.
docs: $(READY)
	$(BIN)/mkdocs build --strict

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/lint-imports --no-logo

types: $(READY)
	$(BIN)/pyright

# The locks hold versions and hashes for every supported Python and no address of an index. The tool that writes them
# is in the first of them. The peers keep the versions that they were measured with.
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
  --no-emit-index-url

lock: $(READY) pyproject.toml benchmarks/peers/requirements.in
	$(COMPILE) --all-extras --upgrade pyproject.toml -o requirements.lock
	$(COMPILE) --no-deps --no-emit-package torch benchmarks/peers/requirements.in -o benchmarks/peers/requirements.txt

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("crossreg needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip uninstall -q -y setuptools  # an old one comes with Python 3.11; nothing here needs it
	touch $(READY)
