# Changes to CMake's own rules for Darwin (CMAKE_USER_MAKE_RULES_OVERRIDE): SDK and deployment target are the drivers'
# matter, and a module is a dylib, since dlopen takes both and zig links no bundles.
foreach(_macbuild_language C CXX OBJC OBJCXX ASM)
  set(CMAKE_${_macbuild_language}_SYSROOT_FLAG "")
  set(CMAKE_${_macbuild_language}_OSX_DEPLOYMENT_TARGET_FLAG "")
  set(CMAKE_SHARED_MODULE_CREATE_${_macbuild_language}_FLAGS "-dynamiclib -Wl,-headerpad_max_install_names")
endforeach()

# A function that the headers have may be newer than the deployment target. What CMake tries to link to learn whether a
# function is there must not be found then.
get_property(_macbuild_trying GLOBAL PROPERTY IN_TRY_COMPILE)
if(_macbuild_trying)
  foreach(_macbuild_language C CXX OBJC OBJCXX)
    string(APPEND CMAKE_${_macbuild_language}_LINK_FLAGS " -Wl,-macbuild_known_symbols")
  endforeach()
endif()
