// Libraries with operators that LibTorch lacks, such as those of torchvision.
#pragma once

#include <string>

#include "backend_kit/backend.hpp"

namespace torch_backend {

// Loads the libraries that the administrator of the server names in the setting "operator-libraries": absolute paths,
// separated by commas. Throws backend_kit::Error with the reason if one cannot be loaded.
void load_operators(const backend_kit::BackendInfo& backend);

// Loads the libraries that a model names in OPERATOR_LIBRARIES: paths in its version folder or in its own folder,
// separated by commas. They must not leave the model's folder. Throws backend_kit::Error.
//
// A library stays loaded until the process ends, because LibTorch keeps its operators. One with the same bytes is not
// loaded again, and another that defines operators in the same namespace is refused: LibTorch ends the process at the
// second definition of an operator.
void load_operators(const backend_kit::ModelInfo& model);

}  // namespace torch_backend
