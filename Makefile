# Commands for developers and CI; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A variable, since no option reaches the environment in which pip builds; newer pip needs
# the second one there.
PINS := $(CURDIR)/constraints.txt

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

# Install again when one of these files has changed.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is older than 3.11: install a newer one and run make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=$(PINS) PIP_BUILD_CONSTRAINT=$(PINS) \
		$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

.PHONY: venv
venv: $(STAMP) ## Create .venv with everything that the other targets need

.PHONY: run
run: $(STAMP) ## Replace the nodes of an embedded cluster; EXAMPLE=NAME for another bundled example
	$(BIN)/navarchos sandbox $(EXAMPLE:%=-f %)

.PHONY: test
test: $(STAMP) prometheus ## Run all tests that need no control plane
	$(BIN)/python -m pytest -q -n auto --maxprocesses=8 --dist worksteal

.PHONY: nightly
nightly: export NAVARCHOS_SEEDS ?= 10000
nightly: export NAVARCHOS_CHAOS_SECONDS ?= 600
nightly: export NAVARCHOS_OUTAGE_SECONDS ?= 120
nightly: export NAVARCHOS_ROTATION_SECONDS ?= 300
nightly: export NAVARCHOS_SCALE_NODES ?= 1000
nightly: export NAVARCHOS_LAB_ROUNDS ?= 100
NIGHTLY := -q --timeout=14400 -o faulthandler_timeout=0
nightly: $(STAMP) controlplane nodes prometheus ## Run randomized tests, chaos and outages far longer than make test and e2e do
	$(BIN)/python -m pytest $(NIGHTLY) tests/properties tests/races tests/model \
		tests/unit/operator/replacements tests/unit/operator/test_outcomes.py \
		tests/unit/operator/test_windows.py \
		tests/integration/framework/test_network.py tests/mutations \
		tests/integration/test_large_cluster.py tests/integration/test_moves.py \
		tests/nodes/test_project_image.py
	$(BIN)/python -m pytest $(NIGHTLY) --server=real tests/integration/framework/test_network.py \
		tests/integration/operator/test_kills.py \
		tests/e2e/test_operator_outages.py tests/e2e/test_operator_changes.py
	$(BIN)/python -m pytest $(NIGHTLY) tests/nodes
	$(BIN)/python -m tests.nodes $(NIGHTLY) --server=real tests/e2e tests/integration/operator

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
manifests: $(STAMP) ## Generate config/deploy and config/secure-metrics from the declared permissions
	$(BIN)/navarchos manifests --output config/deploy
	$(BIN)/navarchos manifests --controllers=rollouts,readiness-gates --output config/deploy/readiness-gates
	$(BIN)/navarchos manifests --metrics-secure --output config/secure-metrics

.PHONY: api
api: $(STAMP) ## Generate docs/api/public-names.txt from the packages' __all__
	$(BIN)/python -m tests.architecture.publicnames

.PHONY: verify
verify: $(STAMP) ## Fail when a checked-in file differs from its generated content
	$(BIN)/navarchos crds --check config/crds
	$(BIN)/navarchos manifests --check config/deploy
	$(BIN)/navarchos manifests --controllers=rollouts,readiness-gates --check config/deploy/readiness-gates
	$(BIN)/navarchos manifests --metrics-secure --check config/secure-metrics

.PHONY: rules
rules: $(STAMP) ## List the rules of docs/spec that no test pins, of SECTIONS=ST,FQ or of all
	@$(BIN)/python -m tests.rules $(SECTIONS)

.PHONY: controlplane
controlplane: $(STAMP) ## Get etcd, kube-apiserver, kubectl and the other programs of a control plane
	@$(BIN)/python -m navarchos.testing.controlplane

.PHONY: prometheus
prometheus: $(STAMP) ## Get Prometheus, for the tests of alerts, from the PATH or its Debian package
	@$(BIN)/python -m navarchos.testing.controlplane prometheus

