# The target's name in DLPack's own source tree, by which Triton's Python backend links it after FetchContent.
if(NOT TARGET dlpack)
  add_library(dlpack ALIAS dlpack::dlpack)
endif()
