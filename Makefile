# Every command a developer or CI runs. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
TOOLS := build/venv-tools/bin
# Two files at a time: much of what a test does is to wait.
PYTEST := $(TOOLS)/python -m pytest -n 2 --dist loadfile
CARGO ?= cargo

export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

# --- what users run

.PHONY: build
build: ## release build: target/release/gambeson and its libraries
	@tools/bootstrap.sh build
	$(CARGO) build --release --locked --workspace
	@ln -sfn libgambeson_fi.so $(RELEASE)/libgambeson-fi.so
	@ln -sfn libgambeson_guard.so $(RELEASE)/libgambeson-guard.so
	@ln -sfn libgambeson_mpi.so $(RELEASE)/libgambeson-mpi.so
	@ln -sfn libgambeson_link_c.so $(RELEASE)/libgambeson-link.so

.PHONY: python
python: build ## the Python package, with the command in it: target/wheels/gambeson-*.whl
	@tools/bootstrap.sh wheel
	build/venv-wheel/bin/hatchling build --target wheel --directory $(TARGET)/wheels

.PHONY: install
install: build ## install below PREFIX (default /usr/local; DESTDIR is honoured)
	@tools/install.sh "$(RELEASE)" "$(DESTDIR)$(PREFIX)" "$(PREFIX)"

PYTHON ?= python3
.PHONY: install-python
install-python: python ## the Python package into PYTHON (default: python3, a virtual environment's where one is active)
	@# The version says nothing of what changed since it was installed last.
	$(PYTHON) -m pip install --disable-pip-version-check --force-reinstall --no-deps \
	  "$$(ls -t $(TARGET)/wheels/gambeson-*.whl | head -1)"

SPANK := $(TARGET)/slurm/gambeson_spank.so
.PHONY: spank
spank: ## the plug-in for Slurm, against this host's Slurm and MUNGE: docs/slurm.md
	@mkdir -p $(dir $(SPANK))
	$(CC) -std=gnu11 -O2 -Wall -Wextra -Werror -fPIC -shared -DGAMBESON='"$(PREFIX)/bin/gambeson"' $(CPPFLAGS) \
	  -o $(SPANK) packaging/slurm/gambeson_spank.c -lmunge

.PHONY: install-spank
install-spank: spank ## install it as PREFIX/lib/gambeson/gambeson_spank.so
	@install -D -m 755 $(SPANK) "$(DESTDIR)$(PREFIX)/lib/gambeson/gambeson_spank.so"
	@echo "add to plugstack.conf on all hosts: optional $(PREFIX)/lib/gambeson/gambeson_spank.so"

.PHONY: demo
demo: ## a real program on real input, plain and sealed, with a capture running: build/demo/demo.png
	@tools/bootstrap.sh demo
	@$(MAKE) --no-print-directory build
	@$(TOOLS)/python examples/survival/demo.py

.PHONY: example-patients
example-patients: build ## parallel HDF5 on MPICH and Open MPI: patients' records under two labels
	@python3 examples/patients/demo.py

# --- what developers run

.PHONY: environments
environments: ## virtual environments with the MPIs and the tools, under build/
	@tools/bootstrap.sh test

.PHONY: lint
lint: environments ## formatting, clippy, ruff, mypy, licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(TOOLS)/ruff check .
	$(TOOLS)/ruff format --check .
	$(TOOLS)/mypy
	$(TOOLS)/mypy --strict python/gambeson
	$(TOOLS)/python tools/reference.py --check
	@tools/deny.sh --if-present

.PHONY: deny
deny: ## licences, bans and sources of all dependencies (installs cargo-deny into build/)
	@tools/deny.sh

.PHONY: unit
unit: ## the Rust tests, those of links over libfabric included where there is one
	$(CARGO) test --locked --workspace
	@# The same packages again, so that nothing is built a second time with other features.
	@if ldconfig -p | grep 'libfabric\.so\.1' > /dev/null; then \
	  $(CARGO) test --quiet --locked --workspace --tests -- --ignored over_libfabric; \
	else echo "skipped: the tests of links over libfabric, of which there is none on this host (Debian: libfabric1)"; fi

.PHONY: bench-link-branch
bench-link-branch: ## what the possibility of transform modules costs links that have none, against a build without it
	python3 tools/link_branch.py

.PHONY: test
test: lint build python unit ## everything that fits 25 minutes on two cores
	$(PYTEST)

.PHONY: test-long
test-long: lint build python unit ## everything, the long tests and the conformance suites included
	@tools/bootstrap.sh long
	$(PYTEST) --long
	LOOM_MAX_PREEMPTIONS=3 $(CARGO) test --locked -p gambeson-link --lib ring
	$(CARGO) test --release --locked -p gambeson-file -- --ignored
	$(MAKE) deny conformance fuzz-short miri asan

.PHONY: conformance
conformance: environments build ## other projects' MPI test suites, plain and sealed: docs/conformance.md
	@tools/bootstrap.sh conformance
	$(TOOLS)/python tests/conformance/run.py --write

# --- instruments

.PHONY: bench-peers
bench-peers: ## what `gambeson bench link --peers build/peers` compares links with (ZeroMQ, nng, gRPC: Debian's packages)
	@$(MAKE) --no-print-directory -C bench/peers OUT=$(abspath build/peers)

.PHONY: asan
asan: environments ## a real MPI job with the provider under AddressSanitizer
	@tools/asan.sh

.PHONY: miri
miri: ## gambeson-proto under Valgrind's memcheck; what of it calls no C, and the shared-memory rings, under Miri
	@tools/miri.sh

.PHONY: fuzz-short
fuzz-short: ## every fuzz target over its corpus, then for some seconds
	@tools/fuzz-short.sh

.PHONY: reference
reference: environments ## the reference of links for Rust, C and Python: header, docstrings, docs/reference/links.md
	$(TOOLS)/python tools/reference.py
	GAMBESON_WRITE=1 $(CARGO) test --quiet --locked -p gambeson-link-c --test header
	$(TOOLS)/python tools/reference.py

.PHONY: format
format: environments ## format Rust and Python
	$(CARGO) fmt --all
	$(TOOLS)/ruff check --fix .
	$(TOOLS)/ruff format .

.PHONY: clean
clean: ## remove build/ and target/
	rm -rf build $(TARGET)