.PHONY: images
images: $(STAMP) ## Make the images that containers on real nodes run, with this project's own; needs root
	@$(BIN)/python -m navarchos.testing.nodes.testimages

.PHONY: nodes
nodes: $(STAMP) ## Get kubelet, containerd and the other programs of real nodes, and test images; Linux
	@$(BIN)/python -m navarchos.testing.nodes

.PHONY: e2e-nodes
e2e-nodes: $(STAMP) controlplane nodes ## Run the tests on real nodes, with containers; needs Linux and root
	$(BIN)/python -m pytest -q tests/nodes
	$(BIN)/python -m tests.nodes -q --server=real tests/e2e/test_shipped_image.py

.PHONY: walkthrough
walkthrough: $(STAMP) ## Run the README's commands as written, and kubectl, on in-process clusters
	@$(BIN)/python -m navarchos.testing.controlplane kubectl
	$(BIN)/python -m pytest -q tests/e2e/test_readme.py tests/e2e/test_kubectl_apiserver.py \
		tests/e2e/test_deploy.py tests/e2e/test_scale.py

# Tests drain nodes. They must not drain the cluster of the shell's KUBECONFIG: only a
# KUBECONFIG on make's own command line counts, and no other reaches any program from here.
unexport KUBECONFIG
ON_A_CLUSTER := -q --server=real tests/e2e tests/integration/operator

.PHONY: e2e
ifeq ($(origin KUBECONFIG),command line)
e2e: $(STAMP) prometheus
	@$(BIN)/python -m navarchos.testing.controlplane kubectl
	NAVARCHOS_E2E_KUBECONFIG='$(KUBECONFIG)' $(BIN)/python -m pytest $(ON_A_CLUSTER)
else
e2e: $(STAMP) controlplane prometheus ## Run the tests that need a real control plane, or kubectl; KUBECONFIG=... names another cluster
	$(BIN)/python -m pytest -n 3 --dist loadfile --all-permissions $(ON_A_CLUSTER) \
		tests/contract tests/integration/framework tests/integration/peers
endif

.PHONY: e2e-kind
e2e-kind: $(STAMP) prometheus ## Run them on a kind cluster, with the image; needs a container engine
	@$(BIN)/python -m tests.e2e.kind $(ON_A_CLUSTER)

# ONLY=informer-sync for one row, QUICK=1 for small sizes, ROUNDS=1 for fewer turns.
BENCH_OPTIONS := $(ONLY:%=--only %) $(QUICK:%=--quick) $(ROUNDS:%=--rounds %)
# Measured programs run in an environment with the package, its requirements, and kopf as a peer.
BENCH_VENV := .venv-bench
BENCH_STAMP := $(BENCH_VENV)/.installed
$(BENCH_STAMP): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	PIP_CONSTRAINT=$(PINS) PIP_BUILD_CONSTRAINT=$(PINS) \
		$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check --editable . kopf
	@touch $@

.PHONY: bench
bench: $(STAMP) $(BENCH_STAMP) controlplane ## Measure beside client-go and others; ONLY=ROW for one row, QUICK=1 for small sizes
	@# As an installation does. Otherwise no start compiles where PYTHONDONTWRITEBYTECODE is set.
	$(BENCH_VENV)/bin/python -m compileall -q src benchmarks
	$(BIN)/python -m benchmarks $(BENCH_OPTIONS)
	$(BIN)/python -m benchmarks.pages

.PHONY: bench-guard
bench-guard: $(STAMP) ## Fail when a hot path became more expensive, by counts and ratios
	$(BIN)/python -m benchmarks.guard

.PHONY: bench-cluster
bench-cluster: $(STAMP) ## Measure a simulated cluster of 1,000 nodes and 30,000 pods
	$(BIN)/python -m benchmarks.cluster

.PHONY: clean
clean: ## Remove everything that the other targets created
	rm -rf $(VENV) $(BENCH_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
