# make demo    see it work, in a minute, on a machine with Python 3.11+, make and git
# make test    the whole suite
# make lint    style and types
# make nightly the suite against the built wheel, on every Python found, with the long tests
# make clean   remove what the others made
#
# Another Python: make demo PYTHON=python3.13

PYTHON ?= python3
# Two processes share the tests; who is done first takes over from the other.
AT_ONCE := -n 2 --dist worksteal
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test lint nightly clean

help:
	@sed -n 's/^# \{0,1\}//; 1,7p' $(MAKEFILE_LIST)

demo: $(VENV)/installed
	@$(BIN)/diarist demo

test: $(VENV)/installed-test
	@$(BIN)/python -m pytest -m "not nightly" $(AT_ONCE)

lint: $(VENV)/installed-lint
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/pyright

# Each Python gets an environment of its own and the wheel, never the source tree.
nightly: $(VENV)/bin/python
	@rm -rf dist && $(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .
	@ran=0; for version in 3.11 3.12 3.13 3.14; do \
	  python$$version -c '' 2>/dev/null || { echo "python$$version: not on this machine, left out"; continue; }; \
	  echo "python$$version"; \
	  rm -rf .venv-$$version && python$$version -m venv .venv-$$version || exit 1; \
	  .venv-$$version/bin/python -m pip --disable-pip-version-check install --quiet "$$(ls dist/diarist-*.whl)[test]" || exit 1; \
	  .venv-$$version/bin/python -m pytest $(AT_ONCE) || exit 1; \
	  ran=1; \
	done; test $$ran = 1 || { echo "no Python from 3.11 to 3.14 was found" >&2; exit 1; }

clean:
	rm -rf $(VENV) .venv-3.* dist build .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: nothing is installed twice unless what the project needs has changed.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Diarist needs Python 3.11 or newer. Name one: make demo PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV) (once)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/installed-%: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV) with what $* needs (once)"
	@$(PIP) --editable ".[$*]"
	@touch $@ $(VENV)/installed
