/* C is adapted just as C++ is. */
#include <signal.h>

int PlainSignal(int signum);

int PlainSignal(int signum) { return signal(signum, SIG_IGN) == SIG_DFL && signal(signum, SIG_DFL) == SIG_IGN; }
