# Each target does its own set-up on a machine with only Python >= 3.11, git and make; all are safe to repeat.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Tests start hundreds of processes: what one has compiled, the next ones take, whatever the environment says.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test soak lint bench gpu rules docs dist matrix clean
.DEFAULT_GOAL := test

# Torch comes first and pinned: on a machine without an accelerator nothing may pull its CUDA packages in later.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[all]' --group dev
	touch $@

demo: $(STAMP)
	$(BIN)/python examples/jax_fsdp_lm/demo.py

# A worker a core; the tests of a file stay together.
test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile

soak: $(STAMP)
	$(BIN)/python -m pytest -m soak

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/allranks check src examples bench --output-format concise
	$(BIN)/python tools/prose.py

# In an environment of its own: a peer brings a torchvision that does not fit the CPU build of torch.
bench:
	$(MAKE) .venvs/bench/.installed VENV=.venvs/bench
	.venvs/bench/bin/python -m pip install -q -c constraints.txt --group bench
	.venvs/bench/bin/python -m bench

# On a machine with one accelerator, in under eight minutes; DRY=--dry runs it on the CPU, small. No set-up, for there may be
# no network: with PYTHON, in which torch or JAX and what we need are installed, where there is no VENV.
gpu:
	$(firstword $(wildcard $(BIN)/python) $(PYTHON)) -m bench.gpu $(or $(DRY),--write)

# docs/rules, drawn from the rules of `allranks check`.
rules: $(STAMP)
	$(BIN)/python -m allranks.check.results.pages docs/rules

# The documentation as a site in site/, in an environment of its own; it needs no network to be read. A warning is an error.
docs:
	$(PYTHON) -m venv .venvs/docs
	.venvs/docs/bin/python -m pip install -q --upgrade pip
	.venvs/docs/bin/python -m pip install -q -c constraints.txt --group docs
	.venvs/docs/bin/zensical build --strict -f mkdocs.yml

# The wheel and the source archive in dist/, and the wheel tried in a fresh environment.
dist:
	$(PYTHON) -m venv .venvs/dist
	.venvs/dist/bin/python -m pip install -q --upgrade pip build
	.venvs/dist/bin/python -m build -q
	$(PYTHON) -m venv --clear .venvs/wheel
	.venvs/wheel/bin/python -m pip install -q dist/*.whl
	cd .venvs/wheel && bin/allranks --version && bin/python -c 'import allranks; print(allranks.init())'

# The core must work with no framework, with either one, and with both (which is 'make test'); and with the newest
# JAX, which needs a newer Python. Each row has its own interpreter and its own constraints.
matrix: matrix-none matrix-jax matrix-torch matrix-jax-new

NEW_PYTHON ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.13*/bin/python3) python3.13)
CONSTRAINTS = constraints.txt
matrix-jax: EXTRA = [jax]
matrix-torch: EXTRA = [torch]
matrix-jax-new: EXTRA = [jax]
matrix-jax-new: CONSTRAINTS = constraints-new.txt
matrix-jax-new: PYTHON = $(NEW_PYTHON)

matrix-%:
	$(PYTHON) -m venv .venvs/$*
	.venvs/$*/bin/python -m pip install -q --upgrade pip
	.venvs/$*/bin/python -m pip install -q -c $(CONSTRAINTS) pytest pytest-xdist hypothesis $(if $(EXTRA),tensorboard) $(filter torch,$*)
	.venvs/$*/bin/python -m pip install -q -c $(CONSTRAINTS) -e '.$(EXTRA)'
	.venvs/$*/bin/python -m pytest -q -n auto --dist loadfile

clean:
	rm -rf $(VENV) .venvs build dist site .pytest_cache .mypy_cache .ruff_cache
