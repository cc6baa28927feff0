// Unpacks a tar.gz that Python wrote, as Triton's Python backend does with an execution environment: in the "C" locale,
// from a file, below the working directory. Then archives that are cut off, damaged, of another kind or escape from it.
#include <archive.h>
#include <archive_entry.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive_bytes.h"

static int failures = 0;

static void check(int good, const char* what) {
  if (!good) {
    fprintf(stderr, "wrong: %s\n", what);
    ++failures;
  }
}

// 0, or the first status that is not ARCHIVE_OK, with the message in `reason`.
static int copy(struct archive* input, struct archive* output, char* reason, size_t size) {
  struct archive_entry* entry;
  for (;;) {
    int status = archive_read_next_header(input, &entry);
    if (status == ARCHIVE_EOF) {
      return ARCHIVE_OK;
    }
    struct archive* culprit = input;
    if (status == ARCHIVE_OK) {
      culprit = output;
      status = archive_write_header(output, entry);
    }
    while (status == ARCHIVE_OK) {
      const void* block;
      size_t length;
      int64_t offset;
      status = archive_read_data_block(input, &block, &length, &offset);
      culprit = input;
      if (status == ARCHIVE_OK) {
        culprit = output;
        status = archive_write_data_block(output, block, length, offset);
      }
    }
    if (status == ARCHIVE_EOF) {
      culprit = output;
      status = archive_write_finish_entry(output);
    }
    if (status != ARCHIVE_OK) {
      snprintf(reason, size, "%s", archive_error_string(culprit) ? archive_error_string(culprit) : "no reason");
      return status;
    }
  }
}

static int unpack(const char* path, const void* bytes, size_t length, char* reason, size_t size) {
  struct archive* input = archive_read_new();
  struct archive* output = archive_write_disk_new();
  archive_read_support_filter_gzip(input);
  archive_read_support_format_tar(input);
  archive_write_disk_set_options(output, ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                                             ARCHIVE_EXTRACT_SECURE_SYMLINKS);
  int status = path ? archive_read_open_filename(input, path, 10240) : archive_read_open_memory(input, bytes, length);
  if (status == ARCHIVE_OK) {
    status = copy(input, output, reason, size);
  } else {
    snprintf(reason, size, "%s", archive_error_string(input));
  }
  archive_read_close(input);
  archive_read_free(input);
  archive_write_close(output);
  archive_write_free(output);
  return status;
}

static size_t content(const char* path, unsigned char* bytes, size_t size) {
  FILE* file = fopen(path, "rb");
  if (!file) {
    return (size_t)-1;
  }
  const size_t length = fread(bytes, 1, size, file);
  fclose(file);
  return length;
}

static void check_tree(void) {
  static unsigned char bytes[65536];
  struct stat status;
  struct stat other;
  check(stat("env/bin/activate", &status) == 0 && (status.st_mode & 0777) == 0755, "mode of the script");
  check(status.st_mtime == 1700000000, "time of the script");
  check(content("env/bin/activate", bytes, sizeof bytes) == 20 && memcmp(bytes, "#!/bin/sh\nexec true\n", 20) == 0,
        "content of the script");
  check(stat("env/bin/again", &other) == 0 && other.st_ino == status.st_ino && status.st_nlink == 2, "hard link");
  char target[64] = "";
  check(readlink("env/bin/start", target, sizeof target - 1) == 8 && strcmp(target, "activate") == 0, "symbolic link");
  check(content("env/lib/large.bin", bytes, sizeof bytes) == 50000, "size of the large file");
  for (long i = 0; i < 50000; ++i) {
    if (bytes[i] != i * i / 7 % 251) {
      check(0, "content of the large file");
      break;
    }
  }
  char deep[256] = "env/lib/";
  for (int i = 0; i < 30; ++i) {
    strcat(deep, "long/");
  }
  strcat(deep, "name");
  check(content(deep, bytes, sizeof bytes) == 4 && memcmp(bytes, "deep", 4) == 0, "the long name");
  check(content("env/lib/\xc3\xbc" "ber.txt", bytes, sizeof bytes) == 3, "the name in UTF-8");
  check(content("env/lib/empty", bytes, sizeof bytes) == 0, "the empty file");
  check(stat("env/lib", &status) == 0 && S_ISDIR(status.st_mode), "a folder that is not a member");
}

static void check_refusals(void) {
  char reason[512] = "";
  check(unpack(NULL, archive_bytes, sizeof archive_bytes / 2, reason, sizeof reason) == ARCHIVE_FATAL, "a cut archive");
  check(strstr(reason, "truncated") != NULL, reason);

  static unsigned char damaged[sizeof archive_bytes];
  memcpy(damaged, archive_bytes, sizeof damaged);
  memset(damaged + 100, 0xff, 100);
  check(unpack(NULL, damaged, sizeof damaged, reason, sizeof reason) == ARCHIVE_FATAL, "a damaged archive");

  static const unsigned char seven_zip[512] = {'7', 'z', 0xbc, 0xaf, 0x27, 0x1c};
  check(unpack(NULL, seven_zip, sizeof seven_zip, reason, sizeof reason) == ARCHIVE_FATAL, "another kind of archive");
  check(strstr(reason, "Unrecognized archive format") != NULL, reason);

  // A plain tar of one empty file with two dots in its path; the checksum of the header counts its own field as blanks.
  static unsigned char tar[1536];
  strcpy((char*)tar, "env/../../escaped");
  memcpy(tar + 100, "0000644\0" "0000000\0" "0000000\0" "00000000000\0" "14524510400\0", 48);
  memset(tar + 148, ' ', 8);
  memcpy(tar + 156, "0", 1);
  memcpy(tar + 257, "ustar\0" "00", 8);
  unsigned sum = 0;
  for (int i = 0; i < 512; ++i) {
    sum += tar[i];
  }
  snprintf((char*)tar + 148, 8, "%06o", sum);
  check(unpack(NULL, tar, sizeof tar, reason, sizeof reason) != ARCHIVE_OK, "a path that leads out");
  check(strstr(reason, "'..'") != NULL, reason);
  check(access("../escaped", F_OK) != 0, "a file outside of the folder");
}

// Arguments: a folder, which need not exist.
int main(int count, char** arguments) {
  if (count != 2 || (mkdir(arguments[1], 0700) != 0 && errno != EEXIST) || chdir(arguments[1]) != 0) {
    return 2;
  }
  FILE* file = fopen("env.tar.gz", "wb");
  if (!file || fwrite(archive_bytes, 1, sizeof archive_bytes, file) != sizeof archive_bytes || fclose(file) != 0) {
    return 2;
  }
  char reason[512] = "";
  if (unpack("env.tar.gz", NULL, 0, reason, sizeof reason) != ARCHIVE_OK) {
    fprintf(stderr, "cannot unpack: %s\n", reason);
    return 1;
  }
  check_tree();
  check_refusals();
  check(archive_version_number() == ARCHIVE_VERSION_NUMBER, "version");
  return failures == 0 ? 0 : 1;
}
