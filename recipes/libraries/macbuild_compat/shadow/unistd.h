/* For foreign code: ftruncate becomes macbuild_compat_ftruncate of macbuild/compat/posix.h at link time. */
#pragma GCC system_header
#ifndef MACBUILD_SHADOW_UNISTD_H
#define MACBUILD_SHADOW_UNISTD_H

#include <sys/types.h>

#include "macbuild/compat/forced.h"

#ifdef __cplusplus
extern "C" {
#endif
int ftruncate(int, off_t) MACBUILD_COMPAT_NOEXCEPT MACBUILD_COMPAT_LABEL("macbuild_compat_ftruncate");
#ifdef __cplusplus
}
#endif
#include_next <unistd.h>

#endif
