# Everything a contributor calls. `make` alone lists the targets; noxfile.py says what each check is.
#
# Only make, git and the right to install packages (root or sudo) are needed on a fresh Debian or Ubuntu: the first target that
# needs Python finds one, or installs it with apt, and makes .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
STAMP := $(VENV)/.installed
NOX = PATH="$(BIN):$$PATH" $(BIN)/nox --non-interactive --session
STAGE := tools/stage

# Compiled once: where an environment forbids it, each of thousands of processes compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# The floor: .venv holds ansible-core 2.19, which runs on each of these. The unit and packaging tests run on the newest line too,
# in an environment that nox makes (see LINES in noxfile.py).
PYTHONS := 3.11 3.12 3.13

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: venv
venv: $(STAMP) ## make .venv with gpuwright and everything the tests need

$(STAMP): pyproject.toml src/gpuwright/__init__.py
	@python=$$(tools/find-python --install $(PYTHONS)); \
	if [ ! -x $(BIN)/python ]; then echo "make: $(VENV) from $$python"; "$$python" -m venv $(VENV); fi
	@echo "make: installing gpuwright and its development tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]' 'ansible-core>=2.19,<2.20'
	@touch $@

.PHONY: test
test: venv ## what every change must pass: each behaviour once, the quickest first; stops at the first check that fails
	@$(STAGE) "Tools" $(MAKE) --no-print-directory tools
	@$(MAKE) --no-print-directory stage-unit
	@# Molecule and packaging wait half of the time, for a node and for pip: what only computes runs beside them.
	@$(MAKE) --no-print-directory --jobs 3 stage-lint stage-typing stage-molecule stage-sanity stage-packaging stage-properties
	@$(STAGE) --last "Integration" $(MAKE) --no-print-directory integration

.PHONY: stage-unit stage-lint stage-typing stage-molecule stage-sanity stage-packaging stage-properties
stage-unit stage-lint stage-typing stage-molecule stage-sanity stage-packaging stage-properties: stage-%:
	@$(STAGE) "$*" $(MAKE) --no-print-directory $*

.PHONY: soak
soak: venv tools ## what takes long, in parts: all of them, `make soak PART=2`, `PART=driver`, or `PART=turn` for the one whose turn it is of those that the change affects
	@$(STAGE) "Soak: $(or $(PART),all)" env $(NOX) soak -- $(PART)

.PHONY: release-check
release-check: venv ## what a tag needs: every part of the soak, then `make test` (hours)
	@$(MAKE) --no-print-directory soak
	@$(MAKE) --no-print-directory test

.PHONY: tools
tools: venv ## the programs that the tests need on this machine, the container engine included (apt, as root or by sudo)
	@$(BIN)/python -c 'from tests.sim import engine; engine.ensure_for_tests()'

.PHONY: lint typing sanity molecule machine integration metal unit packaging properties build mutants unprotected test-changed
lint: venv ## ruff, yamllint, ansible-lint, shell scripts, changelog
	@$(NOX) lint
typing: venv ## mypy, strict
	@$(NOX) typing
sanity: venv ## ansible-test sanity on the built and installed collection
	@$(NOX) sanity
molecule: venv ## the roles in a container: the scenario default; `make molecule ONE=distro` another one
	@$(NOX) molecule -- $(ONE)
machine: venv ## what the machines in QEMU begin with, made where it is not there yet
	@$(BIN)/python -m tests.sim metal prepare
integration: venv ## whole runs of the command line on simulated nodes; `make integration ONE=test_cut` all of one file
	@$(NOX) integration -- $(if $(ONE),tests/integration/$(ONE:.py=).py)
metal: venv ## the real kernel in QEMU alone, and with its power cut (the cut is in no part of the soak: it takes long)
	@$(NOX) metal
unit: venv ## the unit tests
	@$(NOX) unit
properties: venv ## what holds for any machine and any wish, on the same examples each time
	@$(NOX) properties
packaging: venv ## the wheel, the editable install, the bare clone and the collection, built and used
	@$(NOX) packaging
test-changed: venv ## what a change touches: `make test-changed`, or `SINCE=COMMIT` for another state than the branch's beginning
	@$(NOX) changed -- $(SINCE)
mutants: venv ## change one thing in the resolver, the plan, the components or the judges at a time, and tell what no test notices (an hour)
	@$(NOX) mutants -- $(ARGS)
unprotected: venv ## take one protection away at a time, and tell which the tests beside it do not notice (half an hour)
	@$(BIN)/python -m tools.unprotected $(ARGS)
build: venv ## the collection's tarball, the sdist and the wheel, in dist/
	@$(NOX) build

.PHONY: quick
quick: venv ## the unit tests that take no time, on this Python only; for while you work
	@$(BIN)/pytest -q -m "not slow and not sim" tests/unit

.PHONY: rules
rules: venv ## write what is generated: what follows from the components, rules.json, roles.json, types, schemas, units, docs/matrix.md, docs/facts.md, alerts, dashboards, pictures
	@$(BIN)/python tools/build_components.py
	@$(BIN)/python tools/build_rules.py
	@$(BIN)/python tools/build_matrix.py
	@$(BIN)/python tools/build_roles.py
	@$(BIN)/python tools/build_types.py
	@$(BIN)/python tools/build_schemas.py
	@$(BIN)/python tools/build_units.py
	@$(BIN)/python tools/build_pictures.py
	@$(BIN)/python tools/build_monitoring.py
	@$(BIN)/python tools/build_dashboards.py

.PHONY: compat-verify compat-refresh world measured assembled
compat-verify: venv ## hold the tables of compat/ against the wheels of the Python index that pip is configured for
	@$(BIN)/python -m tools.compat_verify
world: venv ## hold what is said of Debian's own packages, in compat/ and in the stand-ins, against Debian's archive (two minutes)
	@$(NOX) world

measured: venv ## hold what `size` counts of memory against PyTorch on this machine's CPU, and other tools (three minutes and a large download)
	@$(NOX) measured
assembled: venv ## assemble the programs of the load on a card for every generation, by the ptxas of NVIDIA's wheels (half a minute, 200 MB)
	@$(NOX) assembled
compat-refresh: venv ## bring compat/ up to what upstreams publish: a change for you to read
	@$(BIN)/python -m tools.compat_refresh
	@$(MAKE) --no-print-directory rules

.PHONY: card
card: ## on a machine with a card, without network: all that meets it, in eight minutes, and what is other than in the tests; `OUT=DIR`
	@python=$(BIN)/python; "$$python" -c '' 2>/dev/null || python=$$(tools/find-python $(PYTHONS) 2>/dev/null) || python=python3; \
	PYTHONPATH=$(CURDIR)/src:$(CURDIR)/collections "$$python" -m tools.card $(STEPS)

.PHONY: demo demo-clean
demo: venv ## bring a simulated node to a proven one, without a GPU
	@PATH="$(BIN):$$PATH" $(BIN)/gpuwright demo
demo-clean: venv ## remove what the demo left
	@PATH="$(BIN):$$PATH" $(BIN)/gpuwright demo --clean

.PHONY: clean
clean: ## remove what is made here: environments, caches, dist/
	@rm -rf .venv .venv-* .nox .cache .ansible .mypy_cache .pytest_cache .ruff_cache build dist
