# So that target_link_libraries(<target> b64) links the package's library once it is found, not a libb64 on the path.
if(NOT TARGET b64)
  add_library(b64 INTERFACE IMPORTED)
  target_link_libraries(b64 INTERFACE b64::b64)
endif()
