// In a separate file: it becomes part of an image only if the linker is asked for it.
#include "macbuild/compat/signals.hpp"

extern "C" __attribute__((constructor)) void macbuild_compat_start() noexcept { macbuild::compat::ignore_sigpipe(); }
