# Each target is enough on a machine with Python 3.11 to 3.13 and a C compiler: it makes .venv,
# installs the pinned torch, builds, and runs.
#
#   make demo     train on real digits, then optimize a step with repeated work
#   make test     the whole test suite
#   make debug    tests under a build whose compiled code checks bounds, None and initialization (ARGS=tests/engine for some)
#   make address  tests of engine and optimizer under AddressSanitizer; make undefined: under UBSan (both want gcc)
#   make plain    tests without accelerations; make switches: tests of the engine with each of them off by itself
#   make dev      tests of engine and optimizer in Python's development mode, with its debug allocator and all warnings as errors
#   make hashes   tests with all hashes equal, so that only full comparisons tell keys apart
#   make compact  tests with dead records dropped at every append, which finds what is dropped while somebody needs it
#   make late     tests of engine and optimizer while every graph looks for views that are older than their history
#   make bench    every table of docs/results (make bench SECTIONS="times chain" for some, ARGS=--resume to go on)
#   make figures  write the figures, tables and pictures of README and docs anew
#   make opinfo   every sample of torch's own database of operators, and the table docs/opinfo.md (an hour)
#   make layouts  the same samples with operands and cotangents that lie otherwise in memory (a quarter of an hour)
#   make matrix   every Python with every torch that can be had, and the table docs/matrix.md (ARGS="--cell 3.13:2.14.1" for one)
#   make lint     ruff, mypy and stubtest
#   make docs     the documentation as docs/_build/index.html; its warnings are errors
#   make clean    remove .venv and everything built
#
# PROFILE=0 before any of them builds once, without the training run: it takes half the time, and is 4 % slower.
#
# Without a GPU the CPU build of torch is much smaller: let pip find it first.

# the first that runs, not the first that is there: version managers leave commands for what is not chosen
PYTHONS := python3.11 python3.12 python3.13 python3
SUITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
ifndef PYTHON
PYTHON := $(firstword $(foreach p,$(PYTHONS),$(shell $(p) -c '$(SUITS)' 2>/dev/null && echo $(p))))
endif
VENV ?= .venv
# with GCC 10 or newer, code is laid out by what a training run counted: 4 % of the time of whole programs for two minutes of building
PROFILE ?= $(shell $(CC) -v 2>&1 | grep -Eq '^gcc version [1-9][0-9]' && echo 1)
SECTIONS ?=
ARGS ?=
# a test that waits forever ends its process with the lines at which its threads wait, and fails
LIMIT := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true
# without what counts values found again: they are forgotten when dead records are dropped
COMPACTED := tests/engine tests/algorithms tests/hazards tests/fuzz tests/optimizer/test_broken_passes.py
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
# what an extra names, without building the package again: `python -c` $(EXTRA) NAME
EXTRA := "import sys, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
print(*project['optional-dependencies'][sys.argv[1]], sep='\n')"
WITH = $(BIN)/python -c $(EXTRA) $(1) > $(VENV)/$(1).txt && $(PIP) -r $(VENV)/$(1).txt
SOURCES := $(wildcard $(foreach kind,pyx pxd,autograd_opt/*/*.$(kind) autograd_opt/*/*/*.$(kind) passes/*.$(kind)))

.PHONY: demo test debug hashes compact late plain switches address undefined dev bench figures opinfo layouts matrix lint docs clean

demo: $(VENV)/.built
	$(BIN)/autograd-opt demo $(ARGS)

test: $(VENV)/.built
	$(BIN)/python -m pytest -n auto --dist loadgroup $(LIMIT) $(ARGS)

debug hashes plain: $(VENV)/.built
	$(BIN)/python scripts/variant.py $@ -q -n auto $(LIMIT) -m "not slow and not long and not gpu" $(ARGS)

compact: $(VENV)/.built
	$(BIN)/python scripts/variant.py $@ -q -n auto $(LIMIT) -m "not slow and not long and not gpu" $(or $(ARGS),$(COMPACTED))

address undefined dev late switches: $(VENV)/.built
	$(BIN)/python scripts/variant.py $@ -q -n auto $(LIMIT) -m "not slow and not long and not gpu" $(or $(ARGS),tests/engine tests/optimizer)

# What fails is a line in the tables; the figures are filled in all the same.
bench: $(VENV)/.benched
	$(BIN)/python -m benchmarks $(or $(SECTIONS),--all) $(ARGS); code=$$?; $(MAKE) figures && exit $$code

figures: $(VENV)/.built
	$(BIN)/python scripts/figures.py
	$(BIN)/python scripts/pictures.py

opinfo: $(VENV)/.built
	$(BIN)/python -m tests.opinfo_sweep --all $(ARGS) || true
	$(BIN)/python -m tests.opinfo_sweep --table

layouts: $(VENV)/.built
	$(BIN)/python -m tests.opinfo_sweep --layouts 0 --once $(ARGS)
	$(BIN)/python -m tests.opinfo_sweep --layouts 1 --once --order 2 $(ARGS)
	$(BIN)/python -m tests.opinfo_sweep --layouts 1 --once --dtype bfloat16 --samples 5 $(ARGS)

matrix: $(VENV)/.built
	$(BIN)/python scripts/matrix.py $(ARGS)

lint: $(VENV)/.linted
	$(BIN)/ruff check .
	$(BIN)/python scripts/typecheck.py

docs: $(VENV)/.documented
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "the documentation: file://$(CURDIR)/docs/_build/index.html"
	$(BIN)/python -m pytest -q -n auto tests/docs

$(VENV)/.built: pyproject.toml setup.py constraints.txt $(SOURCES)
	@test -n "$(PYTHON)" || { echo "no Python from 3.11 to 3.13 on the PATH: install one or pass PYTHON=/path/to/it" >&2; exit 1; }
	@$(PYTHON) -c '$(SUITS)' || { echo "$(PYTHON) is not a Python from 3.11 to 3.13: pass PYTHON=/path/to/one" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) and building: minutes, most of them torch's download"
ifeq ($(PROFILE),1)
	AUTOGRAD_OPT_PROFILE=record $(PIP) -e ".[demo,test]"
	@echo "building again, by what a little of everything has run most"
	$(BIN)/python scripts/training.py
	AUTOGRAD_OPT_PLAIN=1 $(BIN)/python scripts/training.py
	AUTOGRAD_OPT_PROFILE=use $(PIP) --no-deps -e .
else
	$(PIP) -e ".[demo,test]"
endif
	@touch $@

$(VENV)/.benched: $(VENV)/.built
	$(call WITH,bench)
	@touch $@

$(VENV)/.linted: $(VENV)/.built
	$(call WITH,dev)
	@touch $@

$(VENV)/.documented: $(VENV)/.built
	$(call WITH,docs)
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find autograd_opt passes -name '*.so' -delete
