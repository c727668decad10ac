# SPDX-License-Identifier: Apache-2.0
# Builds the programs of tests/gpu with only a C++20 compiler, the CUDA toolkit, nccl.h and
# xxhash.h, for GPU machines with little software and no network. From the root:
#
#     make -f tests/gpu/gpu.mk test      # or: make test-gpu
#     make -f tests/gpu/gpu.mk bench     # or: make bench-gpu
#
# CUDA_HOME, NCCL_HOME and XXHASH_HOME name places where the headers are, if not the usual ones; CXX
# a compiler;
# PYTHON one that has torch, which the benchmarks are then compared with.

out := build/gpu
# The first of these programs that is installed.
first = $(shell for name in $(1); do command -v $$name && break; done)
ifeq ($(origin CXX),default)
    CXX := $(call first,clang++-19 g++ clang++)
endif
NVCC := $(firstword $(call first,nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
PYTHON ?= $(call first,python3)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(NVCC))
wheel := $(shell $(PYTHON) -c 'import importlib.util as u; s = u.find_spec("nvidia.nccl"); print(list(s.submodule_search_locations)[0] if s else "")' 2>/dev/null)
nccl_include := $(patsubst %/nccl.h,%,$(firstword $(wildcard $(addsuffix /include/nccl.h,$(NCCL_HOME) $(CUDA_HOME) /usr $(wheel)))))
ifneq ($(wheel),)
    export REGROUP_NCCL_LIBRARY ?= $(firstword $(wildcard $(wheel)/lib/libnccl.so.2))
endif
cudart := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a))

xxhash_include := $(patsubst %/xxhash.h,%,$(firstword $(wildcard $(addsuffix /xxhash.h,$(XXHASH_HOME)/include $(XXHASH_HOME) /usr/include))))

ifeq ($(CXX),)
    missing := C++ compiler
else ifeq ($(NVCC),)
    missing := CUDA toolkit (nvcc)
else ifeq ($(cudart),)
    missing := libcudart_static.a of the CUDA toolkit
else ifeq ($(nccl_include),)
    missing := nccl.h, NCCL's header,
else ifeq ($(xxhash_include),)
    missing := xxhash.h (one header; name its folder by XXHASH_HOME)
endif

flags := -std=c++20 -O2 -g -Wall -Wextra -I. -Iworker_sdk/include -Irendezvous/base/include \
         -isystem $(CUDA_HOME)/include -isystem $(nccl_include) $(addprefix -isystem ,$(filter-out /usr/include,$(xxhash_include))) \
         -DREGROUP_HAVE_CUDA -ffp-contract=off
# All of the SDK except the files that replace CUDA, and the C interface, which needs a generated
# header.
sdk := $(filter-out %/absent.cc %/absent_kernels.cc worker_sdk/src/c_api/%, \
           $(shell find worker_sdk/src -name '*.cc' -o -name '*.cu')) \
       $(wildcard rendezvous/base/*.cc) $(wildcard rendezvous/store/*.cc)
check := $(addprefix tests/gpu/,gpu_check.cc collectives.cc failures.cc operations.cc)
object = $(patsubst %,$(out)/%.o,$(1))
shared := $(call object,$(sdk) tests/gpu/ranks.cc)
peer = $(if $(PYTHON),$(PYTHON) -B tests/gpu/$(1),echo "$(1): skipped: there is no python3 here")
link = $(CXX) -o $@ $^ $(cudart) -ldl -lrt -lpthread

.PHONY: test bench
ifneq ($(missing),)
test bench:
	@echo "gpu: skipped: there is no $(missing) here"
else
test: $(out)/gpu_check $(out)/many_rounds $(out)/data_parallel_check $(out)/optimizer_check
	@$(out)/gpu_check
	@$(out)/many_rounds
	@$(out)/data_parallel_check
	@$(out)/optimizer_check
bench: $(out)/time_to_communicator $(out)/graph_step $(out)/optimizer_bench
	@$(out)/time_to_communicator
	@$(call peer,torch_communicator.py)
	@$(out)/graph_step
	@$(call peer,torch_graph_step.py)
	@$(out)/optimizer_bench
	@$(call peer,torch_optimizer.py)
endif

$(out)/gpu_check: $(call object,$(check)) $(shared)
	@$(link)
$(out)/time_to_communicator: $(call object,tests/gpu/time_to_communicator.cc) $(shared)
	@$(link)
$(out)/graph_step: $(call object,tests/gpu/graph_step.cc tests/gpu/small_kernels.cu) $(shared)
	@$(link)
$(out)/many_rounds: $(call object,tests/gpu/many_rounds.cc) $(shared)
	@$(link)
$(out)/data_parallel_check: $(call object,tests/gpu/data_parallel_check.cc) $(shared)
	@$(link)
$(out)/optimizer_check: $(call object,tests/gpu/optimizer_check.cc) $(shared)
	@$(link)
$(out)/optimizer_bench: $(call object,tests/gpu/optimizer_bench.cc) $(shared)
	@$(link)
$(out)/%.cc.o: %.cc
	@mkdir -p $(dir $@)
	@$(CXX) $(flags) -MMD -c $< -o $@
$(out)/%.cu.o: %.cu
	@mkdir -p $(dir $@)
	@$(NVCC) -std=c++20 -O2 -fmad=false -MMD -MF $(@:.o=.d) -I. -Iworker_sdk/include -Irendezvous/base/include \
	    -gencode arch=compute_80,code=compute_80 \
	    -gencode arch=compute_90,code=sm_90 -c $< -o $@
-include $(shell find $(out) -name '*.d' 2>/dev/null)
