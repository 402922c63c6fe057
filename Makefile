# Everything a person or CI needs; `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

# Installed again when what is installed changed.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is older than 3.11: install a newer one and say make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

.PHONY: venv
venv: $(STAMP) ## Set up .venv with everything that the other targets need

.PHONY: run
run: $(STAMP) ## Replace the nodes of an embedded cluster, and watch it happen
	$(BIN)/navarchos sandbox

.PHONY: test
test: $(STAMP) ## Run all tests that need no other program
	$(BIN)/python -m pytest -q

.PHONY: lint
lint: $(STAMP) ## Check style, formatting and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

.PHONY: types
types: $(STAMP) ## Check types, strictly
	$(BIN)/mypy

.PHONY: crds
crds: $(STAMP) ## Generate config/crds from the types
	$(BIN)/navarchos crds --output config/crds

.PHONY: manifests
manifests: $(STAMP) ## Generate config/deploy from the declared rights
	$(BIN)/navarchos manifests --output config/deploy

.PHONY: verify
verify: $(STAMP) ## Fail when a generated file differs from what is checked in
	$(BIN)/navarchos crds --check config/crds
	$(BIN)/navarchos manifests --check config/deploy

.PHONY: controlplane
controlplane: $(STAMP) ## Get etcd, kube-apiserver, kubectl and the rest of a control plane
	@$(BIN)/python -m navarchos.testing.controlplane

.PHONY: walkthrough
walkthrough: $(STAMP) ## Run the README's commands as written, and kubectl, on in-process clusters
	@$(BIN)/python -m navarchos.testing.controlplane kubectl
	$(BIN)/python -m pytest -q tests/e2e/test_readme.py tests/e2e/test_kubectl_apiserver.py \
		tests/e2e/test_deploy.py tests/e2e/test_scale.py

.PHONY: e2e
e2e: $(STAMP) controlplane ## Run the tests that need a real control plane, or kubectl
	$(BIN)/python -m pytest -q tests/e2e
	$(BIN)/python -m pytest -q --server=real tests/contract

.PHONY: bench
bench: $(STAMP) ## Measure the work queue, the decoder and a rollout
	$(BIN)/python benchmarks/run.py

.PHONY: clean
clean: ## Remove what the other targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
