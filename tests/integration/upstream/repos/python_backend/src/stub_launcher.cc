#include "stub_launcher.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <sstream>
#include <thread>

#include "pb_message.h"
#include "triton/core/tritonserver.h"
namespace triton { namespace backend { namespace python {

namespace {
std::string
GenerateUUID()
{
  std::random_device random;
  std::string text;
  for (int i = 0; i < 36; ++i) {
    text += (i == 8 || i == 13 || i == 18 || i == 23) ? '-' : "0123456789abcdef"[random() % 16];
  }
  return text;
}
}  // namespace

StubLauncher::~StubLauncher()
{
  Terminate();
}

void
StubLauncher::Launch()
{
  shm_region_name_ = settings_.shm_region_prefix + GenerateUUID();
  shm_pool_ = std::make_unique<SharedMemoryManager>(
      shm_region_name_, settings_.shm_default_byte_size, settings_.shm_growth_byte_size, true);
  ipc_handle_ = shm_pool_->Construct<IPCControl>();
  ipc_control_ = shm_pool_->Load<IPCControl>(ipc_handle_);
  Start();
  Writer writer;
  writer.bytes = kInitialize;
  writer.Text(settings_.model_config);
  writer.Text(settings_.instance_name);
  const std::string answer = Call(writer.bytes, settings_.stub_timeout_seconds * 1000);
  if (answer[0] != kDone) {
    throw PythonBackendException(answer.substr(1));
  }
}

void
StubLauncher::Start()
{
  std::string python_backend_stub = settings_.python_lib + "/triton_python_backend_stub";
  const std::string own = settings_.model_folder + "/triton_python_backend_stub";
  if (FileExists(own)) {
    python_backend_stub = own;
  }

  std::ostringstream arguments;
  arguments << ForShell(settings_.model_path) << " " << shm_region_name_ << " " << settings_.shm_default_byte_size << " "
            << settings_.shm_growth_byte_size << " " << getpid() << " " << ForShell(settings_.python_lib) << " "
            << ipc_handle_ << " " << ForShell(settings_.instance_name) << " DEFAULT";
  std::ostringstream bash_argument;
  ipc_control_->uses_env = !settings_.python_execution_env.empty();
  if (ipc_control_->uses_env) {
    const std::string path_to_activate = settings_.python_execution_env + "/bin/activate";
    const std::string path_to_libpython = settings_.python_execution_env + "/lib";
    bash_argument << "source " << path_to_activate << " && exec env LD_LIBRARY_PATH=" << path_to_libpython
                  << ":$LD_LIBRARY_PATH " << python_backend_stub << " " << arguments.str();
  } else {
    bash_argument << "exec " << ForShell(python_backend_stub) << " " << arguments.str();
  }

  // Files from a cloud's storage come without the permission to run.
  const int status = system((ForShell(python_backend_stub) + " > /dev/null 2>&1").c_str());
  if (WEXITSTATUS(status) != 1 && chmod(python_backend_stub.c_str(), S_IXUSR | S_IRUSR) != 0) {
    throw PythonBackendException("cannot make " + python_backend_stub + " executable");
  }

  const std::string command = bash_argument.str();
  const char* stub_args[] = {"bash", "-c", command.c_str(), nullptr};
  pid_t pid = fork();
  if (pid < 0) {
    throw PythonBackendException("cannot start the stub of " + settings_.instance_name);
  }
  if (pid == 0) {
    execvp("bash", const_cast<char**>(stub_args));
    _Exit(1);
  }
  stub_pid_ = pid;
}

bool
StubLauncher::StubIsAlive()
{
  if (stub_pid_ > 0 && waitpid(stub_pid_, nullptr, WNOHANG) != 0) {
    stub_pid_ = -1;
  }
  return stub_pid_ > 0;
}

std::string
StubLauncher::Call(const std::string& message, int timeout_ms)
{
  if (!ipc_control_->stub_message_queue.Push(shm_pool_->Store(message), timeout_ms)) {
    throw PythonBackendException("the stub of " + settings_.instance_name + " takes no messages");
  }
  Handle answer = 0;
  for (int waited = 0; waited < timeout_ms; waited += 100) {
    if (ipc_control_->parent_message_queue.Pop(&answer, 100)) {
      return shm_pool_->Take(answer);
    }
    if (!StubIsAlive()) {
      throw PythonBackendException("Stub process '" + settings_.instance_name + "' is not healthy.");
    }
  }
  throw PythonBackendException("Stub process '" + settings_.instance_name + "' does not answer in time");
}

void
StubLauncher::Terminate()
{
  if (StubIsAlive()) {
    try {
      Call(std::string(1, kFinalize), 5000);
      for (int i = 0; i < 50 && StubIsAlive(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    catch (const std::exception&) {
    }
  }
  if (StubIsAlive()) {
    kill(stub_pid_, SIGKILL);
    waitpid(stub_pid_, nullptr, 0);
  }
}

}}}  // namespace triton::backend::python
