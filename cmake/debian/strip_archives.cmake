# SPDX-License-Identifier: Apache-2.0
# CPack strips programs and shared libraries; this strips the static ones, before they are packed.
file(GLOB_RECURSE archives ${CPACK_TEMPORARY_DIRECTORY}/*.a)
foreach(archive ${archives})
    execute_process(
        COMMAND ${CPACK_REGROUP_STRIP} --strip-debug --enable-deterministic-archives ${archive}
        COMMAND_ERROR_IS_FATAL ANY)
endforeach()
