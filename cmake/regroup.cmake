# SPDX-License-Identifier: Apache-2.0
# Shared by every target of the project: language, warnings, sanitizers, include roots, and the two
# functions by which components and tests are declared.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# Invariants stay checked; of symbols, what a backtrace needs: whole ones cost a fifth of the build.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

find_package(Threads REQUIRED)
if(REGROUP_PROGRAMS)
    find_package(Boost 1.81 REQUIRED)
endif()
find_package(nlohmann_json 3.11 REQUIRED)
find_path(REGROUP_XXHASH_INCLUDE NAMES xxhash.h REQUIRED
    DOC "The folder of xxhash.h; Debian's package libxxhash-dev has it")
add_library(regroup_xxhash INTERFACE)
target_include_directories(regroup_xxhash SYSTEM INTERFACE ${REGROUP_XXHASH_INCLUDE})

# Static where there is an archive: loading a shared libcrypto costs each process of a launch 0.9 ms.
find_path(REGROUP_SODIUM_INCLUDE NAMES sodium.h REQUIRED
    DOC "The folder of sodium.h; Debian's package libsodium-dev has it")
find_library(REGROUP_SODIUM NAMES libsodium.a sodium REQUIRED)
add_library(regroup::sodium UNKNOWN IMPORTED GLOBAL)
set_target_properties(regroup::sodium PROPERTIES
    IMPORTED_LOCATION ${REGROUP_SODIUM}
    INTERFACE_INCLUDE_DIRECTORIES ${REGROUP_SODIUM_INCLUDE})
if(REGROUP_PROGRAMS)
    set(OPENSSL_USE_STATIC_LIBS ON)
    find_package(OpenSSL 3.0 QUIET)
    if(NOT OpenSSL_FOUND)
        set(OPENSSL_USE_STATIC_LIBS OFF)
        find_package(OpenSSL 3.0 REQUIRED)
    endif()
endif()

