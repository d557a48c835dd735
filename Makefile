# Every target makes its own environment first: a fresh machine needs Python 3.11, make and a C library.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PYTEST_JOBS ?= 2
PYLOS_SCREENSHOTS ?= runs/screenshots
BOARD3D := pylos_web/board3d
BOARD3D_SOURCES := $(wildcard $(BOARD3D)/src/*.js) $(BOARD3D)/build.js pylos_web/static/dom.js pylos_web/static/geometry.js

.DEFAULT_GOAL := help
.PHONY: help train train-ppo play web chromium wheel test test-rllib lint format bench gif golden clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

$(VENV)/dev: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/train: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[train]'
	@touch $@

$(VENV)/web: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[train,web]'
	@touch $@

$(VENV)/bench: $(VENV)/dev
	$(PIP) --editable '.[bench]'
	@touch $@

# Ray's RLlib pins an older Gymnasium, so it gets an environment of its own
$(VENV)-rllib/dev: pyproject.toml constraints-rllib.txt
	$(PYTHON) -m venv $(VENV)-rllib
	$(VENV)-rllib/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint constraints-rllib.txt --editable '.[rllib,human]' pytest hypothesis
	@touch $@

train: $(VENV)/train  ## train AlphaZero for ten minutes; settings: make train ARGS="budget.minutes=30 seed=3"
	$(BIN)/python -m trainers.alphazero $(ARGS)

train-ppo: $(VENV)/train  ## train PPO for ten minutes; settings as above
	$(BIN)/python -m trainers.ppo $(ARGS)

play: $(VENV)/web  ## play in the browser, on this machine
	-@$(MAKE) --no-print-directory web  # without it the page plays in 2D
	$(BIN)/python -m pylos_web --open $(ARGS)

web:  ## build the 3D board (needs Node; the page plays in 2D without it)
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory pylos_web/static/dist/board3d.js; \
	else echo "There is no npm here: the page plays in 2D. With Node 18 or newer, make web builds the 3D board."; fi

# esbuild needs no script of its own at set-up, so none may run
$(BOARD3D)/node_modules/.package-lock.json: $(BOARD3D)/package.json $(BOARD3D)/package-lock.json
	cd $(BOARD3D) && npm ci --ignore-scripts --no-fund --no-audit --loglevel error
	@touch $@

pylos_web/static/dist/board3d.js: $(BOARD3D)/node_modules/.package-lock.json $(BOARD3D_SOURCES)
	cd $(BOARD3D) && npm run --silent build

chromium:  # the browser of the page's tests
	@if command -v "$${PYLOS_CHROMIUM:-chromium}" >/dev/null || command -v chromium-browser >/dev/null; then :; \
	elif command -v apt-get >/dev/null && test "$$(id -u)" = 0; then \
		echo "Installing chromium"; export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null \
		|| echo "chromium could not be installed: the tests of the page in a browser will be skipped"; \
	else echo "There is no chromium, and no right to install it: the tests of the page in a browser will be skipped"; fi

wheel: $(VENV)/dev web  ## build the package, the 3D board in it, into dist/
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .

test: $(VENV)/dev lint web chromium  ## lint, type-check and run every test
	PYLOS_SCREENSHOTS=$(PYLOS_SCREENSHOTS) $(BIN)/python -m pytest --numprocesses $(PYTEST_JOBS) --dist loadgroup
	$(MAKE) test-rllib

test-rllib: $(VENV)-rllib/dev  ## the environments and the RLlib example under the oldest Gymnasium
	$(VENV)-rllib/bin/python -m pytest tests/test_aec.py tests/test_single.py tests/test_vector.py \
		tests/test_examples.py

lint: $(VENV)/dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev  ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/bench  ## measure speed against other environments
	$(BIN)/python scripts/bench_env.py

gif: $(VENV)/dev  ## draw the README's game
	$(BIN)/python scripts/make_gif.py

golden: $(VENV)/dev  ## record the playthroughs that the tests compare
	$(BIN)/python scripts/make_golden.py

clean:  ## remove the environments and caches
	rm -rf $(VENV) $(VENV)-rllib $(BOARD3D)/node_modules pylos_web/static/dist build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
