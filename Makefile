# Every target makes its own environment first: a fresh machine needs Python 3.11, make and a C library.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PYTEST_JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help train train-ppo play web test test-rllib lint format bench gif golden clean

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

play: $(VENV)/web web  ## play in the browser, on this machine
	$(BIN)/python -m pylos_web --open $(ARGS)

web:  ## build the 3D board (needs Node; the page plays in 2D without it)
	@if command -v npm >/dev/null; then cd pylos_web/board3d && npm ci --no-fund --no-audit && npm run build; \
	else echo "no npm here: the page plays in 2D"; fi

test: $(VENV)/dev lint  ## lint, type-check and run every test
	$(BIN)/python -m pytest --numprocesses $(PYTEST_JOBS) --dist loadgroup
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
	rm -rf $(VENV) $(VENV)-rllib build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
