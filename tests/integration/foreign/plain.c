/* A program in C that handles a signal. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t arrived = 0;

static void remember(int signum) { arrived = signum; }

int main(void)
{
  signal(SIGSEGV, remember);
  signal(SIGTERM, remember);
  raise(SIGTERM);
  while (arrived == 0)
    usleep(1000);
  printf("%d\n", arrived == SIGTERM);
  return 0;
}
