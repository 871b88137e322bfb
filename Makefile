# Two commands for a newcomer: make demo, make test. Each sets up everything it needs, once.
PYTHON ?= python3
BIN := .venv/bin
CATALOG ?= sql
# What waits runs beside what computes: two workers are right for two cores and for four.
PYTEST := $(BIN)/python -m pytest -n 2 --durations 10
# Of make test-all: which parts, one after the other. Each ends within an hour.
PART ?= base $(shell seq 64)
CHECK := $(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports
# Run commands, and print how long they took.
timed = @start=$$(date +%s); $(1); code=$$?; echo "make $@: $$(($$(date +%s) - start)) seconds"; exit $$code

# Hundreds of processes import the package; each would compile it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo airflow test test-all quick check docs faults fuzz sequences bench setup

help:  ## what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | while IFS='	' read -r name text; do printf 'make %-8s %s\n' "$$name" "$$text"; done

demo: setup  ## run the main job on TPC-H data: definitions -> DAGs -> Spark -> tables; also CATALOG=hive
	@$(BIN)/python scripts/demo.py $(CATALOG)

airflow: setup  ## start Airflow with the demo's DAGs; Ctrl-C stops it
	@$(BIN)/python scripts/run_airflow.py

test: setup  ## what every commit must pass, about half an hour: check, the base set, and a part of the large set in turn
	$(call timed,$(CHECK) && $(PYTEST) --part commit)

test-all: setup  ## the base set and every part of the large set, one after the other; PART=3 runs one
	$(call timed,(for part in $(PART); do $(PYTEST) --part $$part || exit 1; done))

quick: setup  ## for use while writing: check, and the fast tests without Spark and servers, about a minute and a half
	$(call timed,$(CHECK) && $(PYTEST) --part quick)

check: setup  ## format, lint, types, contracts between the packages
	$(CHECK)

docs: setup  ## the documentation site, without a network; a warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --nitpicky docs build/docs
	@echo "make docs: build/docs/index.html"

faults: setup  ## the tests of faults in their long form, hours
	$(BIN)/python -m pytest -m 'long or not long' --timeout 7200 tests/faults tests/system/test_airflow_faults.py

fuzz: setup  ## spoiled input of every kind, an hour; NUMBER=1 SEED=17 is one mutant
	$(BIN)/python -m tests.support.fuzzing.main --number $(NUMBER) --seed $(SEED)
fuzz: NUMBER ?= 300000
fuzz: SEED ?= 1000000

sequences: setup  ## random changes and refreshes of random queries, hours; NUMBER=1 SEED=17 is one sequence
	$(BIN)/python -W ignore -m tests.support.sequences $(SEED) $(NUMBER)
sequences: NUMBER ?= 10000
sequences: SEED ?= 10000

bench: setup  ## the benchmarks: each prints a ratio against a rival measured in the same run
	@for benchmark in benchmarks/bench_*.py; do $(BIN)/python $$benchmark || exit 1; done

setup:  ## the virtual environment, pinned, only when something changed
	@$(PYTHON) scripts/setup.py
