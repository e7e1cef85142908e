# Every target sets up what it needs: a fresh clone with Python 3.11 is enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-avx2 test-browser test-kernels test-gpu fuzz mutants audit lint format constraints \
        dist-check bench clean

help:            ## List the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

# The stamp makes the environment depend on the files that describe it, so nothing is installed twice.
$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/installed    ## Show what ABALONE does, on a bundled corpus
	$(BIN)/abalone demo

test: $(VENV)/installed    ## Run the tests, but for the slow ones
	$(BIN)/python -m pytest -m "not slow"

test-all: $(VENV)/installed  ## Run all tests
	$(BIN)/python -m pytest

# What a processor without AVX-512 computes, where the one at hand has it: the switches of torch, oneDNN, MKL, numpy and
# OpenBLAS. onnxruntime has none.
test-avx2: export ATEN_CPU_CAPABILITY = avx2
test-avx2: export ONEDNN_MAX_CPU_ISA = AVX2
test-avx2: export MKL_ENABLE_INSTRUCTIONS = AVX2
test-avx2: export MKL_CBWR = COMPATIBLE
test-avx2: export NPY_DISABLE_CPU_FEATURES = X86_V4 AVX512_ICL AVX512_SPR
test-avx2: export OPENBLAS_CORETYPE = Haswell
test-avx2: $(VENV)/installed  ## Run the tests as a processor without AVX-512 would
	$(BIN)/python -m pytest -m "not slow"

test-browser: $(VENV)/installed  ## Test the pages in a real Chromium (installs it on Debian)
	@{ command -v chromium && command -v chromedriver; } >/dev/null || { set -e; \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$sudo apt-get update -qq; $$sudo apt-get install -qq -y chromium chromium-driver; }
	$(BIN)/python -m pytest -n 0 tests_browser

# Triton is large, and GPU builds of torch bring their own: only this target installs it.
test-kernels: $(VENV)/installed  ## Test the GPU kernels in Triton's interpreter
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt triton
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 0 tests/encoder/fast/test_*kernels.py tests/training/test_step_kernels.py

# On the machine's own torch: the environment here holds a build for CPUs.
test-gpu:        ## Test kernels and whole trainings on the GPU of this machine
	PYTHONPATH=src $(PYTHON) -m pytest -n 0 -m "gpu or not slow" tests/encoder/fast/test_*kernels.py \
	  tests/training/test_step_kernels.py tests/training/test_snapshot.py tests/training/test_training_on_gpu.py

# Cases of the fuzzer in all, and kills of each of training, export and bulk prediction; FUZZ_SEED repeats a night.
fuzz: export FUZZ_CASES ?= 12000
fuzz: export FUZZ_KILLS ?= 30
fuzz: $(VENV)/installed    ## Test with thousands of damaged and hostile inputs, others every day
	$(BIN)/python -m pytest tests_fuzz

# How many bugs, which ones, and how many at a time; RESUME=--resume goes on with the last run. The bugs that tests once
# let through are planted first.
mutants: export MUTANTS ?= 200
mutants: export SEED ?= $(shell date -u +%Y%m%d)
mutants: export JOBS ?= 1
mutants: $(VENV)/installed  ## Plant small bugs, others every day, and see whether the tests notice
	$(BIN)/python tools/mutants.py --known --jobs $(JOBS)
	$(BIN)/python tools/mutants.py --count $(MUTANTS) --seed $(SEED) --jobs $(JOBS) $(RESUME)

# Strict: a version that the database could not be asked about is not taken for a safe one.
audit:           ## Look up the pinned versions in the advisory database
	test -x $(VENV)-audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)-audit && \
	  $(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit; }
	$(VENV)-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

lint: $(VENV)/installed    ## Check style, types and pinned versions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_constraints.py

format: $(VENV)/installed  ## Apply the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Not from $(VENV): pins that do not agree could not be installed there.
constraints:     ## Record anew what the pinned versions require
	test -x $(VENV)-pins/bin/python || { $(PYTHON) -m venv $(VENV)-pins && \
	  $(VENV)-pins/bin/python -m pip install --quiet --disable-pip-version-check packaging; }
	$(VENV)-pins/bin/python tools/record_requirements.py

# The sdist's tests run on its own sources: PYTHONPATH comes before the editable install of this folder.
dist-check: $(VENV)/installed  ## Build wheel and sdist, check both, collect the sdist's tests
	test -x $(VENV)-dist/bin/twine || { $(PYTHON) -m venv $(VENV)-dist && \
	  $(VENV)-dist/bin/python -m pip install --quiet --disable-pip-version-check build twine; }
	rm -rf build/dist
	$(VENV)-dist/bin/python -m build --outdir build/dist .
	$(VENV)-dist/bin/twine check --strict build/dist/*
	mkdir build/dist/sdist && tar -xf build/dist/*.tar.gz -C build/dist/sdist --strip-components 1
	cd build/dist/sdist && PYTHONPATH=src $(CURDIR)/$(BIN)/python -m pytest -n 0 --collect-only -qq

# The soak takes SOAK_SECONDS and a little more; a release gets 600.
bench: export SOAK_SECONDS ?= 60
bench: $(VENV)/installed   ## Measure cost as ratios to a plain implementation
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks soak

clean:           ## Remove the environment and the caches
	rm -rf $(VENV) $(VENV)-audit $(VENV)-pins $(VENV)-dist .mypy_cache .ruff_cache .pytest_cache
