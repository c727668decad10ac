# SPDX-License-Identifier: Apache-2.0
# Debian packages, by CPack from the preset "package" (`make package`):
#
#     regroup          the programs
#     libregroup0.1    the shared library with the interface for C
#     libregroup-dev   headers, the static library for C++, files for CMake and pkg-config
set(REGROUP_PACKAGE_MAINTAINER "The authors of regroup <root@localhost>" CACHE STRING
    "Whom a package that is built here names as its maintainer")

install(FILES LICENSE NOTICE CHANGELOG.md CONTRIBUTING.md README.md SECURITY.md
    DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
regroup_copy_guides(${PROJECT_BINARY_DIR}/guides/installed "examples/|CONTRIBUTING")
install(DIRECTORY ${PROJECT_BINARY_DIR}/guides/installed/ docs/
    DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT programs
    REGEX "^${PROJECT_SOURCE_DIR}/docs/.*[.]md$" EXCLUDE)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)

set(library libregroup${regroup_abi})
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME regroup)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library})
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libregroup-dev)

# Debian wants these in /usr/share/doc of each.
file(STRINGS NOTICE rows REGEX "^  [^ ]" ENCODING UTF-8)
list(TRANSFORM rows PREPEND " ")
list(JOIN rows "\n" REGROUP_NOTICE_ROWS)
string(TIMESTAMP REGROUP_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(folder ${PROJECT_BINARY_DIR}/debian)
configure_file(cmake/debian/copyright.in ${folder}/copyright @ONLY)
configure_file(cmake/debian/changelog.in ${folder}/changelog @ONLY)
set(papers ${folder}/copyright)
find_program(REGROUP_GZIP gzip)
mark_as_advanced(REGROUP_GZIP)
if(REGROUP_GZIP)
    execute_process(COMMAND ${REGROUP_GZIP} -9nc ${folder}/changelog
        OUTPUT_FILE ${folder}/changelog.gz COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND papers ${folder}/changelog.gz)
endif()
foreach(component PROGRAMS LIBRARY DEVELOPMENT)
    string(TOLOWER ${component} name)
    install(FILES ${papers}
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${CPACK_DEBIAN_${component}_PACKAGE_NAME}
        COMPONENT ${name} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_PACKAGE_NAME regroup)
set(CPACK_PACKAGE_VENDOR "the authors of regroup")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has one of its own
set(CPACK_PACKAGE_CONTACT ${REGROUP_PACKAGE_MAINTAINER})
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_REGROUP_STRIP ${CMAKE_STRIP})
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian/strip_archives.cmake)
set(CPACK_COMPONENTS_ALL programs library development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
if(CMAKE_CROSSCOMPILING)
    # CPack asks dpkg of this machine, and the libraries that programs are linked to are not its own.
    set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
    foreach(folder lib usr/lib)
        list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
            ${CMAKE_SYSROOT}/${folder}/${CMAKE_LIBRARY_ARCHITECTURE})
    endforeach()
endif()

set(CPACK_DEBIAN_PROGRAMS_DESCRIPTION
    "Elastic launcher and rendezvous daemon for distributed training\nStarts the processes of a training job on one or many machines, agrees on their\nranks, and keeps them running when processes and machines die. Takes the command\nline of torchrun, and has a link of that name in /usr/libexec/regroup.")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION
    "Worker SDK for distributed training: interface for C\nRanks, collectives, data-parallel training and checkpoints, for programs in C and\nin languages that call C.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
    "Worker SDK for distributed training: headers and static library\nWhat programs in C++20 and C are built with.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library} (= ${PROJECT_VERSION}), libsodium-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "regroup, cmake, pkg-config")
include(CPack)
