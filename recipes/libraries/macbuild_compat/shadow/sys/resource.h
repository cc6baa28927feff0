/* For foreign code on Darwin: links setpriority as macbuild_compat_setpriority of macbuild/compat/posix.h. */
#pragma GCC system_header
#ifndef MACBUILD_SHADOW_SYS_RESOURCE_H
#define MACBUILD_SHADOW_SYS_RESOURCE_H

#ifdef __APPLE__
#include <sys/types.h>

#include "macbuild/compat/forced.h"

#ifdef __cplusplus
extern "C" {
#endif
int setpriority(int, id_t, int) MACBUILD_COMPAT_LABEL("macbuild_compat_setpriority");
#ifdef __cplusplus
}
#endif
#endif
#include_next <sys/resource.h>

#endif
