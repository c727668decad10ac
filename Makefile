# SPDX-License-Identifier: Apache-2.0
# The front door. Every target first installs what this machine lacks (cmake/setup.sh), then builds
# into build/<preset>; see CMakePresets.json.

MAKEFLAGS += --no-print-directory
jobs := $(shell nproc)
# Tests wait more than they compute.
test_jobs := $(shell expr 2 \* $$(nproc))
setup := @sh cmake/setup.sh
build := sh cmake/build.sh
# Whether tests and benchmarks include the GPU parts: AUTO (if CUDA and NCCL are found), ON, OFF.
CUDA ?= AUTO
# For which machine packages and wheels are built: this one, or with ARCH=arm64 or aarch64 for that.
arm := $(if $(filter arm64 aarch64,$(ARCH)),-arm)
arm_test := sh tests/support/with_qemu.sh sh tests/embedding/arm_test.sh
sources := launcher rendezvous agent worker_sdk examples tests

.DEFAULT_GOAL := help
.PHONY: help demo test test-browser simulate chaos fuzz test-pytorch test-versions test-kubernetes test-gpu bench bench-gpu torch-gpu gpu-bundle docs package package-test wheel wheel-test lint format release release-check test-arm \
        build install asan tsan gcc clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 21

demo: ## train a small language model through two failures, on this machine
	@echo "make demo: about $$($(build) estimate release $(jobs) 145 90 regroup byte_lm) minutes on $(jobs) cores: builds, then trains for a minute"
	$(setup) build
	@cmake --preset release -DREGROUP_CUDA=OFF >/dev/null
	@$(build) release $(jobs) regroup byte_lm
	@bash examples/demo.sh build/release

test: ## build everything and run every test; with a current PyTorch too, if it is there
	@echo "make test: about $$($(build) estimate release $(jobs) 550 1000) minutes on $(jobs) cores: builds everything, then runs the tests"
	$(setup) test
	@cmake --preset release -DREGROUP_CUDA=$(CUDA) >/dev/null
	@$(build) release $(jobs)
	@ctest --preset release -j $(test_jobs) --output-junit tests.xml; status=$$?; \
		sh tests/skipped.sh build/release/tests.xml; exit $$status

test-arm: ## build for aarch64 and run the unit and conformance tests there, by QEMU
	@echo "make test-arm: about $$($(build) estimate arm $(jobs) 400 900) minutes on $(jobs) cores: builds for aarch64, then runs the tests by QEMU"
	$(setup) arm
	@cmake --preset arm >/dev/null
	@$(build) arm $(jobs) regroup examples/all tests/unit/all tests/conformance/all
	@sh tests/support/with_qemu.sh ctest --preset arm -j $(jobs)

test-browser: ## check the daemon's web page in a real browser
	$(setup) browser
	@cmake --preset release >/dev/null
	@$(build) release $(jobs) regroup elastic
	@ctest --preset release -L browser

chaos: ## break a running job in every way for MINUTES=10 (SEED=N repeats a run); needs root
	$(setup) test
	@cmake --preset release >/dev/null
	@$(build) release $(jobs) regroup chaos chaos_worker delay_proxy \
		clock_shim
	@build/release/tests/chaos/chaos --regroup=build/release/launcher/regroup \
		--worker=build/release/tests/chaos/chaos_worker \
		--delay-proxy=build/release/tests/chaos/delay_proxy \
		--clock-shim=build/release/tests/chaos/libclock_shim.so \
		--keep=build/chaos --seconds=$$(($(or $(MINUTES),10) * 60)) $(if $(SEED),--seed=$(SEED))

simulate: ## run the whole protocol through simulated disasters: SEEDS=1000000 FROM=1
	$(setup) build
	@cmake --preset release >/dev/null
	@$(build) release $(jobs) swarm
	@sh tests/simulation/simulate.sh build/release/tests/simulation/swarm \
	    $(or $(FROM),1) $(or $(SEEDS),1000000) $(jobs)

fuzz: ## feed random input to everything that reads bytes of others: FUZZ_SECONDS=60 TARGETS=...
	$(setup) sanitize
	@cmake --preset fuzz >/dev/null
	@$(build) fuzz $(jobs)
	@sh tests/fuzz/fuzz.sh build/fuzz $(or $(FUZZ_SECONDS),60) $(TARGETS)

test-pytorch: ## get two PyTorch releases (12 GB, once) and libraries, and run the tests with them
	$(setup) pytorch
	@sh tests/pytorch/setup.sh current newest clients
	@cmake --preset release >/dev/null
	@$(build) release $(jobs)
	@ctest --preset release -L pytorch

