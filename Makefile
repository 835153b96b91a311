# Everything a person or CI does here. `make run` and `make test` need nothing but Debian or Ubuntu with Python 3.11+.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SOURCE ?= $(shell test -e /dev/nvidiactl && echo nvml || echo sim)
LISTEN ?= 127.0.0.1:9400
CI     ?=
# Bytecode is worth keeping: the suite starts thousands of Pythons, and pytest rewrites each test file once, not at each start.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest
# Many tests wait for processes, so more workers than cores; each takes tests from the one that has most left.
WORKERS ?= --numprocesses $(shell expr 2 \* $$(nproc) + 1) --dist worksteal

# Each commit is tried with an order and with examples of its own; a second run of the same commit repeats them.
SEED ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1)

.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gpuwatch needs Python 3.11 or newer; this is $$($(PYTHON) --version); set PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || ./scripts/system-packages python3-venv
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[kubernetes]'
	@touch $@

$(VENV)/installed-test: $(VENV)/installed Makefile requirements-test.lock
	@./scripts/system-packages gcc libc6-dev prometheus prometheus-alertmanager systemd
	@./scripts/system-packages chromium fonts-dejavu-core || { test -z "$(CI)" && echo "going on without: the tests that need a browser are skipped"; }
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-test.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

run: $(VENV)/installed  ## run the agent: on the GPUs of this machine, or on the simulator where there are none; ARGS="--socket ..."
	@$(BIN)/gpuwatch --source $(SOURCE) agent --listen $(LISTEN) $(ARGS)

dev: $(VENV)/installed-test parts  ## all that a change needs, and Git's hooks: format and lint before a commit, `make check` before a push
	git config core.hooksPath scripts/hooks

test: $(VENV)/installed-test parts check  ## install what the tests need, then run all that guards a change: 8 minutes
	$(PYTEST) $(WORKERS) -m "not gpu and not bench and not slow"

test-slow: $(VENV)/installed-test parts  ## every seed, every mutation proof, another order and other examples with coverage
	@$(BIN)/python -m tests.e2e.otelcol || { test -z "$(CI)" && echo "going on without: the tests that need it are skipped"; }
	$(PYTEST) $(WORKERS) -m "slow and not gpu and not bench"
	$(MAKE) random
	$(MAKE) coverage
	./scripts/test-dependencies $(WORKERS)
	$(MAKE) test-node

constraints: $(VENV)/installed-test  ## write down the versions that tests run with, and the hashes of those in the image
	$(BIN)/python -m pip install --quiet uv
	./scripts/constraints $(BIN)/uv

coverage: $(VENV)/installed-test  ## branches that tests reach in their own process, in a random order
	$(PYTEST) $(WORKERS) --random-order-seed=$(SEED) --cov --cov-report=term:skip-covered -m "not gpu and not bench and not slow" \
		$(addprefix tests/,agent cli collect config consents diagnose golden health host http kube metrics model process remediation repair) \
		$(addprefix tests/,rightsizing sim storage tuning workloads)

random: $(VENV)/installed-test  ## new examples for every property; what they find becomes an @example
	HYPOTHESIS_PROFILE=random $(PYTEST) --numprocesses auto --dist worksteal --hypothesis-seed=$(SEED) -m "hypothesis and not gpu and not bench and not cluster"

parts: $(VENV)/installed-test  ## the real parts of the tests: kube-apiserver and etcd, built once (minutes), and tools for images
	@$(BIN)/python -m tests.cluster.binaries || { test -z "$(CI)" && echo "going on without: the tests that need them are skipped"; }
	@./scripts/system-packages buildah debootstrap runc rpm || { test -z "$(CI)" && echo "going on without: the tests that need them are skipped"; }

check: $(VENV)/installed-test  ## format, lint, types, layers, plain English
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.prose

generate: $(VENV)/installed-test site  ## regenerate docs and golden files; a test fails where they differ
	$(BIN)/python -m tests.metrics.page > docs/metrics.md
	$(BIN)/python -m tests.health.checks_page > docs/checks.md
	$(BIN)/python -m tests.config.page > docs/configuration.md
	$(BIN)/python -m tests.rightsizing.findings.page > docs/rightsizing-findings.md
	$(BIN)/python -m tests.diagnose.page > docs/diagnose-checks.md
	$(BIN)/python -m tests.cli.help_page > docs/cli.md
	$(BIN)/python -m tests.harms.page > docs/harms.md
	$(BIN)/python -m alerts.prometheusrule
	$(BIN)/python -m alerts.inhibition
	$(BIN)/python -m alerts.page > docs/alerts.md
	$(BIN)/python -m dashboards.source
	$(BIN)/python -m deploy.helm.generate
	$(BIN)/python -m tests.metrics.golden_pages
	$(BIN)/python -m tests.cli.tune.goldens

site:  ## name the address, image and runbooks of this copy in all files: URL=... IMAGE=... RUNBOOKS=... VERSION=...
	@$(PYTHON) -m deploy.site URL=$(URL) IMAGE=$(IMAGE) RUNBOOKS=$(RUNBOOKS) VERSION=$(VERSION)

