# Changes to CMake's own rules for Darwin (CMAKE_USER_MAKE_RULES_OVERRIDE): the drivers set the
# SDK and the deployment target, and a module is a dylib, because dlopen opens both and zig does not link bundles.
foreach(_macbuild_language C CXX OBJC OBJCXX ASM)
  set(CMAKE_${_macbuild_language}_SYSROOT_FLAG "")
  set(CMAKE_${_macbuild_language}_OSX_DEPLOYMENT_TARGET_FLAG "")
  set(CMAKE_SHARED_MODULE_CREATE_${_macbuild_language}_FLAGS "-dynamiclib -Wl,-headerpad_max_install_names")
endforeach()

# A function in the headers may be newer than the deployment target. A check of CMake that links it must fail then.
get_property(_macbuild_trying GLOBAL PROPERTY IN_TRY_COMPILE)
if(_macbuild_trying)
  foreach(_macbuild_language C CXX OBJC OBJCXX)
    string(APPEND CMAKE_${_macbuild_language}_LINK_FLAGS " -Wl,-macbuild_known_symbols")
  endforeach()
endif()
