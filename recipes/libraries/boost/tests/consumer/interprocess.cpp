// A message to another process and back, in a region like that of Triton's Python backend: a shared memory object with
// an allocator inside, and a mutex, a condition and semaphores with a time limit. On macOS Boost keeps such regions as
// files and waits with atomics. With EMULATED the same happens here, so that the test runs the code that macOS would.
#include <unistd.h>
#ifdef EMULATED
#define BOOST_INTERPROCESS_FORCE_GENERIC_EMULATION
#undef _POSIX_SHARED_MEMORY_OBJECTS
#define _POSIX_SHARED_MEMORY_OBJECTS -1
#endif

const char* region_folder();
#define BOOST_INTERPROCESS_SHARED_DIR_PATH region_folder()

#include <boost/interprocess/detail/workaround.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <boost/interprocess/sync/interprocess_condition.hpp>
#include <boost/interprocess/sync/interprocess_mutex.hpp>
#include <boost/interprocess/sync/interprocess_semaphore.hpp>
#include <boost/interprocess/sync/scoped_lock.hpp>
#include <boost/thread/thread_time.hpp>

#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#if defined(__APPLE__) && (defined(BOOST_INTERPROCESS_POSIX_SHARED_MEMORY_OBJECTS) || \
                           defined(BOOST_INTERPROCESS_POSIX_PROCESS_SHARED))
#error "this Boost does not emulate on macOS, so EMULATED does not match macOS"
#endif
#if defined(EMULATED) && defined(BOOST_INTERPROCESS_POSIX_SHARED_MEMORY_OBJECTS)
#error "EMULATED does not emulate"
#endif

namespace bi = boost::interprocess;

extern char** environ;

namespace {

std::string folder;
constexpr std::size_t kRegionSize = 1 << 20;

struct Control {
  bi::interprocess_semaphore requests{0};
  bi::interprocess_mutex mutex;
  bi::interprocess_condition answered;
  bi::managed_external_buffer::handle_t text = 0;
  std::uint64_t length = 0;
  bool done = false;
};

// The control block is at the front; the allocator's memory follows, suitably aligned.
constexpr std::size_t kFront = (sizeof(Control) + 63) / 64 * 64;

void require(bool good, const char* what) {
  if (!good) {
    throw std::runtime_error(what);
  }
}

boost::system_time in(int milliseconds) {
  return boost::get_system_time() + boost::posix_time::milliseconds(milliseconds);
}

char* front(const bi::mapped_region& region) { return static_cast<char*>(region.get_address()); }

void answer(const char* name) {
  bi::shared_memory_object object(bi::open_only, name, bi::read_write);
  bi::mapped_region region(object, bi::read_write);
  bi::managed_external_buffer buffer(bi::open_only, front(region) + kFront, region.get_size() - kFront);
  auto* control = reinterpret_cast<Control*>(front(region));
  require(control->requests.timed_wait(in(10000)), "no request came");
  auto* text = static_cast<char*>(buffer.get_address_from_handle(control->text));
  const bi::scoped_lock<bi::interprocess_mutex> lock(control->mutex);
  for (std::uint64_t i = 0; i < control->length; ++i) {
    text[i] = static_cast<char>(text[i] ^ 0x20);
  }
  control->done = true;
  control->answered.notify_all();
}

void ask(const char* program, const char* name) {
  require(mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST, "cannot make the folder");
  bi::shared_memory_object::remove(name);
  bi::permissions permissions(0600);
  bi::shared_memory_object object(bi::create_only, name, bi::read_write, permissions);
  object.truncate(kRegionSize);
  bi::mapped_region region(object, bi::read_write);
  require(region.get_size() == kRegionSize, "size of the region");

#ifndef BOOST_INTERPROCESS_POSIX_SHARED_MEMORY_OBJECTS
  struct stat status {};
  require(stat((folder + "/" + name).c_str(), &status) == 0, "the region is not a file in the private folder");
  require((status.st_mode & 0777) == 0600 && status.st_size == kRegionSize, "the region's mode or size");
#endif

  auto* control = new (region.get_address()) Control;
  bi::managed_external_buffer buffer(bi::create_only, front(region) + kFront, kRegionSize - kFront);
  const std::size_t free_at_first = buffer.get_free_memory();
  require(!control->requests.timed_wait(in(30)), "a semaphore at zero does not wait");

  const char request[] = "hELLO, rEGION";
  auto* text = static_cast<char*>(buffer.allocate(sizeof request));
  std::memcpy(text, request, sizeof request);
  control->text = buffer.get_handle_from_address(text);
  control->length = 5;

  const char* arguments[] = {program, folder.c_str(), "answer", nullptr};
  pid_t child = 0;
  require(posix_spawn(&child, program, nullptr, nullptr, const_cast<char**>(arguments), environ) == 0, "cannot spawn");
  {
    bi::scoped_lock<bi::interprocess_mutex> lock(control->mutex);
    control->requests.post();
    while (!control->done) {
      require(control->answered.timed_wait(lock, in(10000)), "no answer came");
    }
  }
  int status_of_child = 1;
  require(waitpid(child, &status_of_child, 0) == child && status_of_child == 0, "the other process failed");
  require(std::strcmp(text, "Hello, rEGION") == 0, "the answer");

  buffer.deallocate(text);
  require(buffer.get_free_memory() == free_at_first, "memory is lost");
  require(bi::shared_memory_object::remove(name), "the region cannot be removed");
  require(!bi::shared_memory_object::remove(name), "the region is removed twice");
}

}  // namespace

const char* region_folder() { return folder.c_str(); }

// Arguments: the folder for regions, and "answer" in the other process.
int main(int count, char** arguments) {
  if (count < 2) {
    return 2;
  }
  folder = arguments[1];
#ifdef EMULATED
  const char* name = "macbuild_consumer_emulated";
#else
  const char* name = "macbuild_consumer";
#endif
  try {
    count == 3 ? answer(name) : ask(arguments[0], name);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", count == 3 ? "answer" : "ask", error.what());
    return 1;
  }
  return 0;
}
