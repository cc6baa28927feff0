// Results of Python's configure script on a 64-bit macOS or Linux that its public headers need. On macOS
// pymacconfig.h, which Python.h includes after this, sets the sizes again.
#ifndef Py_PYCONFIG_H
#define Py_PYCONFIG_H

#if !defined(__LP64__) || defined(_WIN32)
#error "this pyconfig.h is for 64-bit macOS and Linux"
#endif

#ifdef __APPLE__
#define _DARWIN_C_SOURCE 1
#define HAVE_KQUEUE 1
#elif !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#ifdef __x86_64__
#define HAVE_GCC_ASM_FOR_X64 1
#define HAVE_GCC_ASM_FOR_X87 1
#endif

#define ALIGNOF_MAX_ALIGN_T 16
#define DOUBLE_IS_LITTLE_ENDIAN_IEEE754 1
#define HAVE_CLOCK_GETTIME 1
#define HAVE_DYNAMIC_LOADING 1
#define HAVE_ERRNO_H 1
#define HAVE_FORK 1
#define HAVE_LANGINFO_H 1
#define HAVE_PTHREAD_H 1
#define HAVE_READLINK 1
#define HAVE_REALPATH 1
#define HAVE_SSIZE_T 1
#define HAVE_STDDEF_H 1
#define HAVE_STDINT_H 1
#define HAVE_SYS_SELECT_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_UNISTD_H 1
#define HAVE_WCHAR_H 1
#define Py_ENABLE_SHARED 1
#define SIZEOF_DOUBLE 8
#define SIZEOF_FLOAT 4
#define SIZEOF_INT 4
#define SIZEOF_LONG 8
#define SIZEOF_LONG_DOUBLE __SIZEOF_LONG_DOUBLE__
#define SIZEOF_LONG_LONG 8
#define SIZEOF_OFF_T 8
#define SIZEOF_PID_T 4
#define SIZEOF_PTHREAD_T 8
#define SIZEOF_SHORT 2
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_UINTPTR_T 8
#define SIZEOF_VOID_P 8
#define SIZEOF_WCHAR_T 4
#define SIZEOF__BOOL 1
#define WITH_DOC_STRINGS 1
#define WITH_MIMALLOC 1
#define WITH_PYMALLOC 1
#define WITH_THREAD 1
#define _Py_STACK_GROWS_DOWN 1

#endif
