# SPDX-License-Identifier: Apache-2.0
# The PyTorch releases that tests may be run with. Each is a Python interpreter with torch, named by
# a cache variable or an environment variable of the same name:
#
#     REGROUP_PYTORCH_DEBIAN   the distribution's, release 1.13
#     REGROUP_PYTORCH_CURRENT  a recent one, by default in a virtual environment under build/
#     REGROUP_PYTORCH_NEWEST   the newest one, likewise
#     REGROUP_PYTORCH_CLIENTS  one with libraries that train with PyTorch, likewise
#
# tests/pytorch/setup.sh makes these environments.
#
# An interpreter that is missing, or has no torch, costs nothing but the tests that need it: they are
# skipped, and say what is missing. Where REGROUP_PREPARED has "pytorch", they fail instead.

find_program(REGROUP_PYTHON NAMES python3 DOC "Runs the tests' own Python programs")

function(regroup_pytorch_variable name default what)
    if(DEFINED ENV{${name}})
        set(default "$ENV{${name}}")
    endif()
    set(${name} "${default}" CACHE FILEPATH "Python interpreter with ${what}")
endfunction()
regroup_pytorch_variable(REGROUP_PYTORCH_DEBIAN /usr/bin/python3 "the distribution's PyTorch")
regroup_pytorch_variable(REGROUP_PYTORCH_CURRENT ${PROJECT_SOURCE_DIR}/build/pytorch/bin/python
                         "a recent PyTorch")
regroup_pytorch_variable(REGROUP_PYTORCH_NEWEST
                         ${PROJECT_SOURCE_DIR}/build/pytorch-newest/bin/python "the newest PyTorch")
regroup_pytorch_variable(REGROUP_PYTORCH_CLIENTS
                         ${PROJECT_SOURCE_DIR}/build/pytorch-clients/bin/python
                         "libraries that train with PyTorch")

# regroup_pytorch_release(INTERPRETER OUT): the release of torch that it imports, such as 2.14.1, or
# an empty string. Asked once for each interpreter; importing torch takes seconds.
function(regroup_pytorch_release interpreter out)
    string(MAKE_C_IDENTIFIER "REGROUP_PYTORCH_RELEASE_${interpreter}" known)
    if(NOT ${known} AND EXISTS "${interpreter}")
        execute_process(
            COMMAND ${interpreter} -c "import torch; print(torch.__version__.split('+')[0])"
            OUTPUT_VARIABLE release ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE
            RESULT_VARIABLE failed TIMEOUT 60)
        if(NOT failed)
            set(${known} "${release}" CACHE INTERNAL "Release of torch for ${interpreter}")
        endif()
    endif()
    set(${out} "${${known}}" PARENT_SCOPE)
endfunction()

if("pytorch" IN_LIST REGROUP_PREPARED)
    regroup_pytorch_release("${REGROUP_PYTORCH_CURRENT}" release)
    if(NOT release)
        message(FATAL_ERROR "REGROUP_PREPARED has pytorch, and ${REGROUP_PYTORCH_CURRENT} "
                            "(REGROUP_PYTORCH_CURRENT) cannot import torch; get it by: "
                            "sh tests/pytorch/setup.sh current; or configure with "
                            "-DREGROUP_PREPARED=")
    endif()
endif()

# regroup_pytorch_test(NAME SCRIPT [arguments...])
# For each PyTorch one ctest test pytorch.NAME.RELEASE, or pytorch.NAME.current, .newest and .debian
# where there is none yet. The script is run as: SCRIPT --interpreter INTERPRETER [arguments...], and
# ends with code 77 to be skipped. With a PyTorch that was prepared, that is a failure.
function(regroup_pytorch_test name script)
    if(NOT REGROUP_PYTHON)
        message(STATUS "no python3: the tests pytorch.${name} are left out")
        return()
    endif()
    foreach(which CURRENT NEWEST DEBIAN)
        regroup_pytorch_release("${REGROUP_PYTORCH_${which}}" release)
        if(NOT release)
            string(TOLOWER ${which} release)
        endif()
        set(test pytorch.${name}.${release})
        if(TEST ${test})
            continue()  # The same release twice.
        endif()
        add_test(NAME ${test}
            COMMAND ${REGROUP_PYTHON} ${script} --interpreter ${REGROUP_PYTORCH_${which}} ${ARGN})
        set_tests_properties(${test} PROPERTIES
            LABELS pytorch TIMEOUT 400 COST 400)
        if(NOT (which STREQUAL "CURRENT" AND "pytorch" IN_LIST REGROUP_PREPARED))
            set_tests_properties(${test} PROPERTIES SKIP_RETURN_CODE 77)
        endif()
    endforeach()
endfunction()
