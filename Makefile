# Two commands for a newcomer: `make demo` and `make test`. Both set everything up first; see `make help`.
# PYTHON picks the interpreter, JOBS the parallel compile jobs, RANKS the ranks of the demo.
PYTHON ?= python3
JOBS ?= $(shell nproc)
RANKS ?= 2
export PYTHON JOBS
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help build demo test bench lint format release asan tsan pytest gpu-test gpu-bench setup-dev clean

help:
	@echo 'make demo    fine-tune a small model with stock FSDP2 and with Headrace; out/report.html (RANKS=2)'
	@echo 'make test    every check and test: lint, C++ (release, asan+ubsan, tsan), Python'
	@echo 'make build   set up and build; the program is .venv/bin/headrace'
	@echo 'make bench   measure; out/bench.jsonl'
	@echo 'make lint    formatting, clang-tidy, ruff, layer order      make format   format all sources'
	@echo 'make release | asan | tsan | pytest                         one test suite alone'
	@echo 'make gpu-test | gpu-bench   on a machine with an NVIDIA GPU (docs/gpu.md); PHASES="..." for some alone'
	@echo 'make clean   remove build/ and out/ (.venv and build/deps stay)'

build:
	@scripts/setup.sh build

setup-dev:
	@scripts/setup.sh dev

demo: build
	.venv/bin/python examples/demo.py --ranks $(RANKS)

# pytest comes last: its summary is the last line.
test: setup-dev lint release asan tsan pytest

lint: setup-dev
	scripts/lint.sh

format: setup-dev
	scripts/lint.sh --fix

# GCC 12's thread sanitizer cannot start where the kernel randomises addresses over more than 28 bits.
tsan: fixed_addresses := $(shell setarch -R true 2>/dev/null && echo setarch -R)

# Most tests wait for deadlines, and who measures time says that nothing may run beside it.
release asan tsan: parallel := -j $(JOBS)

# The release preset also compiles every header alone.
release asan tsan: setup-dev
	cmake --preset $@ --log-level=WARNING
	$(fixed_addresses) cmake --build --preset $@ -j $(JOBS)
	$(fixed_addresses) ctest --preset $@ $(parallel)

pytest: setup-dev
	.venv/bin/python -m pytest

bench:
	@scripts/setup.sh bench
	scripts/bench.sh

gpu-test:
	@scripts/gpu.sh test $(PHASES)

gpu-bench:
	@scripts/gpu.sh bench $(PHASES)

# Libraries that were carried here (docs/gpu.md) stay.
clean:
	find build -mindepth 1 -maxdepth 1 ! -name deps -exec rm -rf {} + 2>/dev/null || true
	rm -rf out
