#include "values.hpp"

#include <ATen/core/function_schema.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "backend_kit/error.hpp"

namespace torch_backend {
namespace {

using backend_kit::datatype_name;
using backend_kit::internal_error;
using backend_kit::unsupported;

struct TypePair {
    DataType triton;
    at::ScalarType torch;
};

constexpr std::array common_types{
    TypePair{TRITONSERVER_TYPE_BOOL, at::ScalarType::Bool},  TypePair{TRITONSERVER_TYPE_UINT8, at::ScalarType::Byte},
    TypePair{TRITONSERVER_TYPE_INT8, at::ScalarType::Char},  TypePair{TRITONSERVER_TYPE_INT16, at::ScalarType::Short},
    TypePair{TRITONSERVER_TYPE_INT32, at::ScalarType::Int},  TypePair{TRITONSERVER_TYPE_INT64, at::ScalarType::Long},
    TypePair{TRITONSERVER_TYPE_FP16, at::ScalarType::Half},  TypePair{TRITONSERVER_TYPE_BF16, at::ScalarType::BFloat16},
    TypePair{TRITONSERVER_TYPE_FP32, at::ScalarType::Float}, TypePair{TRITONSERVER_TYPE_FP64, at::ScalarType::Double},
};

// The wider unsigned types, which LibTorch added later than the others.
template <class Scalar>
constexpr auto unsigned_types() {
    if constexpr (requires { Scalar::UInt16; }) {
        return std::array{TypePair{TRITONSERVER_TYPE_UINT16, Scalar::UInt16},
                          TypePair{TRITONSERVER_TYPE_UINT32, Scalar::UInt32},
                          TypePair{TRITONSERVER_TYPE_UINT64, Scalar::UInt64}};
    } else {
        return std::array<TypePair, 0>{};
    }
}

template <class Visit>
void each_type(Visit visit) {
    for (const TypePair& pair : common_types) visit(pair);
    for (const TypePair& pair : unsigned_types<at::ScalarType>()) visit(pair);
}

// The message of TorchScript's interpreter begins after its source excerpts.
std::string without_traceback(const std::string& text) {
    constexpr std::string_view mark = "<--- HERE";
    const auto here = text.rfind(mark);
    if (here == std::string::npos) return text;
    auto line = text.find('\n', here);
    while (line != std::string::npos && line + 1 < text.size()) {
        const char first = text[line + 1];
        if (first != ' ' && first != '\n' && first != '\t') return text.substr(line + 1);
        line = text.find('\n', line + 1);
    }
    return text;
}

std::string useful_part(std::string text) {
    for (const char* tail : {"\nException raised from", "\nC++ CapturedTraceback"}) {
        const auto cut = text.find(tail);
        if (cut != std::string::npos) text.resize(cut);
    }
    text = without_traceback(text);
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    constexpr std::size_t longest = 2000;
    if (text.size() > longest) text = text.substr(0, longest) + " ...";
    return text;
}

template <class Number>
Output number_output(DataType type, Number number) {
    auto owner = std::make_shared<Number>(number);
    const void* data = owner.get();
    return {type, {}, data, {}, std::move(owner)};
}

template <class Number, class Get>
Output row_output(DataType type, c10::ArrayRef<c10::IValue> numbers, Get get) {
    std::shared_ptr<Number[]> owner(new Number[numbers.size()]);
    Number* data = owner.get();
    std::transform(numbers.begin(), numbers.end(), data, get);
    return {type, {static_cast<std::int64_t>(numbers.size())}, data, {}, std::move(owner)};
}

bool is_leaf_list(c10::TypeKind element) {
    return element == c10::TypeKind::StringType || element == c10::TypeKind::IntType ||
           element == c10::TypeKind::FloatType || element == c10::TypeKind::BoolType;
}

Output list_output(const c10::IValue& value) {
    const auto elements = value.toListRef();
    switch (value.toList().elementType()->kind()) {
        case c10::TypeKind::StringType: {
            Output output{TRITONSERVER_TYPE_BYTES, {static_cast<std::int64_t>(elements.size())}, nullptr, {}, nullptr};
            for (const c10::IValue& element : elements) output.texts.push_back(element.toStringRef());
            return output;
        }
        case c10::TypeKind::IntType:
            return row_output<std::int64_t>(TRITONSERVER_TYPE_INT64, elements,
                                            [](const c10::IValue& each) { return each.toInt(); });
        case c10::TypeKind::FloatType:
            return row_output<double>(TRITONSERVER_TYPE_FP64, elements,
                                      [](const c10::IValue& each) { return each.toDouble(); });
        default:
            return row_output<bool>(TRITONSERVER_TYPE_BOOL, elements,
                                    [](const c10::IValue& each) { return each.toBool(); });
    }
}

Output tensor_output(const at::Tensor& given, const std::string& name) {
    if (!given.defined() || given.layout() != at::kStrided) {
        throw internal_error("output '" + name + "': the model gave no dense tensor");
    }
    const auto type = data_type(given.scalar_type());
    if (!type) {
        throw internal_error("output '" + name + "': the model gave a tensor of " + c10::toString(given.scalar_type()) +
                             ", which Triton has no data type for");
    }
    auto owner = std::make_shared<at::Tensor>(given.to(at::kCPU).resolve_conj().resolve_neg().contiguous());
    const void* data = owner->const_data_ptr();
    return {*type, owner->sizes().vec(), data, {}, std::move(owner)};
}

void flatten_tuple(const c10::IValue& value, const std::string& name, std::vector<Value>& values) {
    const auto tuple = value.toTuple();
    const auto type = tuple->type();
    const auto& schema = type->schema();
    const auto& elements = tuple->elements();
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const std::string field = schema ? schema->arguments()[i].name() : std::string();
        flatten(elements[i], inner_name(name, field, i), values);
    }
}

}  // namespace

