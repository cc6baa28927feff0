# zig for macOS, on any host. MACBUILD_STUBS is a folder of stubs in the layout of an SDK.
set(MACBUILD_SDK "${MACBUILD_STUBS}")
include("${CMAKE_CURRENT_LIST_DIR}/darwin.cmake")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MACBUILD_STUBS)

set(CMAKE_AR "${MACBUILD_TOOLS}/ar")
set(CMAKE_RANLIB "${MACBUILD_TOOLS}/ranlib")
set(CMAKE_STRIP "${MACBUILD_TOOLS}/strip")
# zig carries no clang-scan-deps, which CMake would run before every C++20 file.
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
