# One obvious job each: `make help`.

PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
TRITONS := oldest newest
# One more than there are cores: many tests wait, for processes and for the end of what never ends.
PROCESSES := $(shell expr $$(nproc) + 1)

# Which torch a new environment gets: `any`, the build that pip's own index has, or `cpu`, from PyTorch's index.
TORCH ?= any
CPU_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH_VERSION := $(shell sed -n 's/^torch==//p' constraints.txt)
# The index is added to those that are configured, for torch alone; the build's name keeps any other from being taken.
TORCH_cpu := 'torch==$(TORCH_VERSION)+cpu' --no-deps --extra-index-url $(CPU_INDEX) --retries 1 --timeout 15
TORCH_any := 'torch==$(TORCH_VERSION)' -c constraints.txt
COMING_cpu := the CPU build, some 200 MB, from $(CPU_INDEX)
COMING_any := the build of pip's index: PyPI has the CUDA build, several GB; without a GPU better: make demo TORCH=cpu
MISSING_cpu := The CPU build could not be had from $(CPU_INDEX); what pip says above tells why. Try again, name a mirror \
    with CPU_INDEX=URL, or take the build of pip's own index: make demo TORCH=any
MISSING_any := torch could not be had from pip's index; what pip says above tells why. PIP_INDEX_URL names another index.

# NO_VENV=1 runs in the environment of $(PYTHON), as on a GPU machine that has its own torch.
ifeq ($(NO_VENV),1)
run := PYTHONPATH="$(CURDIR)/src$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) -m
environment :=
else
run := $(VENV)/bin/python -m
environment := $(INSTALLED)
endif

export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-triton $(TRITONS:%=test-triton-%) check protocol gpu clean
.SILENT:

help:  ## this list
	echo "Usage: make TARGET [PYTHON=python3.12] [TORCH=cpu] [ARGS='-k softmax']"
	echo
	awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	echo
	echo "demo, test, test-triton and check make $(VENV) and install the pinned environment the first time."
	echo "Without a GPU, a small torch is enough: make demo TORCH=cpu"

demo: $(INSTALLED)  ## show the tools at work on the examples (ARGS go to the demo)
	$(VENV)/bin/tritonforge-mcp demo $(ARGS)

# Side by side, each module in one process, in the order of `tests/conftest.py`. Bytecode is made before, as workers
# can't keep any, and hundreds are started.
test: $(INSTALLED)  ## all tests; those that need a GPU skip themselves without one (ARGS go to pytest)
	$(VENV)/bin/python -m compileall -q profiling prompts sandbox server
	$(VENV)/bin/pytest -q -n $(PROCESSES) --maxprocesses=4 --dist loadfile --no-loadscope-reorder $(ARGS)

test-triton: $(TRITONS:%=test-triton-%)  ## what depends on Triton, with its oldest and newest (TRITONS=newest: that one alone)

$(TRITONS:%=test-triton-%): test-triton-%: $(VENV)-triton/%/.ready
	$(VENV)-triton/$*/bin/python -c 'import numpy, triton; \
	    print(f"With triton {triton.__version__} and numpy {numpy.__version__}:")'
	$(VENV)-triton/$*/bin/python -m pytest -q -n auto --maxprocesses=4 --dist loadfile \
	    @.ci/triton-$*.args @.ci/triton-tests.args $(ARGS)

check: $(INSTALLED)  ## lint, format, types and the import contract, as CI runs them
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/pyright
	$(VENV)/bin/lint-imports --no-logo

protocol: $(INSTALLED)  ## MCP Inspector and the conformance suite against the server (Node and both are fetched once)
	$(VENV)/bin/python .ci/protocol

gpu: $(environment)  ## the tests that need a GPU; with one, none may skip (NO_VENV=1: in the environment of PYTHON)
	TRITONFORGE_REQUIRE_GPU=1 $(run) pytest -q -m gpu $(ARGS)

clean:  ## remove caches and builds; environments and recorded runs stay
	rm -rf build dist htmlcov .coverage .benchmarks .pytest_cache .ruff_cache .import_linter_cache
	find . -path './$(VENV)*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# torch first and alone, so that nothing else decides which build of it is taken. On a terminal pip shows how far it is.
$(INSTALLED): pyproject.toml constraints.txt
	test -n "$(TORCH_$(TORCH))" || { echo "TORCH=$(TORCH): it is any or cpu"; exit 1; }
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "$(PYTHON) is older than Python 3.11: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(VENV)/bin/pip || { echo "Making $(VENV) with $(PYTHON)"; $(PYTHON) -m venv $(VENV); } || { \
	    echo "$(PYTHON) can't make environments; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	echo "Installing torch $(TORCH_VERSION): $(COMING_$(TORCH))"
	echo "If it is interrupted, run make again: what pip has fetched whole, it keeps."
	$(VENV)/bin/python -m pip install $$(test -t 2 || echo -q) --disable-pip-version-check \
	    $(TORCH_$(TORCH)) || { echo "$(MISSING_$(TORCH))"; exit 1; }
	echo "Installing the rest of constraints.txt and this project"
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[torch,dev]'
	touch $@

# A copy of $(VENV), whose files are links, so that only what differs is fetched and takes space.
$(VENV)-triton/%/.ready: .ci/triton-%.txt $(INSTALLED)
	echo "Making $(@D): $$(grep -v '^#' $< | xargs)"
	rm -rf $(@D)
	mkdir -p $(VENV)-triton
	cp -al $(VENV) $(@D)
	$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps -r $<
	touch $@
