# Everything one does with this repository. `make` lists it. No target asks a question; each can be run again.

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
export VENV PYTHON

WORKLOAD ?= examples/workloads/mixtral_8x22B.yaml
CLUSTER ?= examples/clusters/mi355x_4nodes.yaml
TUNE ?= --seed-only --prefect
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help setup setup-run setup-dev tune test test-llm check lint format figures pins clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv with Refold in it, and ROCm's Origami where it can be built
	@scripts/setup --retry-origami

setup-run:
	@scripts/setup

setup-dev:
	@scripts/setup --dev

tune: setup-run ## the main job, on a shipped example (WORKLOAD=, CLUSTER=, TUNE= for another)
	$(BIN)/refold tune --workload $(WORKLOAD) --target-cluster $(CLUSTER) $(TUNE)

test: setup-dev ## every test
	$(PYTEST)

test-llm: setup-dev ## a search with a real, small language model (downloads 0.5 GB, takes minutes)
	$(BIN)/python -m pytest -s tests/llm/real_model.py

check: lint ## the inner loop: lint, and the tests of single parts
	$(PYTEST) -m "not slow and not prefect and not whole" --ignore tests/end_to_end --ignore tests/storage/test_kill.py

lint: setup-dev ## ruff, mypy and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup-dev ## let ruff write the code its way
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

figures: setup-run ## measure how long Refold takes on this machine
	$(BIN)/python benchmarks/figures.py

pins: ## write constraints.txt again, from a fresh environment
	@scripts/pins

clean: ## remove .venv and the caches; runs and their stores stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
