# -DCMAKE_PROJECT_tritonpythonbackend_INCLUDE_BEFORE=<this file>: upstream's program triton_python_backend_stub, which is
# built for one Python, becomes a library for each version, libtriton_python_backend_stub-<version>.so, and our launcher
# takes its name. The libraries are built as upstream's target says; nothing of it is repeated here.
#
#   MACBUILD_PYTHON_VERSIONS   the versions; by default all that python_headers has
#
# The call is deferred before those of the compat layer (inject.cmake), so that the targets exist when it looks for
# them.
get_filename_component(MACBUILD_STUB_SOURCES "${CMAKE_CURRENT_LIST_DIR}/../src" ABSOLUTE)
# No Python of this machine is queried.
set(PYBIND11_NOPYTHON ON)
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL _macbuild_stubs triton-python-backend-stub)

function(_macbuild_stubs upstream)
  find_package(python_headers REQUIRED CONFIG)
  set(versions ${python_headers_VERSIONS})
  if(MACBUILD_PYTHON_VERSIONS)
    set(versions ${MACBUILD_PYTHON_VERSIONS})
  endif()
  if(NOT TARGET ${upstream})
    message(FATAL_ERROR "macbuild: the project has no target ${upstream}; python_backend has changed")
  endif()
  get_target_property(libraries ${upstream} LINK_LIBRARIES)
  if(NOT "pybind11::embed" IN_LIST libraries)
    message(FATAL_ERROR "macbuild: ${upstream} does not link pybind11::embed but '${libraries}'")
  endif()
  list(TRANSFORM libraries REPLACE "^pybind11::embed$" "pybind11::headers")
  foreach(version IN LISTS versions)
    _macbuild_stub(${upstream} ${version} "${libraries}")
  endforeach()
  if(MACBUILD_COMPAT_FORCED)
    set_property(TARGET triton-python-backend APPEND PROPERTY
      COMPILE_OPTIONS "SHELL:-include \"${MACBUILD_STUB_SOURCES}/as_darwin.h\"")
  endif()
  _macbuild_launcher(${upstream})
endfunction()

function(_macbuild_stub upstream version libraries)
  string(REPLACE "." "" short ${version})
  set(target triton_python_backend_stub-${version})
  get_target_property(sources ${upstream} SOURCES)
  add_library(${target} SHARED ${sources} "${MACBUILD_STUB_SOURCES}/entry.cpp")
  foreach(property IN ITEMS
    COMPILE_DEFINITIONS COMPILE_FEATURES COMPILE_FLAGS COMPILE_OPTIONS CXX_EXTENSIONS CXX_STANDARD CXX_STANDARD_REQUIRED
    INCLUDE_DIRECTORIES LINK_DIRECTORIES)
    get_target_property(value ${upstream} ${property})
    if(value)
      set_property(TARGET ${target} PROPERTY ${property} "${value}")
    endif()
  endforeach()
  get_target_property(dependencies ${upstream} MANUALLY_ADDED_DEPENDENCIES)
  if(dependencies)
    add_dependencies(${target} ${dependencies})
  endif()
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_LIBRARIES "${libraries};python_headers::python${short}"
    LINK_DEPENDS "${MACBUILD_STUB_SOURCES}/exports.map")
  set(options "LINKER:--version-script=${MACBUILD_STUB_SOURCES}/exports.map")
  if(APPLE)
    # Python's symbols are found in the process. macbuild's driver makes sure that there are no other undefined symbols.
    list(APPEND options "LINKER:-undefined,dynamic_lookup")
  endif()
  set_property(TARGET ${target} PROPERTY LINK_OPTIONS "${options}")
  if(MACBUILD_COMPAT_FORCED)
    set_property(TARGET ${target} APPEND PROPERTY
      COMPILE_OPTIONS "SHELL:-include \"${MACBUILD_STUB_SOURCES}/as_darwin.h\"")
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION "${CMAKE_INSTALL_PREFIX}/backends/python")
endfunction()

function(_macbuild_launcher target)
  foreach(property IN ITEMS COMPILE_DEFINITIONS COMPILE_FLAGS INCLUDE_DIRECTORIES LINK_FLAGS)
    set_property(TARGET ${target} PROPERTY ${property})
  endforeach()
  set_target_properties(${target} PROPERTIES
    SOURCES "${MACBUILD_STUB_SOURCES}/launcher.cpp;${MACBUILD_STUB_SOURCES}/find_python.cpp"
    CXX_STANDARD 20
    COMPILE_OPTIONS "-Wall;-Wextra"
    LINK_LIBRARIES "${CMAKE_DL_LIBS}")
endfunction()
