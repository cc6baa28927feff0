# gRPC::grpc_cpp_plugin of the build machine, in GRPC_HOST_ROOT, if this package is for another machine.
if(NOT TARGET gRPC::grpc_cpp_plugin AND EXISTS "${GRPC_HOST_ROOT}/bin/grpc_cpp_plugin")
  add_executable(gRPC::grpc_cpp_plugin IMPORTED)
  set_target_properties(gRPC::grpc_cpp_plugin PROPERTIES IMPORTED_LOCATION "${GRPC_HOST_ROOT}/bin/grpc_cpp_plugin")
endif()
