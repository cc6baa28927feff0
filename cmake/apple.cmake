# Apple's clang with a real SDK, on a Mac. MACBUILD_SDK is the SDK's path.
include("${CMAKE_CURRENT_LIST_DIR}/darwin.cmake")
