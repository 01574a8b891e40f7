# Each target does all its set-up. Needed beforehand: Python 3.11 or newer (with venv), make, a C++20 compiler.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
CMAKE  := $(BIN)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DSHMTENSOR_MODULE=OFF -DSHMTENSOR_NATIVE_TESTS=ON
NATIVE := $(wildcard native/*/*.?pp) CMakeLists.txt

.PHONY: help demo test test-all test-cpython bench model stress kills manager-kills storm channel-storm channel-model soak fuzz sanitize array-api torch-ops test-torch-programs test-cluster test-gpu lint tidy format coverage covered docs wheel test-wheel release clean check-tools native aarch64 check-aarch64

# Text behind two number signs after a target is its line in `make help`; text behind two number signs and an @ names a group.
help:
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

##@ First steps (each does all its set-up)
demo: $(VENV)/.examples  ## train two networks and word vectors in shared memory; pictures in examples/output (1 min)
	$(BIN)/python examples/hogwild.py
	$(BIN)/python examples/hogwild_cnn.py
	$(BIN)/python examples/word2vec_hogwild.py

# Three parallel tests for two cores, since many tests wait; SELECT chooses tests by markers (pyproject.toml).
JOBS ?= $(shell echo $$(( ($$(nproc) * 3 + 1) / 2 )))
SELECT ?= not exhaustive
# Tests start thousands of processes: compiled modules are kept even if the environment forbids it, and OpenBLAS, whose
# threads take a third of a short process's time, has one.
FOR_TESTS := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1
PYTEST := $(FOR_TESTS) $(BIN)/python -m pytest
test: $(VENV)/.test  ## build, install and try each feature (6 min on 2 cores)
	$(PYTEST) -n $(JOBS) --dist worksteal -m "$(SELECT)" $(TESTFLAGS)

test-all: test $(VENV)/.test-all native  ## after `test` the rest: every case, kills, native programs, models, types (17 min)
	SHMTENSOR_NATIVE_TESTS=$(abspath build/native) $(PYTEST) -n $(JOBS) --dist worksteal -m exhaustive $(TESTFLAGS)

##@ Models, and the interpreter's own tests
# Not an editable install: one of these tests starts Python without site-packages, which would not find it.
METHODS ?= fork spawn forkserver
KINDS ?= processes other manager threads
test-cpython: $(VENV)/.install  ## the interpreter's own tests of multiprocessing; METHODS="fork spawn" KINDS="processes threads"
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --upgrade --target $(VENV)/cpython .
	PYTHONPATH=$(abspath $(VENV)/cpython) $(BIN)/python tests/cpython/run.py --methods $(METHODS) --kinds $(KINDS) $(TESTFLAGS)

model: check-tools  ## the explicit-state models, with and without each safeguard (6 min)
	$(PYTHON) native/model/run.py

##@ Building
check-tools:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "shmtensor needs Python 3.11 or newer; found: $$($(PYTHON) --version 2>&1). Set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "shmtensor needs Python's venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo 'int main() { auto f = []<class T>(T t) { return t; }; return f(0); }' | $${CXX:-c++} -std=c++20 -x c++ -fsyntax-only - 2>/dev/null || \
	  { echo "shmtensor needs a C++20 compiler (Debian: apt-get install g++); set CXX to another one" >&2; exit 1; }
	@uname -s | grep -q Linux || { echo "shmtensor needs Linux" >&2; exit 1; }

$(VENV)/.tools: | check-tools
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "scikit-build-core>=0.11" "nanobind>=2.4" "numpy>=2.0" cmake ninja
	@touch $@

$(VENV)/.install: $(VENV)/.tools pyproject.toml $(NATIVE)
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable .
	@touch $@

$(VENV)/.examples $(VENV)/.test $(VENV)/.test-all $(VENV)/.dev $(VENV)/.cluster $(VENV)/.docs $(VENV)/.release: $(VENV)/.%: $(VENV)/.install
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[$(EXTRAS)]"
	@touch $@
$(VENV)/.examples: EXTRAS = examples
$(VENV)/.test: EXTRAS = test,examples
$(VENV)/.test-all: EXTRAS = test-all
$(VENV)/.dev: EXTRAS = dev
$(VENV)/.cluster: EXTRAS = test,examples,ray,dask
$(VENV)/.docs: EXTRAS = docs,ray,dask
$(VENV)/.release: EXTRAS = release

native: build/native/.built  ## the native tests, into build/native (2 min)
build/native/.built: $(VENV)/.tools $(NATIVE)
	$(CMAKE) -S . -B build/native >/dev/null
	$(BIN)/cmake --build build/native
	@touch $@

##@ Kills, stress and longer runs
SECONDS ?= 60
KILLS ?= 1000
# What `stress` and `aarch64` run. $(1): folder of the programs; $(2): emulator.
define run_native
	$(2) $(1)/failpoints
	$(2) $(1)/reach
	$(2) $(1)/graph
	$(2) $(1)/windows
	$(2) $(1)/timelines
	$(2) $(1)/ranges $(SECONDS)
	$(2) $(1)/stress $(SECONDS)
	for structure in ring cast store sync; do $(2) $(1)/$$structure && $(2) $(1)/$$structure storm $(KILLS) || exit 1; done
endef
stress: native  ## native stress for SECONDS=60, and KILLS=1000 kills of each structure
	$(call run_native,build/native)

# For aarch64, under QEMU's user-mode emulation (docs/memory-order.md, "aarch64"). QEMU_PLUGIN_API 1 is that of QEMU 7.2.
AARCH64_CXX ?= aarch64-linux-gnu-g++
AARCH64_LIBRARIES ?= /usr/aarch64-linux-gnu
QEMU_AARCH64 ?= qemu-aarch64
QEMU_PLUGIN_API ?= 1
aarch64: SECONDS = 10
aarch64: KILLS = 50
aarch64: export QEMU_LD_PREFIX = $(AARCH64_LIBRARIES)
aarch64: export QEMU_PLUGIN = file=$(abspath build/aarch64/qemu_plugin.so)
aarch64: export SHMTENSOR_EMULATOR = $(QEMU_AARCH64)
aarch64: check-aarch64 build/aarch64/.built  ## the same for aarch64 under qemu-user; SECONDS=10 KILLS=50 (20 min)
	$(call run_native,build/aarch64,$(QEMU_AARCH64))

check-aarch64:
	@for program in $(AARCH64_CXX) $(QEMU_AARCH64); do command -v $$program >/dev/null || { echo "make aarch64 needs $$program" \
	  "(Debian: apt-get install g++-aarch64-linux-gnu qemu-user)" >&2; exit 1; }; done

build/aarch64/.built: $(VENV)/.tools $(NATIVE) | check-aarch64
	$(CMAKE) -S . -B build/aarch64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=$(AARCH64_CXX) >/dev/null
	$(BIN)/cmake --build build/aarch64
	$${CXX:-c++} -std=c++20 -O1 -Wall -Wextra -shared -fPIC -DQEMU_PLUGIN_API=$(QEMU_PLUGIN_API) \
	  native/tests/qemu_plugin.cpp -o build/aarch64/qemu_plugin.so
	@touch $@

kills: $(VENV)/.test native  ## KILLS=1000 random kills of producers and consumers on one queue, with checksums
	build/native/ring storm $(KILLS)
	SHMTENSOR_KILLS=$(KILLS) $(BIN)/python -m pytest -s tests/kills/test_queue_kills.py

manager-kills: $(VENV)/.test  ## the manager killed at each line of its code, one a run (15 min)
	$(BIN)/python tests/kills/manager_kills.py --seed $(SEED)

STORM_KILLS ?= 2000
MANAGER_KILLS ?= 200
RESTARTS ?= 0
SEED ?= 0
MINUTES ?= 10
PACE ?= 0.004
storm: $(VENV)/.test  ## STORM_KILLS=2000 kills of everything, MANAGER_KILLS=200 of the manager; RESTARTS=0; SEED=n; an audit
	PYTHONPATH=tests $(BIN)/python -m storm --kills $(STORM_KILLS) --manager-kills $(MANAGER_KILLS) --restarts $(RESTARTS) --seed $(SEED) --report docs/reports/storm.md

CHANNEL_KILLS ?= 1000
channel-storm: $(VENV)/.test  ## CHANNEL_KILLS=1000 kills and as many resets of a channel; TESTFLAGS=--namespaces (root)
	$(BIN)/python tests/channel/channel_storm.py --kills $(CHANNEL_KILLS) --resets $(CHANNEL_KILLS) $(TESTFLAGS)

# Makes a network of namespaces, which needs root.
channel-model: $(VENV)/.test  ## how fast channels are on networks of several kinds, by a model and measured (root)
	$(BIN)/python tests/channel/channel_model.py $(TESTFLAGS)

# By default malloc raises its threshold with the sizes that are freed, and then keeps pieces of megabytes, which look like a leak.
soak: $(VENV)/.test  ## MINUTES=10 of the storm's traffic without kills; memory, descriptors, mappings sampled and drawn
	MALLOC_MMAP_THRESHOLD_=131072 PYTHONPATH=tests $(BIN)/python -m storm.soak --minutes $(MINUTES) --seed $(SEED) --pace $(PACE) $(if $(ROLES),--roles $(ROLES)) --picture docs/reports/soak.png --samples build/soak

# Builds an instrumented extension, which the fuzzer loads into an embedded Python. This needs clang, and a Python that was
# built with its shared library.
FUZZ_RUNS ?= 1000000
FUZZ_MESSAGES ?= 100000
fuzz: $(VENV)/.test  ## FUZZ_RUNS=1000000 inputs to the decoders, FUZZ_MESSAGES=100000 to a live manager (clang)
	$(CMAKE) -S . -B build/fuzz -DSHMTENSOR_MODULE=ON -DSHMTENSOR_NATIVE_TESTS=OFF -DSHMTENSOR_FUZZ=ON \
	  -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPython_EXECUTABLE=$(abspath $(BIN))/python >/dev/null
	$(BIN)/cmake --build build/fuzz
	$(BIN)/python tests/fuzz/run.py --driver build/fuzz/driver --runs $(FUZZ_RUNS) --messages $(FUZZ_MESSAGES)

sanitize: $(VENV)/.tools  ## `stress` under ASan, UBSan and TSan (SECONDS=10 KILLS=200: 6 min)
	$(CMAKE) -S . -B build/asan -DSHMTENSOR_SANITIZE=address,undefined >/dev/null
	$(BIN)/cmake --build build/asan
	$(CMAKE) -S . -B build/tsan -DSHMTENSOR_SANITIZE=thread >/dev/null
	$(BIN)/cmake --build build/tsan
	UBSAN_OPTIONS=halt_on_error=1 build/asan/failpoints
	UBSAN_OPTIONS=halt_on_error=1 build/asan/graph
	UBSAN_OPTIONS=halt_on_error=1 build/asan/windows
	UBSAN_OPTIONS=halt_on_error=1 build/asan/timelines
	UBSAN_OPTIONS=halt_on_error=1 build/asan/ranges $(SECONDS)
	UBSAN_OPTIONS=halt_on_error=1 build/asan/stress $(SECONDS)
	for structure in ring cast store sync; do UBSAN_OPTIONS=halt_on_error=1 build/asan/$$structure && \
	  UBSAN_OPTIONS=halt_on_error=1 build/asan/$$structure storm $(KILLS) || exit 1; done
	build/tsan/stress $(SECONDS)
	build/tsan/ring threads $(SECONDS)
	build/tsan/sync threads $(SECONDS)

##@ Speed, and other libraries
# The peers are in an environment of their own: torch is large. TORCH= leaves it out; plain "torch" may install CUDA.
# A peer that cannot be installed is absent in the tables.
BENCH_VENV ?= .venv-bench
TORCH ?= torch==2.13.0
PEERS ?= faster-fifo iceoryx2 ray gensim spdl-core grain redis hiredis lmdb
bench: native  ## compare with the standard library, torch, Ray and others; prints and draws (an hour)
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(BENCH_VENV)/bin/python -m pip install --quiet numpy matplotlib
	for peer in $(TORCH) $(PEERS); do $(BENCH_VENV)/bin/python -m pip install --quiet $$peer || \
	  echo "$$peer cannot be installed: its rows stay empty" >&2; done
	$(BENCH_VENV)/bin/python -m pip install --quiet ".[bench]"
	$(BENCH_VENV)/bin/python -P benchmarks $(BENCHFLAGS)

# Compares with torch's own database of operations. NAMES chooses some; GRAD=1 compares gradients instead, GRAD=2 second ones, too.
NAMES ?=
GRAD ?= 0
torch-ops: $(VENV)/.test  ## torch's database of operations: how many samples agree; NAMES=...; GRAD=1: gradients
	$(BIN)/python -m pip install --quiet "$(TORCH)" expecttest
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -P -m torch_ops --grad $(GRAD) $(NAMES) $(TESTFLAGS)

# Programs for torch, like those of tutorials; the same text is run once with each library.
test-torch-programs: $(VENV)/.test  ## programs for torch, run with shmtensor and with torch (2 min)
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pytest tests/test_torch_programs.py tests/test_torch_names.py $(TESTFLAGS)

# Clusters of Ray and Dask on this machine; TORCH= leaves torch's tensors out.
test-cluster: $(VENV)/.cluster  ## install Ray, Dask and torch; their integrations and the examples with clusters (3 min)
	$(if $(TORCH),$(BIN)/python -m pip install --quiet "$(TORCH)")
	$(PYTEST) tests/integrations/test_ray.py tests/integrations/test_ray_fetching.py tests/integrations/test_ray_hosts.py tests/integrations/test_dask.py \
	  tests/test_cluster_examples.py $(TESTFLAGS)
	$(PYTEST) tests/test_snippets.py -m "ray or dask" $(TESTFLAGS)

# On a machine with a GPU; CUPY is the package for its driver's CUDA. Without a GPU, these tests use a driver in host memory.
CUPY ?= cupy-cuda12x
test-gpu: $(VENV)/.test  ## on a GPU: the tests of GPUs, and the benchmarks; CUPY=cupy-cuda13x for CUDA 13
	$(BIN)/python -m pip install --quiet "$(CUPY)" $(if $(TORCH),"$(TORCH)")
	$(BIN)/python -c 'import sys, shmtensor as st; sys.exit(st.cuda.status() or 0)'
	$(PYTEST) tests/gpu $(TESTFLAGS)
	$(BIN)/python -P benchmarks gpu gpu_loading

# The public suite of the array API; SUITE is a checkout of it (CONTRIBUTING.md).
SUITE ?= array-api-tests
EXAMPLES ?= 20
array-api: $(VENV)/.test  ## the array API's public suite; SUITE=checkout of array-api-tests
	@test -d $(SUITE)/array_api_tests || { echo "SUITE=$(SUITE) is no checkout of array-api-tests" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet "ndindex>=1.8" pytest-json-report
	cd $(SUITE) && ARRAY_API_TESTS_MODULE=shmtensor.array_api $(abspath $(BIN))/python -m pytest -q --disable-warnings --tb=no -rf \
	  -p no:cacheprovider --max-examples $(EXAMPLES) array_api_tests

##@ Quality
lint: $(VENV)/.dev  ## ruff, mypy --strict, clang-format (1 min)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror native/*/*.?pp

TIDY ?= $(wildcard native/*/*.cpp)
tidy: $(VENV)/.dev  ## clang-tidy over TIDY=native/*/*.cpp (5 min)
	$(CMAKE) -S . -B build/tidy -DSHMTENSOR_MODULE=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_CXX_FLAGS=-DSHMTENSOR_FAILPOINTS=1 \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python >/dev/null
	printf '%s\n' $(TIDY) | xargs -n 1 -P $(shell nproc) $(BIN)/clang-tidy -p build/tidy --quiet --warnings-as-errors='*'

format: $(VENV)/.dev  ## let ruff and clang-format change the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i native/*/*.?pp

# Which lines and branches of Python and C++ the tests run. It works on a clone of the last commit, since an instrumented extension
# would replace that of the checkout. Code that a killed process ran is not counted. COVERED chooses tests; the figures are of all
# that ran, though some tests fail when they are measured: a process whose files or permissions are limited cannot write its counts.
COVERED ?= tests
COVERAGE ?= build/coverage
coverage: check-tools  ## lines and branches that all tests run, of Python and C++; COVERED=tests/store (90 min)
	test -d $(COVERAGE) || git clone --quiet . $(COVERAGE)
	git -C $(COVERAGE) pull --quiet
	$(MAKE) --no-print-directory -C $(COVERAGE) covered COVERED="$(COVERED)"

INSTRUMENTED := $(abspath build/instrumented)
COVERED_BY := COVERAGE_FILE=$(abspath build/data/coverage) $(BIN)/python -m coverage
MEASURED := SHMTENSOR_NATIVE_TESTS=$(INSTRUMENTED)/native $(FOR_TESTS) $(COVERED_BY) run -m pytest -o timeout=900
covered: $(VENV)/.tools
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[test-all,coverage,ray,dask,top]" "$(TORCH)" \
	  --config-settings=cmake.define.SHMTENSOR_COVERAGE=ON --config-settings=build-dir=$(INSTRUMENTED)/extension
	$(CMAKE) -DSHMTENSOR_COVERAGE=ON -S . -B $(INSTRUMENTED)/native >/dev/null
	$(BIN)/cmake --build $(INSTRUMENTED)/native
	$(BIN)/python tools/measured_interpreters.py
	find build -name '*.gcda' -delete && rm -rf build/data && mkdir -p build/data
	-$(MEASURED) --ignore tests/test_model.py -m "not ray and not dask" -n $(JOBS) --dist worksteal $(COVERED) $(TESTFLAGS)
	-$(MEASURED) -m "ray or dask" $(COVERED) $(TESTFLAGS)
	$(COVERED_BY) combine --quiet
	$(COVERED_BY) html --quiet -d build/python
	$(COVERED_BY) report --skip-covered --sort=miss | tail -n 60
	$(BIN)/python -m gcovr --root . --filter native/ --exclude native/tests/ --exclude-throw-branches --merge-lines \
	  --merge-mode-functions separate --gcov-suspicious-hits-threshold 0 --html-nested build/native.html --txt --txt-summary $(INSTRUMENTED)

# The site, from the documents, the docstrings and the code (tools/build_site.py); LINKS=1 also checks links to other sites.
docs: $(VENV)/.docs  ## build the documentation site into build/site/html; a warning is an error (2 min); LINKS=1
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python tools/build_site.py build/site $(if $(LINKS),--links)

##@ Packages
# The wheel and the sdist of a release; the wheel gets the tag of the oldest system that it runs on.
wheel: $(VENV)/.release  ## build sdist and wheel into dist, checked and with its platform's tag (2 min)
	rm -rf dist build/wheel
	$(BIN)/python -m build --quiet --outdir build/wheel .
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python -m auditwheel repair --wheel-dir dist build/wheel/*.whl
	cp build/wheel/*.tar.gz dist
	$(BIN)/python -m twine check --strict dist/*

# The suite against the installed wheel, from a copy of the repository without the package's sources.
test-wheel:  ## install dist's wheel into a new environment and run the tests against it (8 min)
	$(PYTHON) tools/check_wheel.py dist build/wheel-test -- -n $(JOBS) -m "$(SELECT)" $(TESTFLAGS)

release: $(VENV)/.release  ## check that version, changelog, tag, documents and packages agree; says what to publish
	$(BIN)/python tools/release.py

clean:  ## remove what was built, and the environments
	rm -rf build $(VENV) $(BENCH_VENV) shmtensor/_native*.so examples/output .pytest_cache .mypy_cache .ruff_cache
