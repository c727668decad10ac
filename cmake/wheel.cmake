# SPDX-License-Identifier: Apache-2.0
# Adds to the package of Python (pyproject.toml) in the wheel: libregroup.so in the package, the
# launcher where the environment has its programs, and its plugin for NCCL. All must start on every system of the wheel's
# tag, so libraries that a system may lack are linked statically: the C++ library here, the others
# in each build. libgcc is shared: each system has it, and the static one needs a newer C library.
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")

function(regroup_install_wheel)
    get_target_property(options regroup LINK_OPTIONS)
    list(REMOVE_ITEM options -static-libgcc)
    set_target_properties(regroup PROPERTIES LINK_OPTIONS "${options}")
    target_link_options(regroup_c PRIVATE -static-libstdc++)
    foreach(target regroup regroup_c nccl_profiler)
        target_link_options(${target} PRIVATE LINKER:--strip-all)
    endforeach()
    # A wheel has no links: one file under one name.
    set_property(TARGET regroup_c PROPERTY VERSION)
    set_property(TARGET regroup_c PROPERTY SOVERSION)
    install(TARGETS regroup_c LIBRARY DESTINATION regroup COMPONENT python)
    install(TARGETS regroup RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}" COMPONENT python)
    # Where the launcher looks for it.
    install(TARGETS nccl_profiler LIBRARY DESTINATION "${SKBUILD_DATA_DIR}/lib/regroup" COMPONENT python)
endfunction()
cmake_language(DEFER CALL regroup_install_wheel)
