// The arguments and results of a model, and which configured input or output is which of them. No LibTorch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend_kit/datatype.hpp"

namespace torch_backend {

using backend_kit::DataType;

// The kinds of arguments of forward().
enum class Form {
    tensor,      // Tensor
    texts,       // List[str]
    integer,     // int
    real,        // float
    truth,       // bool
    tensors,     // List[Tensor]
    dictionary,  // Dict[str, Tensor]
    other,       // not supported in a request
};

constexpr bool is_number(Form form) {
    return form == Form::integer || form == Form::real || form == Form::truth;
}
// A list or dictionary of tensors, which is made from several inputs.
constexpr bool is_container(Form form) {
    return form == Form::tensors || form == Form::dictionary;
}

struct Argument {
    std::string name;  // empty if the model file does not have it
    Form form = Form::tensor;
    bool optional = false;  // None or a default value is used if a request omits it
};

// One value that forward() returns, after tuples, lists and dictionaries are flattened.
struct Leaf {
    std::string name;              // field or key; empty when it has none
    std::optional<DataType> type;  // nothing: a tensor
};

struct Signature {
    std::vector<Argument> arguments;
    std::optional<std::vector<Leaf>> leaves;  // nothing if known only when the model runs
    std::string text;                         // for messages
};

// A configured input or output.
struct Port {
    std::string name;
    DataType type = TRITONSERVER_TYPE_INVALID;
    bool optional = false;
    std::vector<std::int64_t> dims{};  // the model's, without the batch; -1 is any size
};

// The destination of a configured input.
struct Place {
    std::size_t argument = 0;
    std::size_t element = 0;  // of a List[Tensor]
};

// The source of a configured output.
struct Pick {
    std::string name;
    std::size_t index = 0;  // of the leaf
    bool fixed = false;     // otherwise the leaf is found by its name after the model has run, or by in_order()
    DataType type = TRITONSERVER_TYPE_INVALID;
};

// Finds the argument of each input: by its name, by "<argument>__<n>" in a list, by "<any>__<n>" as position, as key
// of the only dictionary, or in the order of the configuration if no name matches.
// Throws backend_kit::Error (invalid argument) if an input fits nothing or a required argument gets no input.
std::vector<Place> place_inputs(const Signature& signature, std::span<const Port> inputs, bool batched);

// Finds the value of each output: by its name, by "<any>__<n>", or in order. Throws backend_kit::Error (invalid
// argument) if the model is known not to return such a value.
std::vector<Pick> pick_outputs(const Signature& signature, std::span<const Port> outputs);

// Returns whether outputs are the values one by one: as many, and none has the name or number of a value.
bool in_order(std::span<const Pick> picks, std::size_t values);

// The number n of a name "<any>__<n>".
std::optional<std::size_t> index_of(std::string_view name);

}  // namespace torch_backend
