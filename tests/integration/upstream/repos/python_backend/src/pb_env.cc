#include "pb_env.h"

#include <archive.h>
#include <archive_entry.h>
#include <fts.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "pb_utils.h"
namespace triton { namespace backend { namespace python {

namespace {
void
Check(int status, archive* each)
{
  if (status < ARCHIVE_WARN) {
    throw PythonBackendException(std::string("cannot unpack the environment: ") + archive_error_string(each));
  }
}

void
Extract(const std::string& path, const std::string& folder)
{
  const std::unique_ptr<archive, int (*)(archive*)> input(archive_read_new(), archive_read_free);
  const std::unique_ptr<archive, int (*)(archive*)> output(archive_write_disk_new(), archive_write_free);
  archive_read_support_filter_gzip(input.get());
  archive_read_support_format_tar(input.get());
  archive_write_disk_set_options(output.get(), ARCHIVE_EXTRACT_TIME);
  Check(archive_read_open_filename(input.get(), path.c_str(), 10240), input.get());
  archive_entry* entry = nullptr;
  for (;;) {
    const int status = archive_read_next_header(input.get(), &entry);
    if (status == ARCHIVE_EOF) {
      return;
    }
    Check(status, input.get());
    archive_entry_set_pathname(entry, (folder + "/" + archive_entry_pathname(entry)).c_str());
    if (const char* link = archive_entry_hardlink(entry)) {
      archive_entry_set_hardlink(entry, (folder + "/" + link).c_str());
    }
    Check(archive_write_header(output.get(), entry), output.get());
    const void* block = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    int read = 0;
    while ((read = archive_read_data_block(input.get(), &block, &size, &offset)) == ARCHIVE_OK) {
      Check(static_cast<int>(archive_write_data_block(output.get(), block, size, offset)), output.get());
    }
    Check(read == ARCHIVE_EOF ? ARCHIVE_OK : read, input.get());
  }
}
}  // namespace

EnvironmentManager::EnvironmentManager()
{
  char name[] = "/tmp/python_env_XXXXXX";
  const char* made = mkdtemp(name);
  if (made == nullptr) {
    throw PythonBackendException("cannot make a folder for environments");
  }
  base_path_ = made;
}

EnvironmentManager::~EnvironmentManager()
{
  char* roots[] = {base_path_.data(), nullptr};
  if (FTS* tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, nullptr)) {
    while (FTSENT* each = fts_read(tree)) {
      if (each->fts_info == FTS_DP) {
        rmdir(each->fts_accpath);
      } else if (each->fts_info != FTS_D) {
        unlink(each->fts_accpath);
      }
    }
    fts_close(tree);
  }
}

std::string
EnvironmentManager::ExtractIfNotExtracted(const std::string& path)
{
  const std::unique_ptr<char, void (*)(void*)> resolved(realpath(path.c_str(), nullptr), free);
  if (resolved == nullptr) {
    throw PythonBackendException("there is no environment " + path);
  }
  std::string folder = resolved.get();
  struct stat status;
  if (stat(folder.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) {
    folder = base_path_ + "/" + std::to_string(count_++);
    mkdir(folder.c_str(), 0700);
    Extract(resolved.get(), folder);
  }
  if (!FileExists(folder + "/bin/activate")) {
    throw PythonBackendException("the environment " + path + " has no bin/activate");
  }
  return folder;
}

}}}  // namespace triton::backend::python