add_library(regroup_options INTERFACE)
target_include_directories(regroup_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(regroup_options INTERFACE
    # Where a processor has an instruction for a * b + c, as each with aarch64 does, compilers use it,
    # and its result differs in the last bit. The same source gives the same bits everywhere.
    $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    $<$<BOOL:${REGROUP_WARNINGS_AS_ERRORS}>:-Werror>>
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow>)
if(REGROUP_SANITIZE)
    target_compile_options(regroup_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
        -fsanitize=${REGROUP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
        $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>>)
    target_link_options(regroup_options INTERFACE -fsanitize=${REGROUP_SANITIZE})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    find_program(REGROUP_LLD NAMES ld.lld-19)
    if(REGROUP_LLD)
        target_link_options(regroup_options INTERFACE --ld-path=${REGROUP_LLD})
    endif()
endif()

# Asio as one translation unit instead of one copy per user: halves the compile time of each.
add_library(regroup_asio INTERFACE)
target_link_libraries(regroup_asio INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(regroup_asio INTERFACE BOOST_ASIO_SEPARATE_COMPILATION
                           BOOST_ASIO_NO_DEPRECATED)
# A false alarm of g++ 12 about the frames of optimised coroutines: awaitable_frame_base has an
# operator new that calls aligned_alloc() and an operator delete that calls free(), as they should;
# with -O2 only the first is inlined, and the second is taken for a stranger to the memory.
target_compile_options(regroup_asio INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-mismatched-new-delete>)

# regroup_library(NAME SOURCES... [PUBLIC targets...] [PRIVATE targets...])
# A static library `regroup_NAME` with the alias `regroup::NAME`.
function(regroup_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
    add_library(regroup_${name} STATIC ${ARG_SOURCES})
    add_library(regroup::${name} ALIAS regroup_${name})
    target_link_libraries(regroup_${name} PUBLIC ${ARG_PUBLIC} PRIVATE regroup_options ${ARG_PRIVATE})
endfunction()

# regroup_precompile(TARGETS...): their sources get the headers that regroup_headers parsed.
function(regroup_precompile)
    foreach(target ${ARGN})
        target_precompile_headers(${target} REUSE_FROM regroup_headers)
    endforeach()
endfunction()

# regroup_precompile_asio(TARGETS...): their sources get Asio's headers as regroup::asio parsed them.
function(regroup_precompile_asio)
    foreach(target ${ARGN})
        target_precompile_headers(${target} REUSE_FROM regroup_asio_impl)
    endforeach()
endfunction()

# regroup_optimize_lightly(TARGETS...): -O1 suffices for code that starts, reports and prints once.
# There a call costs nothing, and what is not inlined need not be compiled: a quarter of the time.
function(regroup_optimize_lightly)
    set(release $<CONFIG:RelWithDebInfo>)
    foreach(target ${ARGN})
        target_compile_options(${target} PRIVATE $<${release}:-O1>
            $<$<AND:${release},$<CXX_COMPILER_ID:Clang>>:SHELL:-mllvm -inline-threshold=25>)
    endforeach()
endfunction()

# regroup_no_optimization([ASIO] TARGETS...): compiled as the tests themselves are, with the headers
# that were parsed for them; with ASIO, Asio's are among them.
function(regroup_no_optimization)
    cmake_parse_arguments(ARG "ASIO" "" "" ${ARGN})
    set(headers regroup_test_headers)
    if(ARG_ASIO)
        set(headers regroup_asio_test_headers)
    endif()
    foreach(target ${ARG_UNPARSED_ARGUMENTS})
        target_compile_options(${target} PRIVATE "$<$<CONFIG:RelWithDebInfo>:-O0;-g0>")
        if(TARGET ${headers})
            target_precompile_headers(${target} REUSE_FROM ${headers})
        endif()
    endforeach()
endfunction()

# regroup_test(NAME LABEL SOURCES... LINK targets... [TIMEOUT seconds] [OPTIMIZED] [ASIO]
#              [PARAMETERS names...] [SUITES names...])
# One GoogleTest program, registered with ctest as one test of that label, which counts as skipped if
# each of its cases was. Only the tests themselves are compiled without optimisation, which is most of
# their compile time; OPTIMIZED is for those that compute much, ASIO for those that use Asio. With PARAMETERS it is one test for each
# of them: of the cases whose parameter begins so. With SUITES it is one for the cases of each suite whose
# name begins so, each in a process of its own, and one for all other cases.
function(regroup_test name label)
    cmake_parse_arguments(ARG "OPTIMIZED;ASIO" "TIMEOUT" "SOURCES;LINK;PARAMETERS;SUITES" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 120)
    endif()
    set(but)
    if(CMAKE_CROSSCOMPILING)
        # An emulator runs it, all but the cases in which the emulator falls short of Linux.
        math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
        file(STRINGS ${PROJECT_SOURCE_DIR}/tests/support/qemu.txt but REGEX "^${name} ")
        list(TRANSFORM but REPLACE "^[^ ]+ +([^ ]+) .*$" ":\\1")
        list(JOIN but "" but)
    endif()
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE regroup_options ${ARG_LINK} regroup_test_main)
    if(ARG_OPTIMIZED)
        target_compile_options(${name} PRIVATE $<$<CONFIG:Debug>:-O2>)
    else()
        set(with)
        if(ARG_ASIO)
            set(with ASIO)
        endif()
        regroup_no_optimization(${with} ${name})
    endif()
    set(tests ${label}.${name})
    if(ARG_PARAMETERS)
        list(TRANSFORM ARG_PARAMETERS PREPEND ${label}.${name}. OUTPUT_VARIABLE tests)
        foreach(parameter test IN ZIP_LISTS ARG_PARAMETERS tests)
            add_test(NAME ${test} COMMAND ${name} --gtest_brief=1 --gtest_filter=*/${parameter}*-${but})
        endforeach()
    else()
        set(others)
        foreach(suite ${ARG_SUITES})
            set(filter "${suite}*:*/${suite}*")
            string(APPEND others ":${filter}")
            add_test(NAME ${label}.${suite} COMMAND ${name} --gtest_brief=1 --gtest_filter=${filter}-${but})
            list(APPEND tests ${label}.${suite})
        endforeach()
        add_test(NAME ${label}.${name} COMMAND ${name} --gtest_brief=1 --gtest_filter=-${others}${but})
    endif()
    # ctest starts tests of a high cost first, so that none runs alone at the end.
    set_tests_properties(${tests} PROPERTIES LABELS ${label} TIMEOUT ${ARG_TIMEOUT}
                         COST ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()
