# Two commands: `make demo` shows the job at work, `make test` proves it. Each sets up what it needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PG     ?=
ONLY   ?=
PYTEST := $(BIN)/pytest --numprocesses=2 --dist=worksteal $(if $(PG),--pg-bin=$(PG)) $(ONLY)

.DEFAULT_GOAL := help
.PHONY: help demo test check lint picture bench lock clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sort | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY) ## watch expired sessions leave a private PostgreSQL, with proof
	@$(BIN)/activity-retention demo

test: $(READY) ## all tests, on a private PostgreSQL; PG=/path/to/bin picks another server
	$(PYTEST)

lint: $(READY) ## ruff, format, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test ## the gate: lint, then test

picture: $(READY) ## draw docs/images again from the real commands
	$(BIN)/python scripts/picture.py

bench: $(READY) ## measure the figures of docs/explanation/measurements.md
	$(BIN)/python scripts/bench.py $(if $(PG),--pg-bin=$(PG))

lock: ## resolve requirements.lock anew (needs uv)
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --no-header --extra embedded --extra otel --group dev pyproject.toml -o requirements.lock

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist

$(READY): requirements.lock pyproject.toml
	@echo "Setting up $(VENV) ..."
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --clear --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock && \
	  uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . ; \
	else \
	  $(PYTHON) -m venv --clear $(VENV) && \
	  $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock && \
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . ; \
	fi
	@touch $@
