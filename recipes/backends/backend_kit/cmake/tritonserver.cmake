# backend_kit::tritonserver stands in for the server when a backend is linked, so no source or library of the server is
# needed. A function that is not in tritonserver.symbols is a link error.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tritonserver.symbols)
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/tritonserver.symbols symbols)

add_library(backend_kit_tritonserver INTERFACE)
add_library(backend_kit::tritonserver ALIAS backend_kit_tritonserver)

if(APPLE)
  # A text stub (TBD version 4, specified by LLVM's TextAPI) with the install name of a server on macOS.
  list(TRANSFORM symbols PREPEND _)
  list(JOIN symbols ", " symbols)
  set(stub ${CMAKE_CURRENT_BINARY_DIR}/libtritonserver.tbd)
  file(CONFIGURE OUTPUT ${stub} @ONLY CONTENT "--- !tapi-tbd
tbd-version:     4
targets:         [ x86_64-macos, arm64-macos ]
install-name:    '@rpath/libtritonserver.dylib'
exports:
  - targets:         [ x86_64-macos, arm64-macos ]
    symbols:         [ @symbols@ ]
...
")
  target_link_libraries(backend_kit_tritonserver INTERFACE ${stub})
else()
  # The server that loads a backend has the library in the process already, under a name that its packager chose
  # (libtritonserver.so, libtritonserver-717102f0.so). A dependency by name would fail to load in all but one of them,
  # so the names are left open, but only these.
  include(CheckLinkerFlag)
  check_linker_flag(CXX -Wl,--no-undefined,--ignore-unresolved-symbol=none BACKEND_KIT_IGNORES_UNRESOLVED)
  if(BACKEND_KIT_IGNORES_UNRESOLVED)
    list(TRANSFORM symbols PREPEND -Wl,--ignore-unresolved-symbol=)
    list(JOIN symbols "\n" symbols)
    set(stub ${CMAKE_CURRENT_BINARY_DIR}/tritonserver.options)
    file(CONFIGURE OUTPUT ${stub} @ONLY CONTENT "-Wl,--no-undefined\n@symbols@\n")
    target_link_options(backend_kit_tritonserver INTERFACE @${stub})
  endif()
endif()
set_target_properties(backend_kit_tritonserver PROPERTIES INTERFACE_LINK_DEPENDS "${stub}")
target_link_libraries(backend_kit PUBLIC backend_kit::tritonserver)
