#pragma once
namespace triton { namespace server {

void RegisterSignalHandler();
// Returns when the process has been asked to end.
void WaitForExit();

}}  // namespace triton::server
