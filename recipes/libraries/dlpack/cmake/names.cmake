# The target's name in DLPack's own source tree, which Triton's Python backend links after FetchContent.
if(NOT TARGET dlpack)
  add_library(dlpack ALIAS dlpack::dlpack)
endif()
