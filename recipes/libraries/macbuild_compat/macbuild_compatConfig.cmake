include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/macbuild_compatTargets.cmake")
# For -DCMAKE_PROJECT_INCLUDE=..., to adapt a foreign project.
set(MACBUILD_COMPAT_INJECT "${CMAKE_CURRENT_LIST_DIR}/inject.cmake")
