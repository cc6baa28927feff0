#include "common.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

bool TellsOfBrokenConnection()
{
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    return false;
  close(ends[1]);
  const bool told = write(ends[0], "x", 1) == -1 && errno == EPIPE;
  close(ends[0]);
  return told;
}
