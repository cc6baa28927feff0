# add_triton_backend(<name> SOURCES <source>...)
#
# Defines the target triton_<name>: the library libtriton_<name>.so, which is the name that Triton's core expects on
# every system but Windows. `cmake --install` puts it into backends/<name>/. Only TRITONBACKEND_* is exported: by a
# version script on Linux, by an export list on macOS. Not every linker there obeys the list, so macbuild removes the
# other exports.
function(add_triton_backend name)
  set(exports ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/exports)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" SOURCES)
  set(target triton_${name})
  add_library(${target} SHARED ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE backend_kit::backend_kit)
  set_target_properties(${target} PROPERTIES
    BUILD_WITH_INSTALL_NAME_DIR ON
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    INSTALL_NAME_DIR @rpath
    PREFIX lib
    SUFFIX .so
    VISIBILITY_INLINES_HIDDEN ON
  )
  if(APPLE)
    string(APPEND exports .list)
    target_link_options(${target} PRIVATE LINKER:-exported_symbols_list,${exports})
  else()
    string(APPEND exports .map)
    target_link_options(${target} PRIVATE LINKER:--version-script=${exports})
  endif()
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${exports})
  install(TARGETS ${target} LIBRARY DESTINATION backends/${name})
endfunction()
