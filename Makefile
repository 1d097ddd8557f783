.DEFAULT_GOAL := help
VENV ?= .venv
PYTHON ?= python3
PIP_INSTALL = pip install --quiet --disable-pip-version-check --constraint constraints.txt
# where other servers are built for bench-peers: some GB
PEERS ?= $(HOME)/.cache/tenantry-peers
export PATH := $(abspath $(VENV))/bin:$(PATH)
# a process per core, of which each computes with one thread; fixtures of a file are made once
TESTS_ON_ALL_CORES = OMP_NUM_THREADS=1 python -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile

.PHONY: help run test test-kernels test-pools test-workers test-recipes test-browser test-ledger test-timing test-conformance record-clients check lint typecheck format cov accuracy bench bench-peers bench-pools \
	bench-fairness bench-text bench-weights bench-gpu bench-workers build clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

run: $(VENV)/.runtime ## Set up what is missing, then serve both models on this machine and ask each something
	workerctl dev --demo

test: $(VENV)/.development ## Set up what is missing, then run the tests that this machine can run
	$(TESTS_ON_ALL_CORES)

test-kernels: $(VENV)/.development ## Compare models and kernels with other implementations; run those for GPUs in Triton's interpreter, and compile them
	$(TESTS_ON_ALL_CORES) -m "models or triton"

test-pools: $(VENV)/.development ## Run prefill and decode nodes as processes, kill some, and compare every answer
	$(TESTS_ON_ALL_CORES) -m cluster

test-workers: $(VENV)/.development ## Run workers in isolates, and try to get out of them
	$(TESTS_ON_ALL_CORES) -m "workers or isolates"

test-recipes: $(VENV)/.development ## Train a little, judge it, and run each benchmark small
	$(TESTS_ON_ALL_CORES) -m "recipes and not cluster"

test-browser: $(VENV)/.development .venv-phoenix/.installed ## Look at the console in a real browser, and at traces in a real backend
	TENANTRY_PHOENIX=$(abspath .venv-phoenix) python -m pytest -m browser

test-ledger: $(VENV)/.development ## Put edges and nodes under load, kill some, and compare the ledger with what clients saw
	python -m pytest -m ledger

test-timing: $(VENV)/.development ## Measure whether the time of an answer tells one tenant anything of another
	python -m pytest -m timing

test-conformance: $(VENV)/.development .venv-clients/.installed ## Run other projects' clients, unmodified, against workerctl dev
	TENANTRY_CLIENTS=$(abspath .venv-clients) python -m pytest -m conformance

record-clients: $(VENV)/.development .venv-clients/.installed ## Record anew what other projects' clients send
	TENANTRY_CLIENTS=$(abspath .venv-clients) PYTHONPATH=tests python tests/conformance/record.py

.venv-clients/.installed: tests/conformance/requirements.txt tests/conformance/node/package-lock.json
	test -x .venv-clients/bin/python || $(PYTHON) -m venv .venv-clients
	.venv-clients/bin/pip install --quiet --disable-pip-version-check --requirement tests/conformance/requirements.txt
	cd tests/conformance/node && npm ci --no-audit --no-fund
	touch $@

# a backend for traces: some 850 MB
.venv-phoenix/.installed: tests/browser/requirements.txt
	test -x .venv-phoenix/bin/python || $(PYTHON) -m venv .venv-phoenix
	.venv-phoenix/bin/pip install --quiet --disable-pip-version-check --requirement tests/browser/requirements.txt
	touch $@

check: lint typecheck ## Check format, lint and types

# torch goes first and alone, so that the constraint decides which build is taken
$(VENV)/.torch: constraints.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) torch
	touch $@

# compiles the CPU's kernels too, lest the first start do it; tests need them in both types
$(VENV)/.runtime: $(VENV)/.torch pyproject.toml
	$(PIP_INSTALL) --editable '.[runtime]'
	python -m tenantry_runtime.models.compile_ahead runtime/tenantry_runtime/checkpoints/*
	touch $@

$(VENV)/.development: $(VENV)/.torch pyproject.toml | $(VENV)/.runtime
	$(PIP_INSTALL) --editable '.[runtime,recipes,references,dev]'
	python -m tenantry_runtime.models.compile_ahead --dtype bfloat16 runtime/tenantry_runtime/checkpoints/*
	touch $@

lint: $(VENV)/.development
	ruff format --check .
	ruff check .

typecheck: $(VENV)/.development
	mypy
	pyright
	pyright --ignoreexternal --verifytypes tenantry

format: $(VENV)/.development ## Rewrite the code in the house format
	ruff check --fix --quiet .
	ruff format .

cov: $(VENV)/.development ## Run the tests with branch coverage
	coverage run -m pytest
	coverage run --append -m pytest -m "models and not triton"
	coverage report

accuracy: $(VENV)/.development ## Judge the nano models on held-out tasks
	python -m tenantry_recipes.nano.evaluate runtime/tenantry_runtime/checkpoints/kimi-k2.6-nano
	python -m tenantry_recipes.nano.evaluate runtime/tenantry_runtime/checkpoints/glm-5.2-nano

bench: $(VENV)/.development ## Compare the nano models' speed with transformers' on this machine
	python -m tenantry_recipes.bench.nano $(BENCH_OPTIONS)

bench-peers: $(VENV)/.development ## Compare with llama.cpp's server and vLLM, which are built under PEERS first
	python -m tenantry_recipes.bench.peers --work $(PEERS) $(BENCH_OPTIONS)

bench-pools: $(VENV)/.development ## Measure hand-offs between node processes, and streams through them
	python -m tenantry_recipes.bench.pools $(BENCH_OPTIONS)

bench-workers: $(VENV)/.development ## Measure workers: starts, requests, memory, streams
	python -m tenantry_recipes.bench.workers $(BENCH_OPTIONS)

bench-fairness: $(VENV)/.development ## Compare fairness with other orders of service, on a simulated clock
	python -m tenantry_recipes.bench.fairness $(BENCH_OPTIONS)

bench-text: $(VENV)/.development ## Measure chat templates, tokenizers and parsers
	python -m tenantry_recipes.bench.text $(BENCH_OPTIONS)

bench-weights: $(VENV)/.development ## Compare INT4, FP8 and BF16 decode at GLM's widths on this CPU
	python -m tenantry_recipes.bench.weight_formats $(BENCH_OPTIONS)

bench-gpu: $(VENV)/.development ## Check the kernels on this machine's GPU against their references, then time them
	python -m tenantry_recipes.bench.gpu $(BENCH_OPTIONS)

build: $(VENV)/.development ## Build the sdist and the wheel
	$(PIP_INSTALL) build
	python -m build

clean: ## Remove what the other targets made, but not the environment
	rm -rf dist build .coverage .mypy_cache .pytest_cache .ruff_cache
