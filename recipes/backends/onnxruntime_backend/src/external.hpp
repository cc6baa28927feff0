// Files that an ONNX model names for its weights.
#pragma once

#include <string>
#include <vector>

namespace onnx_backend {

// The locations of external data in the file of a model (TensorProto.external_data of onnx.proto), each once. Before 1.24
// ONNX Runtime opens them wherever they lead. Of a file that is not in ONNX's format it returns what it finds: the
// library refuses that, or it is in ONNX Runtime's own format.
std::vector<std::string> external_locations(const std::string& path);

}  // namespace onnx_backend
