# protobuf_generate(...): runs protoc over .proto files. The parameters are those of protobuf's own function, which its
# documentation describes (docs/cmake_protobuf_generate.md in protobuf's repository):
#
#   TARGET <target>          add the generated files to it, and use the .proto files among its sources
#   OUT_VAR <variable>       the generated files
#   PROTOS <file>...         files to compile
#   LANGUAGE <name>          cpp (default), python, or the name of a plugin's output
#   PROTOC_OUT_DIR <folder>  default: the current binary folder
#   IMPORT_DIRS <folder>...  where imports are; APPEND_PATH adds the folder of each .proto file. Default: the current
#                            source folder
#   GENERATE_EXTENSIONS      suffixes of the generated files' names, for languages other than cpp and python
#   EXPORT_MACRO, PLUGIN, PLUGIN_OPTIONS, PROTOC_OPTIONS, PROTOC_EXE, DEPENDENCIES
function(protobuf_generate)
  cmake_parse_arguments(PARSE_ARGV 0 arg "APPEND_PATH"
    "LANGUAGE;OUT_VAR;EXPORT_MACRO;PROTOC_OUT_DIR;PLUGIN;PLUGIN_OPTIONS;PROTOC_EXE;TARGET"
    "PROTOS;IMPORT_DIRS;GENERATE_EXTENSIONS;PROTOC_OPTIONS;DEPENDENCIES")
  if(NOT arg_TARGET AND NOT arg_OUT_VAR)
    message(FATAL_ERROR "protobuf_generate: TARGET or OUT_VAR is needed")
  endif()
  if(arg_TARGET)
    get_target_property(sources ${arg_TARGET} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.proto$")
    list(APPEND arg_PROTOS ${sources})
  endif()
  if(NOT arg_PROTOS)
    message(FATAL_ERROR "protobuf_generate: no .proto file is given")
  endif()

  string(TOLOWER "${arg_LANGUAGE}" language)
  if(NOT language)
    set(language cpp)
  endif()
  set(extensions ${arg_GENERATE_EXTENSIONS})
  if(NOT extensions AND language STREQUAL "cpp")
    set(extensions .pb.h .pb.cc)
  elseif(NOT extensions AND language STREQUAL "python")
    set(extensions _pb2.py)
  elseif(NOT extensions)
    message(FATAL_ERROR "protobuf_generate: GENERATE_EXTENSIONS is needed for the language ${language}")
  endif()
  if(NOT arg_PROTOC_OUT_DIR)
    set(arg_PROTOC_OUT_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  endif()
  file(MAKE_DIRECTORY "${arg_PROTOC_OUT_DIR}")
  if(NOT arg_PROTOC_EXE)
    set(arg_PROTOC_EXE protobuf::protoc)
    if(NOT TARGET protobuf::protoc)
      message(FATAL_ERROR "protobuf_generate: no protoc for this machine; set PROTOBUF_HOST_ROOT")
    endif()
  endif()

  set(options ${arg_PLUGIN_OPTIONS})
  if(arg_EXPORT_MACRO AND language STREQUAL "cpp")
    list(PREPEND options "dllexport_decl=${arg_EXPORT_MACRO}")
  endif()
  list(JOIN options "," options)
  set(command ${arg_PROTOC_EXE} ${arg_PROTOC_OPTIONS} "--${language}_out=${options}:${arg_PROTOC_OUT_DIR}")
  if(arg_PLUGIN)
    list(APPEND command "--plugin=${arg_PLUGIN}")
  endif()

  list(TRANSFORM arg_PROTOS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" REGEX "^[^/$]")
  set(folders "")
  if(arg_APPEND_PATH)
    foreach(proto IN LISTS arg_PROTOS)
      cmake_path(GET proto PARENT_PATH folder)
      list(APPEND folders "${folder}")
    endforeach()
  endif()
  foreach(folder IN LISTS arg_IMPORT_DIRS)
    cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    list(APPEND folders "${folder}")
  endforeach()
  if(NOT folders)
    set(folders "${CMAKE_CURRENT_SOURCE_DIR}")
  endif()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    list(APPEND command -I "${folder}")
  endforeach()

  set(generated "")
  foreach(proto IN LISTS arg_PROTOS)
    _protobuf_output_stem("${proto}" "${folders}" stem)
    set(outputs ${extensions})
    list(TRANSFORM outputs PREPEND "${arg_PROTOC_OUT_DIR}/${stem}")
    add_custom_command(OUTPUT ${outputs}
      COMMAND ${command} "${proto}"
      DEPENDS "${proto}" ${arg_PROTOC_EXE} ${arg_DEPENDENCIES}
      COMMENT "Running protoc on ${stem}.proto"
      VERBATIM)
    list(APPEND generated ${outputs})
  endforeach()
  set_source_files_properties(${generated} PROPERTIES GENERATED ON)
  if(arg_TARGET)
    target_sources(${arg_TARGET} PRIVATE ${generated})
  endif()
  if(arg_OUT_VAR)
    set(${arg_OUT_VAR} ${generated} PARENT_SCOPE)
  endif()
endfunction()

# The path of a .proto file relative to the first import folder that contains it, without the extension, as protoc uses
# it.
function(_protobuf_output_stem proto folders variable)
  cmake_path(NORMAL_PATH proto)
  foreach(folder IN LISTS folders)
    cmake_path(IS_PREFIX folder "${proto}" NORMALIZE inside)
    if(inside)
      cmake_path(RELATIVE_PATH proto BASE_DIRECTORY "${folder}" OUTPUT_VARIABLE stem)
      cmake_path(REMOVE_EXTENSION stem LAST_ONLY)
      set(${variable} "${stem}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "protobuf_generate: ${proto} is not in any of the import folders: ${folders}")
endfunction()
