# A thin front: every target is one or two commands that can be run by hand. What the automation
# does is in xtask/ (cargo xtask --help); what is installed and why is in setup/packages.txt.

PREFIX ?= /usr/local
DESTDIR ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
ARGS ?=
SHARD ?=
FULL ?=

# The clang for BPF is looked up when a command runs: setup may just have installed it.
CARGO = CLANG=$$(setup/needs --tool clang) cargo
XTASK = $(CARGO) run --locked --quiet --package xtask --
# As the one build compiles it (xtask/src/build.rs), so that it is not compiled twice.
LINTED = RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

.DEFAULT_GOAL := help
.PHONY: help setup build demo test bench soak lint audit docs deb install uninstall clean
.NOTPARALLEL:

help: ## this list
	@echo 'Fairpath: the programmable packet path for Linux routers'
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'Each target does its own set-up, and installs nothing twice (apt, as root).'

setup: ## installs everything that building, the demo and the tests need
	@setup/needs test

build: ## the release binaries, in target/release
	@setup/needs build
	$(CARGO) build --release --locked --bins --package fairpath --package fairpath-demo --package fairpath-lab --package fairpath-author
	@$(XTASK) docs --man '$(TARGET_DIR)/man' --binary '$(TARGET_DIR)/release/fairpath'

demo: ## client, router and server on this machine, measured (root)
	@setup/needs demo
	$(CARGO) build --release --locked --bins --package fairpath --package fairpath-demo --package fairpath-lab --package fairpath-author
	@setup/as-root '$(TARGET_DIR)/release/fairpath' demo $(ARGS)

test: ## lint and every test tier, what CI runs (root); FULL=1: no test is left to other commits; SHARD=2: this share
	@setup/needs test
	@cargo fmt --all --check
	@$(LINTED) $(XTASK) test --lint $(if $(FULL),--full) $(if $(SHARD),--shard $(SHARD)) $(ARGS)

lint: ## formatting, clippy, C layout and the project rules
	@setup/needs test
	@cargo fmt --all --check
	@$(LINTED) $(XTASK) check

# The database is a git repository, which not every machine can reach.
audit: ## licences, sources, duplicates and, with the RustSec database, advisories of dependencies
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny@0.20.2
	cargo deny --locked check licenses bans sources
	@if cargo deny fetch db; then cargo deny --locked check advisories; \
	else echo 'fairpath: advisories were not checked: https://github.com/RustSec/advisory-db cannot be reached' >&2; fi

bench: ## speed, as ratios to a peer in the same run; ARGS=... goes to the harness
	@setup/needs bench
	@$(XTASK) bench $(ARGS)

soak: ## every test in full, then those that take more than a minute
	@setup/needs test
	@$(LINTED) $(XTASK) soak $(ARGS)

docs: ## rewrites the generated pages of docs/
	@setup/needs build
	@$(XTASK) docs

deb: ## the Debian package, in target/deb
	@setup/needs deb
	@$(XTASK) deb $(ARGS)

install: ## what make build made, into $(DESTDIR)$(PREFIX)
	@packaging/install install '$(TARGET_DIR)' '$(DESTDIR)' '$(PREFIX)'

uninstall: ## removes exactly what make install put there
	@packaging/install uninstall '$(TARGET_DIR)' '$(DESTDIR)' '$(PREFIX)'

clean: ## removes what was built and downloaded
	cargo clean
	rm -rf .cache demo-out
