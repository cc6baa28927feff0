"""Check that edited text compiles for macOS and that, if the defect is a type error, the original does not."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from macbuild.source.patch.apply import apply_edits
from macbuild.source.patch.model import EditFile, load_edits

ROOT = Path(__file__).parents[2]
COMPAT = ROOT / "recipes/libraries/macbuild_compat"


@dataclass(frozen=True)
class Defect:
    """A file of ours with the defect that an edit fixes, and the start of clang's message about it, if any."""

    component: str
    edits: tuple[str, ...]
    text: str
    complaint: str | None


DEFECTS = {
    "core: size_t*": Defect(
        "core",
        ("cache-entry-size",),
        """
#include <cstddef>
#include <cstdint>
struct CacheEntry {
  void SerializeResponse(int);
  void Output(int output, char* base, size_t* size);
};
void CacheEntry::SerializeResponse(int output) {
  uint64_t packed_output_byte_size = 0;
  Output(output, nullptr, &packed_output_byte_size);
}
""",
        "cannot initialize a parameter of type 'size_t *'",
    ),
    "core: /proc": Defect(
        "core",
        ("cpu-metrics-header", "cpu-metrics-load", "cpu-metrics-memory"),
        """
#include <fstream>
#include <sstream>
#include <string>
#include "metrics.h"
bool Load() {
  std::ifstream ifs("/proc/stat");
  std::string line;
  return ifs.good() && std::getline(ifs, line);
}
bool Memory() {
  std::ifstream ifs("/proc/meminfo");
  std::string line;
  return ifs.good() && std::getline(ifs, line);
}
""",
        None,
    ),
    "server: directories": Defect(
        "tritonserver",
        ("backend-directory", "repoagent-directory", "cache-directory"),
        """
#include <string>
struct Parameters {
  std::string repoagent_dir_{"/opt/tritonserver/repoagents"};
  std::string backend_dir_{"/opt/tritonserver/backends"};
  std::string cache_dir_{"/opt/tritonserver/caches"};
};
""",
        None,
    ),
    "backend: uint64_t*": Defect(
        "backend",
        ("collector-descriptor-size", "collector-next-size", "collector-source-size"),
        """
#include <cstddef>
#include <cstdint>
void Get(uint64_t* size);
struct Input { struct { size_t byte_size_; } memory_desc_; };
struct BackendInputCollector { size_t GetInputBufferIfContiguous(Input* input); };
void Next(Input* input) {
  Get(&input->memory_desc_.byte_size_);
  size_t next_buffer_byte_size;
  Get(&next_buffer_byte_size);
  input->memory_desc_.byte_size_ += next_buffer_byte_size;
}
size_t BackendInputCollector::GetInputBufferIfContiguous(Input* input) {
  size_t src_byte_size;
  Get(&src_byte_size);
  return src_byte_size + input->memory_desc_.byte_size_;
}
""",
        "no matching function for call to 'Get'",
    ),
    "onnxruntime_backend: uint64_t*": Defect(
        "onnxruntime_backend",
        ("string-input-size",),
        """
#include <cstddef>
#include <cstdint>
void Get(uint64_t* size);
struct ModelInstanceState { size_t SetStringInputTensor(); };
size_t ModelInstanceState::SetStringInputTensor() {
  size_t src_byte_size;
  Get(&src_byte_size);
  return src_byte_size;
}
""",
        "no matching function for call to 'Get'",
    ),
    "python_backend: fork": Defect(
        "python_backend",
        ("spawn-header", "spawn-the-stub", "environment-library-path", "environment-library-path-rest"),
        """
#include "stub_launcher.h"
#include <sstream>
#include <unistd.h>
int Launch() {
  std::stringstream ss;
  ss << " && exec env LD_LIBRARY_PATH=" << 1 << ":$LD_LIBRARY_PATH " << 2;
  const char* stub_args[4] = {"bash", "-c", "true", nullptr};
  pid_t pid = fork();
  if (pid == 0) execvp("bash", (char**)stub_args);
  return pid;
}
""",
        None,
    ),
}


def chosen(defect: Defect) -> list[EditFile]:
    edits = [edit for file in load_edits(ROOT / "patches" / defect.component) for edit in file.edits]
    picked = [edit for edit in edits if edit.name in defect.edits]
    assert len(picked) == len(defect.edits)
    return [EditFile(schema=1, component=defect.component, edits=picked)]


def compiles(path: Path) -> str:
    """Return clang's messages when called as macbuild calls it for foreign code."""
    command = [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-macos.11.0", "-std=c++20", "-c"]
    command += ["-I", str(COMPAT / "shadow"), "-I", str(COMPAT / "include"), "-I", str(path.parent), "-x", "c++"]
    command += ["-include", "macbuild/compat/forced.h", str(path), "-o", str(path.with_suffix(".o"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == ("error:" not in done.stderr), done.stderr
    return done.stderr


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=list(DEFECTS))
def test_an_edited_file_compiles_for_macos(defect: Defect, tmp_path: Path) -> None:
    (files,) = chosen(defect)
    path = tmp_path / files.edits[0].file
    path.parent.mkdir(parents=True)
    path.write_text(defect.text)
    for name in ("metrics.h", "stub_launcher.h"):
        (path.parent / name).touch()
    if defect.complaint is not None:
        assert defect.complaint in compiles(path)
    apply_edits(tmp_path, [files], "macos")
    assert "error:" not in compiles(path)
