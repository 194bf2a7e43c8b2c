# Everything runs from a virtual environment that this file makes; nothing is installed by hand.

VENV ?= .venv
BIN = $(VENV)/bin

# The first interpreter that is new enough; a name found by the shell may be too old or a broken shim.
PYTHON ?= $(shell for name in python3.11 python3 python3.12 python3.13; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo "$$name"; break; }; done)

PYTEST_ARGS ?=
# Beyond a few workers the tests only wait for each other's memory bandwidth.
PYTEST = "$(BIN)/python" -m pytest -n auto --maxprocesses 8
# Scripts carry no suffix, so the linters have to be told of them.
SCRIPTS = $(shell grep -rlI '^\#!.*python' scripts)
DEMO_OUT ?= demo-out

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint format types layers models constraints clean

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | awk -F'|' '{printf "%-12s %s\n", $$1, $$2}'

setup: $(VENV)/.installed ## Make the virtual environment and install the package into it.

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { \
		echo "error: no Python 3.11 or newer found; install it (Debian: apt install python3.11) or run: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: $(PYTHON) cannot be run or is older than Python 3.11; run: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "error: $(PYTHON) lacks the venv module; install it (Debian: apt install $(notdir $(PYTHON))-venv) and run make again" >&2; exit 1; }
	@"$(BIN)/python" -c '' 2>/dev/null || "$(PYTHON)" -m venv "$(VENV)"
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch "$@"

demo: setup ## Tune a real model to its result (at most three minutes of tuning).
	@rm -rf "$(DEMO_OUT)"
	model=$$("$(BIN)/python" scripts/fetch_models --path ppocr-v4-det) && \
	"$(BIN)/routewright" tune "$$model" --shape x:1x3x320x320 --loss cos --bound 1e-2 \
		--budget 2m --seed 0 --out "$(DEMO_OUT)"

test: setup models ## Run the tests, less the slow ones.
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-all: setup models ## Run all tests.
	$(PYTEST) $(PYTEST_ARGS)

lint: setup ## Check style.
	"$(BIN)/python" -m ruff check . $(SCRIPTS)
	"$(BIN)/python" -m ruff format --check . $(SCRIPTS)

format: setup ## Mend style where that is mechanical.
	"$(BIN)/python" -m ruff check --fix . $(SCRIPTS)
	"$(BIN)/python" -m ruff format . $(SCRIPTS)

types: setup ## Check types.
	"$(BIN)/python" -m mypy

layers: setup ## Check that no module imports one of a higher layer.
	"$(BIN)/lint-imports"

models: setup ## Fetch the models that tests, demo and benchmarks use; nothing to do where they are.
	"$(BIN)/python" scripts/fetch_models

constraints: setup ## Pin what is installed now.
	{ head -n 1 constraints.txt; "$(BIN)/python" -m pip freeze --disable-pip-version-check --exclude-editable; } \
		> .constraints.new && mv .constraints.new constraints.txt

clean: ## Remove what this file made, except fetched models.
	@test ! -e "$(VENV)" || test -f "$(VENV)/pyvenv.cfg" || { \
		echo "error: $(VENV) is no virtual environment; not removed" >&2; exit 1; }
	rm -rf "$(VENV)" "$(DEMO_OUT)" build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
