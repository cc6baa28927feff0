# Changes to CMake's own rules for Darwin (CMAKE_USER_MAKE_RULES_OVERRIDE): SDK and deployment target are the drivers'
# matter, and a module is a dylib, since dlopen takes both and zig links no bundles.
foreach(_macbuild_language C CXX OBJC OBJCXX)
  set(CMAKE_${_macbuild_language}_SYSROOT_FLAG "")
  set(CMAKE_${_macbuild_language}_OSX_DEPLOYMENT_TARGET_FLAG "")
  set(CMAKE_SHARED_MODULE_CREATE_${_macbuild_language}_FLAGS "-dynamiclib -Wl,-headerpad_max_install_names")
endforeach()
