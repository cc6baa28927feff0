# Fails unless find_package(Boost) found the requested parts, in the component's own folder.
cmake_path(IS_PREFIX BOOST_ROOT "${Boost_INCLUDE_DIRS}" NORMALIZE ours)
if(NOT Boost_FOUND OR NOT ours OR NOT Boost_VERSION_STRING VERSION_GREATER_EQUAL 1.81 OR Boost_LIBRARIES
   OR NOT Boost_VERSION_MACRO GREATER_EQUAL 108100)
  message(FATAL_ERROR
    "find_package(Boost) found ${Boost_VERSION_STRING} in ${Boost_INCLUDE_DIRS}, not in ${BOOST_ROOT}")
endif()
foreach(target Boost::boost Boost::headers)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "find_package(Boost) gave no ${target}")
  endif()
endforeach()
