# All names under which projects know RapidJSON: the variables of the release and of the branch's head differ in case,
# and the head's target is RapidJSON or rapidjson, without a namespace.
get_target_property(RapidJSON_INCLUDE_DIR RapidJSON::RapidJSON INTERFACE_INCLUDE_DIRECTORIES)
set(RapidJSON_INCLUDE_DIRS "${RapidJSON_INCLUDE_DIR}")
set(RAPIDJSON_INCLUDE_DIRS "${RapidJSON_INCLUDE_DIR}")
foreach(_rapidjson_name RapidJSON rapidjson)
  if(NOT TARGET ${_rapidjson_name})
    add_library(${_rapidjson_name} ALIAS RapidJSON::RapidJSON)
  endif()
endforeach()
