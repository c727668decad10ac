# SPDX-License-Identifier: Apache-2.0
# Loss scaling and the optimizers: each loop for the CPU, and each kernel for the GPU.
set(optim_sources
    src/optim/cpu_update.cc
    src/optim/fused_optimizer.cc
    src/optim/grad_scaler.cc
    src/optim/memory.cc)
target_sources(regroup_worker_sdk PRIVATE ${optim_sources})
# Vectorised to the full, and the same bits everywhere: no a * b + c is contracted.
set_source_files_properties(src/float_arrays.cc src/optim/cpu_update.cc
    src/optim/fused_optimizer.cc src/optim/grad_scaler.cc PROPERTIES COMPILE_OPTIONS
    "$<$<NOT:$<CONFIG:Debug>>:-O3>;-ffp-contract=off;-fno-math-errno;-fno-trapping-math")

if(REGROUP_HAVE_CUDA)
    set(optim_kernels src/cuda/cast.cu src/optim/scaler_kernels.cu src/optim/update_kernels.cu)
    target_sources(regroup_worker_sdk PRIVATE ${optim_kernels})
    set_source_files_properties(${optim_kernels} PROPERTIES COMPILE_OPTIONS -fmad=false)
else()
    target_sources(regroup_worker_sdk PRIVATE src/optim/absent_kernels.cc)
endif()
