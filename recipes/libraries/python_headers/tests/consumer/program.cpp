// Prints the values in the headers, one name and number a line, after the version.
#include <Python.h>

#include <cstddef>
#include <cstdio>

static_assert(sizeof(Py_ssize_t) == sizeof(size_t));
static_assert(sizeof(Py_hash_t) == SIZEOF_SIZE_T);
static_assert(sizeof(wchar_t) == SIZEOF_WCHAR_T);
static_assert(sizeof(long) == SIZEOF_LONG && sizeof(void*) == SIZEOF_VOID_P && sizeof(pthread_t) == SIZEOF_PTHREAD_T);
static_assert(sizeof(long double) == SIZEOF_LONG_DOUBLE && sizeof(time_t) == SIZEOF_TIME_T);
static_assert(PyLong_SHIFT == 30);

int main()
{
  std::printf("%d.%d\n", PY_MAJOR_VERSION, PY_MINOR_VERSION);
  std::printf("object %zu\n", sizeof(PyObject));
  std::printf("tuple %zu\n", offsetof(PyTupleObject, ob_item));
  std::printf("heaptype %zu\n", sizeof(PyHeapTypeObject));
  std::printf("bytes %zu\n", offsetof(PyBytesObject, ob_sval) + 1);
  return 0;
}
