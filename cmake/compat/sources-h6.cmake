# Sources of shared memory, processes, threads and the machine. Read by CMakeLists.txt.
set(MACBUILD_COMPAT_PORTABLE_H6
  src/portable/sha256.cpp
  src/portable/shm_names.cpp
  src/portable/private_dir.cpp
  src/portable/shm_registry.cpp
  src/portable/pages.cpp
  src/portable/posix.cpp
  src/portable/ipc_dir.cpp
  src/portable/boost_shared_dir.cpp
  src/portable/parent_watch.cpp
  src/portable/spawn.cpp
  src/portable/proc_text.cpp
  src/portable/thread_priority.cpp)
set(MACBUILD_COMPAT_DARWIN_H6
  src/darwin/process.cpp
  src/darwin/machine.cpp
  src/darwin/thread.cpp)
set(MACBUILD_COMPAT_LINUX_H6
  src/linux/process.cpp
  src/linux/machine.cpp
  src/linux/thread.cpp)
# Each is one program and one CTest test of that name.
set(MACBUILD_COMPAT_TESTS_H6
  tests/shm_names_test.cpp
  tests/shm_registry_test.cpp
  tests/shm_posix_test.cpp
  tests/ipc_dir_test.cpp
  tests/process_test.cpp
  tests/machine_test.cpp
  tests/thread_test.cpp)
# A program of the tests, not a test (tests/integration/test_compat_shm.py).
set(MACBUILD_COMPAT_TOOLS_H6
  tests/shm_names_tool.cpp)
# Compiled with shadow/ first on the include path, as foreign code is: what Triton's sources call.
set(MACBUILD_COMPAT_FOREIGN_TESTS_H6
  tests/foreign_calls.cpp)
