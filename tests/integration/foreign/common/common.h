#pragma once

#include <string>

// Writes to a connection that the other side has closed; returns true if that is an error.
bool TellsOfBrokenConnection();

extern "C" int PlainSignal(int signum);
