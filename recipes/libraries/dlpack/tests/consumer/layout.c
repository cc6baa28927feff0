// The layout that every library in a process must agree on, in C.
#include <dlpack/dlpack.h>

_Static_assert(DLPACK_MAJOR_VERSION == 1, "version");
_Static_assert(sizeof(void*) == 8, "a 64-bit target");
_Static_assert(sizeof(DLDevice) == 8 && offsetof(DLDevice, device_id) == 4, "DLDevice");
_Static_assert(sizeof(DLDataType) == 4 && offsetof(DLDataType, bits) == 1 && offsetof(DLDataType, lanes) == 2,
               "DLDataType");
_Static_assert(offsetof(DLTensor, data) == 0 && offsetof(DLTensor, device) == 8 && offsetof(DLTensor, ndim) == 16 &&
                   offsetof(DLTensor, dtype) == 20 && offsetof(DLTensor, shape) == 24 &&
                   offsetof(DLTensor, strides) == 32 && offsetof(DLTensor, byte_offset) == 40 && sizeof(DLTensor) == 48,
               "DLTensor");
_Static_assert(offsetof(DLManagedTensor, dl_tensor) == 0 && offsetof(DLManagedTensor, manager_ctx) == 48 &&
                   offsetof(DLManagedTensor, deleter) == 56 && sizeof(DLManagedTensor) == 64,
               "DLManagedTensor");
_Static_assert(kDLCPU == 1 && kDLCUDA == 2 && kDLCUDAHost == 3 && kDLMetal == 8, "devices");
_Static_assert(kDLInt == 0 && kDLUInt == 1 && kDLFloat == 2 && kDLBfloat == 4 && kDLBool == 6, "types");

double sum_of_floats(const DLTensor* tensor);

double sum_of_floats(const DLTensor* tensor) {
  const float* data = (const float*)((const char*)tensor->data + tensor->byte_offset);
  double sum = 0;
  for (int64_t row = 0; row < tensor->shape[0]; ++row) {
    for (int64_t column = 0; column < tensor->shape[1]; ++column) {
      sum += data[row * tensor->strides[0] + column * tensor->strides[1]];
    }
  }
  return sum;
}
