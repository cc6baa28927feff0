include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/macbuild_compatTargets.cmake")
# For -DCMAKE_PROJECT_INCLUDE=..., so that a foreign project is made to fit.
set(MACBUILD_COMPAT_INJECT "${CMAKE_CURRENT_LIST_DIR}/inject.cmake")
