# FindLibTorch
#
# Headers and libraries of LibTorch, as the target LibTorch::LibTorch. Variables that locate it:
#   LIBTORCH_ROOT      a folder with include/ and lib/: LibTorch, or the package "torch" of a Python
#   LIBTORCH_LINK_DIR  a folder with stubs (libc10.tbd, libtorch_cpu.tbd) to link in place of the libraries
# Without the first, the package "torch" of the Python that CMake finds is used. The CMake package inside LibTorch is
# not used: it asks for everything that LibTorch was built with (MKL, Kineto, Protobuf), which its users do not need.

if(NOT LIBTORCH_ROOT)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND)
    # The package is located without importing it, which would take seconds.
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
      OUTPUT_VARIABLE LIBTORCH_ROOT)
  endif()
endif()

find_path(LibTorch_INCLUDE_DIR torch/script.h
  HINTS ${LIBTORCH_ROOT}/include ${LIBTORCH_ROOT}/include/torch/csrc/api/include
  NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
set(libraries)
foreach(name IN ITEMS torch_cpu c10)
  if(LIBTORCH_LINK_DIR)
    find_file(LibTorch_${name}_LIBRARY lib${name}.tbd
      HINTS ${LIBTORCH_LINK_DIR} NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
  else()
    find_library(LibTorch_${name}_LIBRARY ${name}
      HINTS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
  endif()
  mark_as_advanced(LibTorch_${name}_LIBRARY)
  list(APPEND libraries LibTorch_${name}_LIBRARY)
endforeach()
mark_as_advanced(LibTorch_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS ${libraries} LibTorch_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "set LIBTORCH_ROOT to LibTorch or to the folder of the Python package torch")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    ${LIBTORCH_ROOT}/include ${LIBTORCH_ROOT}/include/torch/csrc/api/include)
  foreach(variable IN LISTS libraries)
    target_link_libraries(LibTorch::LibTorch INTERFACE ${${variable}})
  endforeach()
endif()