at::ScalarType scalar_type(DataType type) {
    std::optional<at::ScalarType> found;
    each_type([&](const TypePair& pair) {
        if (pair.triton == type) found = pair.torch;
    });
    if (!found) throw unsupported("this LibTorch has no tensors of " + std::string(datatype_name(type)));
    return *found;
}

std::optional<DataType> data_type(at::ScalarType type) {
    std::optional<DataType> found;
    each_type([&](const TypePair& pair) {
        if (pair.torch == type) found = pair.triton;
    });
    return found;
}

at::Tensor tensor_of(const Input& input, at::Device device, bool private_copy) {
    const auto sizes = c10::IntArrayRef(input.shape.data(), input.shape.size());
    const auto options = at::TensorOptions().dtype(scalar_type(input.type));
    if (device.is_meta()) return at::empty(sizes, options.device(device));
    at::Tensor tensor = at::from_blob(input.data, sizes, options);
    if (!device.is_cpu()) return tensor.to(device);
    return private_copy ? tensor.clone() : tensor;
}

std::string inner_name(const std::string& outer, const std::string& inner, std::size_t number) {
    if (outer.empty()) return inner;
    return outer + "." + (inner.empty() ? std::to_string(number) : inner);
}

void flatten(const c10::IValue& value, const std::string& name, std::vector<Value>& values) {
    if (value.isTuple()) {
        flatten_tuple(value, name, values);
    } else if (value.isGenericDict()) {
        std::size_t number = 0;
        for (const auto& item : value.toGenericDict()) {
            const std::string key = item.key().isString() ? item.key().toStringRef() : std::string();
            flatten(item.value(), inner_name(name, key, number++), values);
        }
    } else if (value.isList() && !is_leaf_list(value.toList().elementType()->kind())) {
        std::size_t number = 0;
        for (const c10::IValue& element : value.toListRef()) flatten(element, inner_name(name, {}, number++), values);
    } else {
        values.push_back({name, value});
    }
}

Output output_of(const c10::IValue& value, const std::string& name) {
    if (value.isTensor()) return tensor_output(value.toTensor(), name);
    if (value.isList()) return list_output(value);
    if (value.isBool()) return number_output(TRITONSERVER_TYPE_BOOL, value.toBool());
    if (value.isInt()) return number_output(TRITONSERVER_TYPE_INT64, value.toInt());
    if (value.isDouble()) return number_output(TRITONSERVER_TYPE_FP64, value.toDouble());
    if (value.isString()) return {TRITONSERVER_TYPE_BYTES, {1}, nullptr, {value.toStringRef()}, nullptr};
    throw internal_error("output '" + name + "': the model gave " + value.tagKind() + ", which no response can carry");
}

const Value& picked(std::span<const Pick> picks, std::size_t output, const std::vector<Value>& values) {
    const Pick& pick = picks[output];
    if (!pick.fixed) {
        for (const Value& value : values) {
            if (value.name == pick.name) return value;
        }
    }
    const bool ordered = in_order(picks, values.size()) && values[pick.index].name.empty();
    if (pick.index < values.size() && (pick.fixed || ordered)) return values[pick.index];
    std::string names;
    for (const Value& value : values)
        names += (names.empty() ? "" : ", ") + (value.name.empty() ? "(no name)" : value.name);
    throw internal_error("output '" + pick.name + "': the model gave no such value, but " +
                         std::to_string(values.size()) + ": " + names);
}

void rethrow(const std::string& doing) {
    try {
        throw;
    } catch (const backend_kit::Error&) {
        throw;
    } catch (const c10::Error& error) {
        throw internal_error(doing + ": " + useful_part(error.what_without_backtrace()));
    } catch (const std::bad_alloc&) {
        throw backend_kit::unavailable(doing + ": out of memory");
    } catch (const std::exception& error) {
        throw internal_error(doing + ": " + useful_part(error.what()));
    } catch (...) {
        throw internal_error(doing + ": an exception of an unknown type");
    }
}

}  // namespace torch_backend
