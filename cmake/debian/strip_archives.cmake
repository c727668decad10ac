# SPDX-License-Identifier: Apache-2.0
# CPack strips programs and shared libraries; this strips the static ones, before they are packed.
file(GLOB_RECURSE archives ${CPACK_TEMPORARY_DIRECTORY}/*.a)
find_program(strip strip REQUIRED)
foreach(archive ${archives})
    execute_process(
        COMMAND ${strip} --strip-debug --enable-deterministic-archives ${archive}
        COMMAND_ERROR_IS_FATAL ANY)
endforeach()