docs: $(VENV)/installed-test  ## the documents as a site, in build/docs; a link or heading that is not there is an error
	$(BIN)/python -m pip install --quiet --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file deploy/docs/mkdocs.yml
	@echo "the site is in build/docs: $(BIN)/python -m http.server --directory build/docs"

preview: $(VENV)/installed-test  ## draw the dashboards from simulated fleets into docs/images, with Grafana's own components
	@./scripts/system-packages chromium pngquant
	$(BIN)/python -m dashboards.preview

bench: $(VENV)/installed-test  ## compare with nvitop-exporter and prometheus-client; prints both
	$(BIN)/python -m tests.bench

bench-tuner: $(VENV)/installed-test  ## the energy tuner against an oracle and rivals, on known workloads; prints the table
	$(BIN)/python -m tests.bench.tuner

bench-rightsizing: $(VENV)/installed-test  ## right-sizing and rivals on fleets whose future is known; prints the tables
	$(BIN)/python -m tests.bench.rightsizing

soak: $(VENV)/installed-test  ## 24 simulated hours, accelerated; memory, threads and files must stay flat
	$(BIN)/python -m tests.bench.soak

SECONDS ?= 600
chaos: $(VENV)/installed-test parts  ## real processes, API server and fake driver among failures for SECONDS; SEED=N repeats a run
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) --seed $(SEED)

test-gpu: $(VENV)/installed-test  ## tests that read a real GPU; nothing is ever changed
	$(BIN)/python -m pytest -m gpu tests/gpu -s

test-cluster: $(VENV)/installed-test parts  ## all tests with a real kube-apiserver
	$(PYTEST) -m cluster tests/cluster

test-node: $(VENV)/installed-test parts  ## gpuwatch on a real node: kubelet, scheduler, controllers, containerd, NVIDIA's device plugin
	@./scripts/system-packages containerd containernetworking-plugins busybox-static iproute2 || { test -z "$(CI)" && echo "going on without: the tests are skipped"; }
	@$(BIN)/python -m tests.node.parts || { test -z "$(CI)" && echo "going on without: the tests are skipped"; }
	$(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder -m node tests/node -v

test-image: $(VENV)/installed-test parts  ## build the container image on a base made here, and run it as the deployment does
	$(PYTEST) -m image tests/image

sbom: $(VENV)/installed-test  ## what the image holds besides its base: sbom.cdx.json (CycloneDX), licenses.txt; the image has its own
	rm -rf .cache/image && $(PYTHON) -m venv .cache/image
	.cache/image/bin/python -m pip install --quiet --require-hashes --no-deps --only-binary :all: -r requirements.lock
	.cache/image/bin/python -m pip install --quiet --no-deps .
	.cache/image/bin/python -m pip uninstall --quiet --yes pip setuptools
	./scripts/sbom .cache/image/lib/python3*/site-packages > sbom.cdx.json
	./scripts/sbom --licenses .cache/image/lib/python3*/site-packages > licenses.txt

dist: $(VENV)/installed-test sbom  ## what is released, in dist/: packages, chart, manifests, alerts, bill of materials, checksums
	rm -rf dist
	$(BIN)/python -m deploy.release dist

SIGN ?=
release: $(VENV)/installed-test sbom  ## as dist, of one version, with image and notes: VERSION=1.2.3 BASE=python:3.13-slim-bookworm@sha256:... SIGN="minisign -Sm"
	@test -n "$(VERSION)" || { echo 'which version? make release VERSION=1.2.3'; exit 2; }
	rm -rf dist
	BASE="$(BASE)" $(BIN)/python -m deploy.release dist $(VERSION)
	$(if $(SIGN),$(SIGN) dist/SHA256SUMS,@echo 'not signed: SIGN="minisign -Sm" signs dist/SHA256SUMS with your key')

image: $(VENV)/installed  ## the container image as files that need no registry, in dist/: BASE=python:3.13-slim-bookworm@sha256:...
	@./scripts/system-packages buildah
	BASE="$(BASE)" $(BIN)/python -m deploy.image dist

release-check: $(VENV)/installed-test  ## known vulnerabilities of all that is shipped, sizes of installs, and whether two builds are the same
	$(BIN)/python -m deploy.audit
	$(BIN)/python -m deploy.sizes
	$(PYTEST) tests/deploy/test_release.py tests/image/test_pins.py

mutate: $(VENV)/installed-test  ## change the deciding modules in small ways; say which changes no test notices
	$(BIN)/python -m tests.mutation

FUZZ_SECONDS ?= 600
fuzz: $(VENV)/installed-test  ## fuzz each reader of foreign bytes for FUZZ_SECONDS, guided by coverage; TARGETS="http views" chooses
	$(BIN)/python -m pip install --quiet --group fuzz
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(TARGETS)

clean:  ## remove what the targets made
	rm -rf $(VENV) .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache/dependencies

.PHONY: chaos dev help run test test-slow constraints coverage random parts check generate site docs preview bench bench-tuner bench-rightsizing soak test-gpu test-cluster test-node test-image image sbom dist release release-check mutate fuzz clean
