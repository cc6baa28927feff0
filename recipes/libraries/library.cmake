# Code shared by the third-party libraries. Include it right after project(), which must be at the top:
#
#   cmake_minimum_required(VERSION 3.21...3.31)
#   project(re2 VERSION 2025.11.5 LANGUAGES CXX)
#   include(../library.cmake)
#
# From here on every library is static, position independent, hidden and C++20, also in a source's own CMakeLists
# (add_subdirectory("${MACBUILD_SOURCE}" source)), and nothing of the build machine is found. Functions:
#
#   macbuild_check_version(<file> <regex>)
#   macbuild_install_headers(<folder> [TO <folder>] [PATTERNS <pattern>...] [EXCLUDE <regex>...])
#   macbuild_install_licenses(<file>...)
#   macbuild_install_package(<name> TARGETS <target>... [NAMESPACE <name>::] [VERSION <version>] [EXACT]
#                            [NEEDS <package>...] [FILES <file>...])

include_guard(GLOBAL)

if(NOT IS_DIRECTORY "${MACBUILD_SOURCE}")
  message(FATAL_ERROR "MACBUILD_SOURCE must be the folder of the library's source: '${MACBUILD_SOURCE}'")
endif()

# Sources of 2015 say cmake_minimum_required(2.8), and option() must not override what is set here.
set(CMAKE_POLICY_VERSION_MINIMUM 3.10)
set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)

set(BUILD_SHARED_LIBS OFF)
set(BUILD_TESTING OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

# Debian's CMake would install to lib/x86_64-linux-gnu.
set(CMAKE_INSTALL_LIBDIR lib)
set(CMAKE_INSTALL_INCLUDEDIR include)
set(CMAKE_INSTALL_BINDIR bin)
set(CMAKE_INSTALL_DATADIR share)

# Like cmake/darwin.cmake, for the host: a package is found in CMAKE_PREFIX_PATH or not at all.
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)
set(CMAKE_FIND_USE_PACKAGE_REGISTRY OFF)
set(CMAKE_FIND_USE_SYSTEM_PACKAGE_REGISTRY OFF)
set(CMAKE_EXPORT_NO_PACKAGE_REGISTRY ON)

# Warnings in foreign code are its authors' concern.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-w>)

# Fails if the source states another version than project(): the groups of a regular expression over one of its files,
# joined by dots.
function(macbuild_check_version file regex)
  file(READ "${MACBUILD_SOURCE}/${file}" text)
  if(NOT text MATCHES "${regex}")
    message(FATAL_ERROR "${file}: no version: '${regex}' does not match")
  endif()
  set(version "${CMAKE_MATCH_1}")
  foreach(group RANGE 2 9)
    if(NOT "${CMAKE_MATCH_${group}}" STREQUAL "")
      string(APPEND version ".${CMAKE_MATCH_${group}}")
    endif()
  endforeach()
  if(NOT version STREQUAL PROJECT_VERSION)
    message(FATAL_ERROR "${file}: the source is version ${version}, not ${PROJECT_VERSION}")
  endif()
endfunction()

# Installs the headers below a folder to include/ (or include/<TO>), with their folders. PATTERNS: file names, *.h by
# default. EXCLUDE: regular expressions over whole paths.
function(macbuild_install_headers folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TO" "PATTERNS;EXCLUDE")
  if(NOT arg_PATTERNS)
    set(arg_PATTERNS *.h)
  endif()
  set(rules FILES_MATCHING)
  foreach(pattern IN LISTS arg_PATTERNS)
    list(APPEND rules PATTERN "${pattern}")
  endforeach()
  foreach(regex IN LISTS arg_EXCLUDE)
    list(APPEND rules REGEX "${regex}" EXCLUDE)
  endforeach()
  install(DIRECTORY "${folder}/" DESTINATION "include/${arg_TO}" ${rules})
endfunction()

# Installs licence files to share/licenses/<project>/: paths relative to the source, where a file in a folder keeps the
# folder's name, or an absolute path, for our own text if the source archive has none.
function(macbuild_install_licenses)
  foreach(file IN LISTS ARGN)
    set(folder "")
    if(NOT IS_ABSOLUTE "${file}")
      cmake_path(GET file PARENT_PATH folder)
      set(file "${MACBUILD_SOURCE}/${file}")
    endif()
    install(FILES "${file}" DESTINATION "share/licenses/${PROJECT_NAME}/${folder}")
  endforeach()
endfunction()

# Installs a package that find_package(<name> CONFIG) finds:
# lib/cmake/<name>/<name>{Config,ConfigVersion,Targets}.cmake, or <name>-{config,config-version,targets}.cmake if <name>
# is in lower case, since find_package(<Name>) finds these too, and the targets themselves. Others see a target under
# <NAMESPACE> (default <name>::) followed by the target's property EXPORT_NAME (default the target's own name). VERSION:
# the project's by default. EXACT: a consumer must ask for exactly this version; otherwise for the same major version.
# NEEDS: packages that the targets link to (Threads, absl, ...). FILES: more files of the package, which the config file
# includes after the targets.
function(macbuild_install_package name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EXACT" "NAMESPACE;VERSION" "TARGETS;NEEDS;FILES")
  if(NOT arg_NAMESPACE)
    set(arg_NAMESPACE ${name}::)
  endif()
  if(NOT arg_VERSION)
    set(arg_VERSION ${PROJECT_VERSION})
  endif()
  set(folder lib/cmake/${name})
  set(files Config ConfigVersion Targets)
  if(name MATCHES "^[^A-Z]+$")
    set(files -config -config-version -targets)
  endif()
  list(TRANSFORM files PREPEND ${name})
  list(TRANSFORM files APPEND .cmake)
  list(POP_FRONT files config_file version_file targets_file)

  install(TARGETS ${arg_TARGETS} EXPORT ${name}
    ARCHIVE DESTINATION lib
    RUNTIME DESTINATION bin
    INCLUDES DESTINATION include
  )
  install(EXPORT ${name} FILE ${targets_file} NAMESPACE ${arg_NAMESPACE} DESTINATION ${folder})

  set(config "include(CMakeFindDependencyMacro)\n")
  foreach(need IN LISTS arg_NEEDS)
    string(APPEND config "find_dependency(${need})\n")
  endforeach()
  string(APPEND config "include(\"\${CMAKE_CURRENT_LIST_DIR}/${targets_file}\")\n")
  foreach(file IN LISTS arg_FILES)
    cmake_path(GET file FILENAME file)
    string(APPEND config "include(\"\${CMAKE_CURRENT_LIST_DIR}/${file}\")\n")
  endforeach()
  set(written "${CMAKE_CURRENT_BINARY_DIR}/macbuild-packages/${name}")
  file(WRITE "${written}/${config_file}" "${config}")

  include(CMakePackageConfigHelpers)
  set(compatibility SameMajorVersion)
  if(arg_EXACT)
    set(compatibility ExactVersion)
  endif()
  write_basic_package_version_file("${written}/${version_file}"
    VERSION ${arg_VERSION} COMPATIBILITY ${compatibility})
  install(FILES
    "${written}/${config_file}"
    "${written}/${version_file}"
    ${arg_FILES}
    DESTINATION ${folder})
endfunction()
