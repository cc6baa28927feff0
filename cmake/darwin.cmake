# The settings that both toolchains for macOS share. Included by the toolchain file that macbuild writes, which sets
# MACBUILD_ARCH, MACBUILD_DEPLOYMENT, MACBUILD_C, MACBUILD_CXX, MACBUILD_TOOLS and MACBUILD_SDK.

set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR "${MACBUILD_ARCH}")
# CMake wants the kernel's version: Darwin 20 is macOS 11, Darwin 24 is macOS 15, and Darwin 25 is macOS 26.
string(REGEX MATCH "^[0-9]+" _macbuild_major "${MACBUILD_DEPLOYMENT}")
if(_macbuild_major LESS 26)
  math(EXPR _macbuild_darwin "${_macbuild_major} + 9")
else()
  math(EXPR _macbuild_darwin "${_macbuild_major} - 1")
endif()
set(CMAKE_SYSTEM_VERSION "${_macbuild_darwin}.0.0")
set(CMAKE_OSX_DEPLOYMENT_TARGET "${MACBUILD_DEPLOYMENT}" CACHE STRING "The oldest macOS that runs the result")

# A folder with an SDK's layout. Without one CMake would ask xcrun.
set(CMAKE_OSX_SYSROOT "${MACBUILD_SDK}" CACHE PATH "The SDK or stubs to link against")

set(CMAKE_C_COMPILER "${MACBUILD_C}")
set(CMAKE_CXX_COMPILER "${MACBUILD_CXX}")
set(CMAKE_OBJC_COMPILER "${MACBUILD_C}")
set(CMAKE_OBJCXX_COMPILER "${MACBUILD_CXX}")
set(CMAKE_INSTALL_NAME_TOOL "${MACBUILD_TOOLS}/install_name_tool")
set(CMAKE_OTOOL "${MACBUILD_TOOLS}/otool")

# try_compile reads this file again, in a project that knows only these variables.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES
  MACBUILD_ARCH MACBUILD_DEPLOYMENT MACBUILD_C MACBUILD_CXX MACBUILD_TOOLS MACBUILD_SDK)

# Find nothing on the build machine but programs, which the build runs.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH ON)
set(CMAKE_FIND_USE_PACKAGE_REGISTRY OFF)
set(CMAKE_FIND_USE_SYSTEM_PACKAGE_REGISTRY OFF)
set(CMAKE_EXPORT_NO_PACKAGE_REGISTRY ON)
set(CMAKE_FRAMEWORK_PATH "${MACBUILD_SDK}/System/Library/Frameworks")
set(CMAKE_LIBRARY_PATH "${MACBUILD_SDK}/usr/lib")
set(CMAKE_FIND_FRAMEWORK LAST)
set(CMAKE_FIND_APPBUNDLE NEVER)

# Install names are final when a file is linked, so that nothing edits it on the way into the stage.
set(CMAKE_INSTALL_NAME_DIR "@rpath")
set(CMAKE_BUILD_WITH_INSTALL_NAME_DIR ON)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_MACOSX_RPATH ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_OBJC_VISIBILITY_PRESET hidden)
set(CMAKE_OBJCXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Read after CMake's own rules for the platform, which would add flags that the drivers have already.
set(CMAKE_USER_MAKE_RULES_OVERRIDE "${CMAKE_CURRENT_LIST_DIR}/rules.cmake")
