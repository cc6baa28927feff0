# Makes a project that was written for Linux build for Darwin without an edit: -DCMAKE_PROJECT_INCLUDE=<this file>, as
# installed by macbuild_compat. CMake includes it after every project() call; the first one decides for all below it.
# Compiler and linker flags are not set here but by macbuild's drivers. See docs/design/compat.md.
if(DEFINED MACBUILD_COMPAT_INJECTED)
  return()
endif()
set(MACBUILD_COMPAT_INJECTED ON)

# For every target, since the build machine must not be written to. cmake/darwin.cmake has this for Darwin.
set(CMAKE_EXPORT_NO_PACKAGE_REGISTRY ON)
# CMake 4 refuses projects that ask for less. For the top-level project only the command line can set it.
if(NOT DEFINED CMAKE_POLICY_VERSION_MINIMUM)
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)
endif()

# MACBUILD_COMPAT_FORCED: everywhere, so that the code for Darwin can be run on this machine.
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Darwin" AND NOT MACBUILD_COMPAT_FORCED)
  return()
endif()

get_filename_component(_macbuild_compat_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(_macbuild_compat_shadow "${_macbuild_compat_root}/share/macbuild_compat/shadow")
set(_macbuild_compat_include "${_macbuild_compat_root}/include")
set(_macbuild_compat_library "${_macbuild_compat_root}/lib/libmacbuild_compat.a")
foreach(_macbuild_compat_needed shadow include library)
  if(NOT EXISTS "${_macbuild_compat_${_macbuild_compat_needed}}")
    message(FATAL_ERROR "macbuild: ${_macbuild_compat_${_macbuild_compat_needed}} is missing; is macbuild_compat installed?")
  endif()
endforeach()

# Not as system folders: every -I of the project would come before them.
include_directories(BEFORE "${_macbuild_compat_shadow}" "${_macbuild_compat_include}")
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX,OBJC,OBJCXX>:SHELL:-include macbuild/compat/forced.h>")
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Darwin")
  add_compile_definitions(MACBUILD_COMPAT_FORCED=1)
endif()

# Targets exist only after the project's last line has been read.
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL _macbuild_compat_finish
  "${CMAKE_SOURCE_DIR}" "${_macbuild_compat_library}")

# Applies to all targets of a folder and of those below it.
function(_macbuild_compat_finish folder library)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    _macbuild_compat_fit(${target} "${library}")
  endforeach()
  get_property(subfolders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS subfolders)
    _macbuild_compat_finish("${subfolder}" "${library}")
  endforeach()
endfunction()

# With properties, since target_link_libraries() has two forms that may not be mixed, and the project has chosen one.
function(_macbuild_compat_fit target library)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    # Whoever links it needs the library after it. The files that the project installs do not name it.
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES "$<BUILD_INTERFACE:${library}>")
  elseif(type MATCHES "^(EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY)$")
    set_property(TARGET ${target} APPEND PROPERTY LINK_LIBRARIES "${library}")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${library}")
  endif()
  if(type STREQUAL "EXECUTABLE")
    # Its constructor makes SIGPIPE an error of the call; without -u the linker would not take it from the archive.
    set(symbol macbuild_compat_start)
    if(APPLE)
      set(symbol _macbuild_compat_start)
    endif()
    set_property(TARGET ${target} APPEND PROPERTY LINK_OPTIONS "LINKER:-u,${symbol}")
  elseif(type MATCHES "^(SHARED|MODULE)_LIBRARY$")
    _macbuild_compat_name(${target})
  endif()
  if(NOT APPLE)
    # This machine need not have it, nor does shadow/numa.h need it. For Darwin the driver leaves it out.
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(libraries ${target} ${property})
      if(libraries)
        list(FILTER libraries EXCLUDE REGEX "^(\\$<LINK_ONLY:)?(-l)?numa>?$")
        set_property(TARGET ${target} PROPERTY ${property} "${libraries}")
      endif()
    endforeach()
  endif()
endfunction()

# Triton asks for its plugins by names that end in .so on every system but Windows.
function(_macbuild_compat_name target)
  get_target_property(name ${target} OUTPUT_NAME)
  if(NOT name)
    set(name ${target})
  endif()
  get_target_property(suffix ${target} SUFFIX)
  if(NOT suffix AND name MATCHES "^triton(cache|repoagent)?_")
    set_property(TARGET ${target} PROPERTY SUFFIX ".so")
  endif()
endfunction()
