/* The two calls of libSystem's notify(3) with which c-ares watches for changes of the DNS configuration; zig has no
 * <notify.h>. Source: the manual page notify(3). */
#ifndef MACBUILD_NOTIFY_H
#define MACBUILD_NOTIFY_H

#include <stdint.h>

#define NOTIFY_STATUS_OK 0

uint32_t notify_register_file_descriptor(const char *name, int *file, int flags, int *token);
uint32_t notify_cancel(int token);

#endif
