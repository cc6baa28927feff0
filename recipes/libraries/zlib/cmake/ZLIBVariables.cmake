# Sets the variables of CMake's own FindZLIB, for projects that do not use the target.
set(ZLIB_VERSION_STRING "${ZLIB_VERSION}")
set(ZLIB_LIBRARIES ZLIB::ZLIB)
get_filename_component(ZLIB_INCLUDE_DIRS "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)
