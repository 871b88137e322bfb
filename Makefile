# Two commands for a newcomer: make demo, make test. Each sets up everything it needs, once.
PYTHON ?= python3
BIN := .venv/bin
CATALOG ?= sql

.PHONY: demo test airflow faults bench setup

demo: setup  ## run the main job on TPC-H data: definitions -> DAGs -> Spark -> tables; also CATALOG=hive
	@$(BIN)/python scripts/demo.py $(CATALOG)

airflow: setup  ## start Airflow with the demo's DAGs; Ctrl-C stops it
	@$(BIN)/python scripts/run_airflow.py

test: setup  ## everything that must be green
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

faults: setup  ## the tests of faults in their long form
	$(BIN)/python -m pytest -m 'long or not long' --timeout 7200 tests/faults tests/system/test_airflow_faults.py

bench: setup  ## the benchmarks: each prints a ratio against a rival measured in the same run
	@for benchmark in benchmarks/bench_*.py; do $(BIN)/python $$benchmark || exit 1; done

setup:
	@$(PYTHON) scripts/setup.py
