// An example of the in-process API: says which API the library has.
#include <cstdio>

#include "triton/core/tritonserver.h"

int
main()
{
  puts(TRITONSERVER_DataTypeString(TRITONSERVER_TYPE_FP32));
  return 0;
}
