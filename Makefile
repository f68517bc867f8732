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
test: venv ## what every change must pass: each behaviour once; stops at the first check that fails
	@$(STAGE) "Tools" $(MAKE) --no-print-directory tools
	@# Molecule waits for its node half of the time: what needs none runs beside it.
	@$(MAKE) --no-print-directory --jobs 3 stage-molecule stage-lint stage-typing stage-sanity
	@$(STAGE) "Integration" $(MAKE) --no-print-directory integration
	@$(STAGE) --last "Properties, unit and packaging tests" $(MAKE) --no-print-directory unit

.PHONY: stage-molecule stage-lint stage-typing stage-sanity
stage-molecule stage-lint stage-typing stage-sanity: stage-%:
	@$(STAGE) "$*" $(MAKE) --no-print-directory $*

.PHONY: soak
soak: venv tools ## what takes long, in parts: all of them, `make soak PART=2`, `PART=driver`, or `PART=turn` for the one whose turn it is
	@$(STAGE) "Soak: $(or $(PART),all)" env $(NOX) soak -- $(PART)

.PHONY: tools
tools: venv ## the programs that the tests need on this machine, the container engine included (apt, as root or by sudo)
	@$(BIN)/python -c 'from tests.sim import engine; engine.ensure_for_tests()'

.PHONY: lint typing sanity molecule machine integration metal unit packaging build mutants unprotected test-changed
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
unit: venv ## the properties, the unit and the packaging tests
	@$(NOX) unit
packaging: venv ## the packaging tests alone
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
rules: venv ## write what is generated: what follows from the components, rules.json, roles.json, types, units, docs/matrix.md, docs/facts.md, alerts, dashboards, pictures
	@$(BIN)/python tools/build_components.py
	@$(BIN)/python tools/build_rules.py
	@$(BIN)/python tools/build_matrix.py
	@$(BIN)/python tools/build_roles.py
	@$(BIN)/python tools/build_types.py
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

.PHONY: demo demo-clean
demo: venv ## bring a simulated node to a proven one, without a GPU
	@PATH="$(BIN):$$PATH" $(BIN)/gpuwright demo
demo-clean: venv ## remove what the demo left
	@PATH="$(BIN):$$PATH" $(BIN)/gpuwright demo --clean

.PHONY: clean
clean: ## remove what is made here: environments, caches, dist/
	@rm -rf .venv .venv-* .nox .cache .ansible .mypy_cache .pytest_cache .ruff_cache build dist
