# `make run` and `make test` need nothing but this file's tools/setup; see README.md.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help run test quick soak bench bench-full bench-parts docs instructions clean lint lint-python lint-rust rust python setup-run setup-test

# Everything below runs with the environment that tools/setup prepared.
ENV := source .venv/env;

help: ## What there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup-run ## Set up what is missing, then run the demo: GPU telemetry from MQTT to Spark tables
	@$(ENV) headrace demo $(ARGS)

test: setup-test ## Set up what is missing, then every check and test (under 25 minutes on 2 cores)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint-python lint-rust rust
	@$(MAKE) --no-print-directory python

quick: setup-test lint ## The checks and tests that take under two minutes
	@$(ENV) cargo test --quiet --workspace
	@$(ENV) pytest -q -n 3 --dist loadfile -m "not spark and not soak and not slow"

soak: setup-test ## The long runs: crash loops, 10,000 connections, 20 GB of records (and 26 GB of disk)
	@$(ENV) cargo test --quiet --release --workspace -- --ignored
	@$(ENV) pytest -n 3 --dist loadfile -m soak

bench: setup-test ## Speed beside the brokers found here: the rows that say most (3 to 5 minutes)
	@$(ENV) headrace bench suite --quick $(ARGS)

bench-full: setup-test ## All rows beside every broker found here, then all parts (hours)
	@$(ENV) headrace bench suite $(ARGS)
	@$(ENV) python benchmarks/run.py

bench-parts: setup-test ## Speed of single parts, each beside a baseline in the same run; ARGS="commit" for one
	@$(ENV) python benchmarks/run.py $(ARGS)

docs: setup-test ## Generated references in docs/; `make test` fails where they are stale
	@$(ENV) python tools/configuration.py docs/configuration.md
	@$(ENV) python tools/metrics.py docs/metrics.md
	@$(ENV) python tools/tables.py docs/tables.md
	@$(ENV) python tools/conformance.py docs/conformance
	@$(ENV) python tools/kafka_clients.py docs/kafka-clients.md
	@$(ENV) python tools/benchmarks.py docs/benchmarks.json docs/benchmarks.md

instructions: setup-test ## Count the instructions of hot paths, and keep the counts (CONTRIBUTING.md)
	@$(ENV) python tools/instructions.py --write

clean: ## Everything that make made, .venv included
	rm -rf .venv target dist tests/clients/node_modules src/headrace/_native*.so

setup-run:
	@tools/setup run

setup-test:
	@tools/setup test

lint: lint-python lint-rust

lint-python:
	@$(ENV) ruff check
	@$(ENV) ruff format --check
	@$(ENV) mypy
	@$(ENV) lint-imports
	@$(ENV) python -m mypy.stubtest headrace._native

lint-rust:
	@$(ENV) cargo fmt --all --check
	@$(ENV) cargo clippy --quiet --workspace --all-targets -- -D warnings

rust:
	@$(ENV) cargo test --quiet --workspace

python:
	@$(ENV) pytest -n 4 --dist loadfile -m "not soak"
