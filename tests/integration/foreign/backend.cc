#include "common.h"

extern "C" __attribute__((visibility("default"))) int TRITONBACKEND_Answer() { return TellsOfBrokenConnection() ? 42 : 0; }
extern "C" __attribute__((visibility("default"))) int other() { return 1; }
