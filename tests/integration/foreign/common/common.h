#pragma once

#include <string>

// Writes to a connection that the other side has closed; true if the error is told.
bool TellsOfBrokenConnection();

extern "C" int PlainSignal(int signum);
