#include <signal.h>

#include "macbuild/compat/signals.hpp"

namespace macbuild::compat {

void ignore_sigpipe() noexcept {
    struct sigaction action {};
    if (sigaction(SIGPIPE, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0
        && action.sa_handler == SIG_DFL) {
        action.sa_handler = SIG_IGN;
        sigaction(SIGPIPE, &action, nullptr);
    }
}

}  // namespace macbuild::compat
