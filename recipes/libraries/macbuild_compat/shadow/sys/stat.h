/* For foreign code on Darwin: the POSIX names of the times in struct stat, which Apple calls st_atimespec and so on
 * (man 2 stat). The macros come after the structure, whose members keep their names. */
#pragma GCC system_header
#ifndef MACBUILD_SHADOW_SYS_STAT_H
#define MACBUILD_SHADOW_SYS_STAT_H

#include_next <sys/stat.h>

#ifdef __APPLE__
#ifndef st_atim
#define st_atim st_atimespec
#endif
#ifndef st_mtim
#define st_mtim st_mtimespec
#endif
#ifndef st_ctim
#define st_ctim st_ctimespec
#endif
#endif

#endif
