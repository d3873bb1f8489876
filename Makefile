# make            lists the targets
# make demo       sets everything up and runs the main job on a real broker
# make test       sets everything up, then lint, types and every test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BROKER_VERSIONS := 3.7.2 3.9.1 4.3.1

.PHONY: help dev demo test test-fast test-brokers lint types bench docs clean
help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: $(READY)  ## .venv: editable, built, everything installed

$(READY): setup.py pyproject.toml constraints.txt $(wildcard fastpath/*.pyx fastpath/*.pxd)
	@$(PYTHON) .ci/preflight.py
	@test -x $(BIN)/python || { echo "== creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "== installing kohort (editable) and its tools; the first time downloads about 600 MB"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt "setuptools>=77" "Cython>=3.1" wheel
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e ".[dev]"
	@touch $@

demo: dev  ## the main job: broker, group of three, a kill, Spark, equal totals, a report
	@$(BIN)/kohort demo

test: dev lint types  ## everything a change must pass
	@$(BIN)/python -m pytest

test-fast: dev  ## what needs no broker
	@$(BIN)/python -m pytest -m "not broker"

test-brokers: dev  ## the broker tests on each of BROKER_VERSIONS
	@for version in $(BROKER_VERSIONS); do echo "== Apache Kafka $$version"; \
	  KOHORT_BROKER_VERSION=$$version $(BIN)/python -m pytest -m broker || exit 1; done

lint: dev  ## ruff and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@PYTHONPATH=src $(BIN)/lint-imports

types: dev  ## mypy, strict
	@$(BIN)/mypy
	@$(BIN)/mypy tests benchmarks examples

bench: dev  ## ours and the peers in one run; JSON goes to benchmarks/results
	@$(BIN)/python -m benchmarks

docs: dev  ## pages and pictures made from code
	@$(BIN)/python docs/make.py

clean:  ## remove what was built
	rm -rf build out $(VENV) *.egg-info src/*.egg-info fastpath/*.c fastpath/*.so
