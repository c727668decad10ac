# SPDX-License-Identifier: Apache-2.0
# regroup_assets(TARGET FOLDER folder FILES files...): compiles the files into the target, as
# embedded_files.h declares them. Called by a build step as `cmake -P`, this file writes the source for one of them.
if(CMAKE_SCRIPT_MODE_FILE)
    file(READ ${INPUT} bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    file(WRITE ${OUTPUT} "extern const unsigned char ${SYMBOL}[];
extern const unsigned long ${SYMBOL}_size;
const unsigned char ${SYMBOL}[] = {
    ${bytes}0};
const unsigned long ${SYMBOL}_size = sizeof ${SYMBOL} - 1;
")
    return()
endif()

set(REGROUP_ASSETS_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(regroup_assets target)
    cmake_parse_arguments(ARG "" "FOLDER" "FILES" ${ARGN})
    set(declarations)
    set(entries)
    foreach(file ${ARG_FILES})
        string(MAKE_C_IDENTIFIER "regroup_asset_${file}" symbol)
        set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cc)
        set(input ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_FOLDER}/${file})
        add_custom_command(OUTPUT ${output}
            COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DSYMBOL=${symbol} -P ${REGROUP_ASSETS_SCRIPT}
            DEPENDS ${input} ${REGROUP_ASSETS_SCRIPT}
            VERBATIM)
        set_source_files_properties(${output} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
        target_sources(${target} PRIVATE ${output})
        string(APPEND declarations "extern const unsigned char ${symbol}[];\nextern const unsigned long ${symbol}_size;\n")
        string(APPEND entries "        {\"/${file}\", ${symbol}, ${symbol}_size},\n")
    endforeach()
    set(table ${CMAKE_CURRENT_BINARY_DIR}/embedded_files.cc)
    file(CONFIGURE OUTPUT ${table} CONTENT "#include \"rendezvous/http/embedded_files.h\"

${declarations}
std::span<const regroup::http::EmbeddedFile> regroup::http::embedded_files() {
    static const EmbeddedFile files[] = {
${entries}    };
    return files;
}
")
    set_source_files_properties(${table} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    target_sources(${target} PRIVATE ${table})
endfunction()
