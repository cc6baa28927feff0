// Results of Python's configure script on a 64-bit macOS that Python's public headers need; pymacconfig.h, which
// Python.h includes for Apple's compilers, has the rest (github.com/python/cpython, Include/pymacconfig.h).
#ifndef Py_PYCONFIG_H
#define Py_PYCONFIG_H

#define _DARWIN_C_SOURCE 1
#define HAVE_DYNAMIC_LOADING 1
#define HAVE_PTHREAD_H 1
#define HAVE_STDDEF_H 1
#define HAVE_STDINT_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_UNISTD_H 1
#define HAVE_WCHAR_H 1
#define SIZEOF_DOUBLE 8
#define SIZEOF_FLOAT 4
#define SIZEOF_INT 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_OFF_T 8
#define SIZEOF_SHORT 2
#define SIZEOF_WCHAR_T 4
#define WITH_DOC_STRINGS 1
#define WITH_THREAD 1

#endif