test-versions: ## run another release, FROM=TAG, beside this one: daemons, launchers, programs
	$(setup) build
	@cmake --preset release >/dev/null
	@$(build) release $(jobs) regroup elastic regroup_c
	@sh tests/versions/other_release.sh "$(FROM)"
	@python3 tests/versions/versions_test.py build/release "build/versions/$(FROM)/build" "build/versions/$(FROM)/tree"

test-kubernetes: ## get the schemas of Kubernetes and of custom resources, and check the manifests
	$(setup) test
	@sh tests/kubernetes/setup.sh
	@cmake --preset release >/dev/null
	@$(build) release $(jobs) regroup
	@ctest --preset release -L kubernetes

test-gpu: ## check the NCCL back end on this machine's GPUs, if it has any
	@sh tests/gpu/gpu.sh test

bench-gpu: ## measure groups, steps and optimizers on this machine's GPUs, beside torch
	@sh tests/gpu/gpu.sh bench

torch-gpu: ## check on this machine's GPUs that trainings of PyTorch keep their processes
	@sh tests/gpu/gpu.sh torch

gpu-bundle: ## pack these checks and measurements for a GPU machine without a network
	$(setup) wheel
	@sh cmake/gpu_bundle.sh

bench: ## measure start, restart and traffic beside torchrun and mpirun
	$(setup) bench
	@cmake --preset release >/dev/null
	@$(build) release $(jobs) all tests/bench/all
	@sh tests/bench/run.sh build/release

docs: ## write the reference of the SDK's headers into build/release/docs/html
	$(setup) docs
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target regroup_docs

package: ## build Debian packages into build/package; ARCH=arm64: for that, into build/package-arm
	$(setup) $(if $(arm),arm,package)
	@cmake --preset package$(arm) >/dev/null
	@$(build) package$(arm) $(jobs)
	@$(if $(arm),DEB_HOST_ARCH=arm64 DPKG_ADMINDIR=$(CURDIR)/build/tools/aarch64/var/lib/dpkg) \
		cpack --preset package$(arm)

package-test: ## install them into a clean Debian 12 and run them there; needs root. ARCH=arm64: by QEMU
	$(setup) package-test
	@$(MAKE) package
	@$(if $(arm),$(arm_test) build/package-arm,sh tests/embedding/package_test.sh build/package)

wheel: ## build the Python wheel and its source distribution into build/wheel, or as for `package`
	$(setup) $(if $(arm),arm,wheel)
	@sh python/wheel.sh $(if $(arm),aarch64)

wheel-test: ## install it into clean environments of the Pythons here, and run jobs there
	@$(MAKE) wheel
	@$(if $(arm),$(arm_test) build/wheel-aarch64,sh tests/python/wheel_test.sh build/wheel)

release: ## make this version's files in build/release-VERSION, and its tag: TAG=no, ARCHES=aarch64
	$(setup) package
	$(setup) wheel
	@TAG=$(TAG) sh cmake/release.sh $(ARCHES)

release-check: ## build the files of a release twice, in two folders, and compare their bytes
	$(setup) package
	$(setup) wheel
	@sh cmake/reproducible.sh $(ARCHES)

lint: ## check format, the rules of the house and clang-tidy
	$(setup) lint
	@find $(sources) -name '*.h' -o -name '*.cc' | xargs clang-format-19 --dry-run --Werror
	@cmake --preset lint >/dev/null
	@$(build) lint $(jobs) tidy_test
	@build/lint/tests/tidy/tidy_test --gtest_brief=1
	@cmake --build --preset lint -j $(jobs) -- -k 0

format: ## rewrite the sources in the project's format
	$(setup) lint
	@find $(sources) -name '*.h' -o -name '*.cc' | xargs clang-format-19 -i

install: build ## install programs, SDK and guides below PREFIX=/usr/local
	@cmake --install build/release --prefix $(or $(PREFIX),/usr/local) >/dev/null
	@echo "installed below $(or $(PREFIX),/usr/local)"

build: ## build everything, optimised
	$(setup) build
	@cmake --preset release >/dev/null
	@$(build) release $(jobs) all tests/bench/all

asan: ## build and test with address and undefined-behaviour sanitizers
tsan: ## build and test with the thread sanitizer
gcc: ## build and test with g++ and the address sanitizer
asan tsan gcc:
	$(setup) sanitize
	@cmake --preset $@ >/dev/null
	@$(build) $@ $(jobs)
	@ctest --preset $@ -j $(jobs)

clean: ## remove everything that was built, but not what was downloaded for tests
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name 'pytorch*' ! -name tools -exec rm -rf {} +; fi
