// Sessions: their ports, values, bindings and runs.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "check.hpp"

namespace check {
namespace {

using namespace std::string_view_literals;

// Documented as struct OrtAllocator.
struct OwnAllocator {
    static void* allocate(OwnAllocator*, std::size_t size) { return std::malloc(size); }
    static void release(OwnAllocator* self, void* block) {
        self->released = block;
        std::free(block);
    }
    static const OrtMemoryInfo* info(const OwnAllocator* self) { return self->memory; }

    std::uint32_t version = api_version;
    void* (*alloc)(OwnAllocator*, std::size_t) = &allocate;
    void (*free)(OwnAllocator*, void*) = &release;
    const OrtMemoryInfo* (*get_info)(const OwnAllocator*) = &info;
    void* (*reserve)(OwnAllocator*, std::size_t) = &allocate;

    void* released = nullptr;
    const OrtMemoryInfo* memory = nullptr;
};

// A session over the test's model, and the objects that its calls need.
struct Subject {
    OrtSession* session = nullptr;
    OrtAllocator* allocator = nullptr;
    OrtMemoryInfo* memory = nullptr;
};

void names(Check& check, const Subject& subject) {
    const auto is = [&](char* text, std::string_view expected) {
        const bool same = text == expected;
        OK(AllocatorFree, subject.allocator, text);
        return same;
    };
    std::size_t count = 0;
    OK(SessionGetInputCount, subject.session, &count);
    PROVED(SessionGetInputCount, count == 3, "counts the inputs without a default");
    OK(SessionGetOutputCount, subject.session, &count);
    PROVED(SessionGetOutputCount, count == 6, "counts the outputs");
    OK(SessionGetOverridableInitializerCount, subject.session, &count);
    PROVED(SessionGetOverridableInitializerCount, count == 1, "counts the inputs with a default");
    char* name = nullptr;
    OK(SessionGetInputName, subject.session, 1, subject.allocator, &name);
    PROVED(SessionGetInputName, is(name, "words"), "the model's name");
    OK(SessionGetOutputName, subject.session, 1, subject.allocator, &name);
    PROVED(SessionGetOutputName, is(name, "copy"), "the model's name");
    OK(SessionGetOverridableInitializerName, subject.session, 0, subject.allocator, &name);
    PROVED(SessionGetOverridableInitializerName, is(name, "b"), "the model's name");
    OwnAllocator own;
    own.memory = subject.memory;
    OrtAllocator* const as_theirs = reinterpret_cast<OrtAllocator*>(&own);
    OK(SessionGetInputName, subject.session, 2, as_theirs, &name);
    OK(AllocatorFree, as_theirs, name);
    PROVED(AllocatorFree, own.released == name, "the allocator is given its block");
}

// The type and dimensions of a port as text, where "FLOAT" is 1: "1[rows,4]"; "no tensor"; "1?" without a shape.
std::string describe(Check& check, OrtTypeInfo* type) {
    ONNXType kind = ONNX_TYPE_UNKNOWN;
    const OrtTensorTypeAndShapeInfo* tensor = nullptr;
    OK(GetOnnxTypeFromTypeInfo, type, &kind);
    OK(CastTypeInfoToTensorInfo, type, &tensor);
    std::string text = "kind " + std::to_string(kind) + ", no tensor";
    if (tensor != nullptr) {
        ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        std::size_t rank = 0;
        OK(GetTensorElementType, tensor, &element);
        OK(GetDimensionsCount, tensor, &rank);
        std::vector<std::int64_t> dims(rank);
        std::vector<const char*> symbols(rank);
        OK(GetDimensions, tensor, dims.data(), rank);
        OK(GetSymbolicDimensions, tensor, symbols.data(), rank);
        text = "kind " + std::to_string(kind) + ", element " + std::to_string(element) + " [";
        for (std::size_t i = 0; i < rank; ++i) {
            text.append(symbols[i]).append("=").append(std::to_string(dims[i])).append(";");
        }
        const bool shape = check.version < later_api_version || CALL(TensorTypeAndShape_HasShape, tensor);
        text += shape ? "]" : "] no shape";
    }
    CALL(ReleaseTypeInfo, type);
    return text;
}

void types(Check& check, const Subject& subject) {
    OrtTypeInfo* type = nullptr;
    OK(SessionGetInputTypeInfo, subject.session, 0, &type);
    const std::string input = describe(check, type);
    PROVED(SessionGetInputTypeInfo, input.starts_with("kind 1, element 1 [rows"), "the type of that input");
    PROVED(GetTensorElementType, contains(input, "element 1 ["), "FLOAT");
    PROVED(GetDimensionsCount, contains(input, "[rows=-1;=4;]"), "two");
    PROVED(GetDimensions, contains(input, "-1;=4"), "-1 and 4");
    PROVED(GetSymbolicDimensions, contains(input, "[rows="), "the name of the open one");
    PROVED(CastTypeInfoToTensorInfo, !contains(input, "no tensor"), "only tensors have it");
    OK(SessionGetOutputTypeInfo, subject.session, 4, &type);
    const std::string sequence = describe(check, type);
    PROVED(GetOnnxTypeFromTypeInfo, sequence == "kind 2, no tensor", "a tensor and a sequence differ");
    PROVED(SessionGetOutputTypeInfo, sequence == "kind 2, no tensor", "the type of that output");
    OK(SessionGetOverridableInitializerTypeInfo, subject.session, 0, &type);
    PROVED(SessionGetOverridableInitializerTypeInfo, describe(check, type).starts_with("kind 1, element 1 [=3;]"),
           "the type of the input with a default");
    PROVED(ReleaseTypeInfo,
           gives_back([&] { OK(SessionGetInputTypeInfo, subject.session, 0, &type); },
                      [&] { CALL(ReleaseTypeInfo, type); }),
           "the memory of a type is given back");
    if (check.version < later_api_version) return;
    OK(SessionGetOutputTypeInfo, subject.session, 2, &type);
    const std::string shapeless = describe(check, type);
    OK(SessionGetOutputTypeInfo, subject.session, 3, &type);
    PROVED(TensorTypeAndShape_HasShape,
           shapeless == "kind 1, element 1 [] no shape" && !contains(describe(check, type), "no"),
           "a scalar and an open rank differ");
}

// The last output is a sequence of maps from INT64 to FLOAT.
void map_types(Check& check, const Subject& subject) {
    OrtTypeInfo* type = nullptr;
    OrtTypeInfo* each = nullptr;
    OrtTypeInfo* value = nullptr;
    OK(SessionGetOutputTypeInfo, subject.session, 5, &type);
    const OrtSequenceTypeInfo* sequence = nullptr;
    const OrtMapTypeInfo* map = nullptr;
    OK(CastTypeInfoToMapTypeInfo, type, &map);
    const bool no_map = map == nullptr;
    OK(CastTypeInfoToSequenceTypeInfo, type, &sequence);
    PROVED(CastTypeInfoToSequenceTypeInfo, sequence != nullptr, "a sequence has it");
    OK(GetSequenceElementType, sequence, &each);
    ONNXType kind = ONNX_TYPE_UNKNOWN;
    OK(GetOnnxTypeFromTypeInfo, each, &kind);
    PROVED(GetSequenceElementType, kind == ONNX_TYPE_MAP, "the elements are maps");
    OK(CastTypeInfoToMapTypeInfo, each, &map);
    PROVED(CastTypeInfoToMapTypeInfo, no_map && map != nullptr, "only a map has it");
    ONNXTensorElementDataType key = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    OK(GetMapKeyType, map, &key);
    PROVED(GetMapKeyType, key == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, "INT64");
    OK(GetMapValueType, map, &value);
    PROVED(GetMapValueType, contains(describe(check, value), "kind 1, element 1 "), "a tensor of FLOAT");
    CALL(ReleaseTypeInfo, each);
    CALL(ReleaseTypeInfo, type);
}

std::vector<std::int64_t> shape_of(Check& check, const OrtValue* value) {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    OK(GetTensorTypeAndShape, value, &info);
    std::size_t rank = 0;
    OK(GetDimensionsCount, info, &rank);
    std::vector<std::int64_t> shape(rank);
    OK(GetDimensions, info, shape.data(), rank);
    CALL(ReleaseTensorTypeAndShapeInfo, info);
    return shape;
}

OrtValue* floats(Check& check, const Subject& subject, std::vector<float>& data, std::vector<std::int64_t> shape) {
    OrtValue* value = nullptr;
    OK(CreateTensorWithDataAsOrtValue, subject.memory, data.data(), data.size() * sizeof(float), shape.data(),
       shape.size(), ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &value);
    return value;
}

const std::array<std::string_view, 4> texts{"a\0b"sv, ""sv, "\xe6\x97\xa5\xe6\x9c\xac"sv,
                                            "0123456789012345678901234567890123456789"sv};

OrtValue* strings(Check& check, const Subject& subject) {
    OrtValue* value = nullptr;
    const std::int64_t count = texts.size();
    OK(CreateTensorAsOrtValue, subject.allocator, &count, 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, &value);
    for (std::size_t i = 0; i < texts.size(); ++i) {
        char* buffer = nullptr;
        OK(GetResizedStringTensorElementBuffer, value, i, texts[i].size(), &buffer);
        texts[i].copy(buffer, texts[i].size());
    }
    return value;
}

std::vector<std::string> strings_of(Check& check, const OrtValue* value, std::size_t count) {
    std::size_t length = 0;
    OK(GetStringTensorDataLength, value, &length);
    std::string bytes(length, '?');
    std::vector<std::size_t> offsets(count);
    OK(GetStringTensorContent, value, bytes.data(), length, offsets.data(), count);
    offsets.push_back(length);
    std::vector<std::string> found;
    for (std::size_t i = 0; i < count; ++i) found.push_back(bytes.substr(offsets[i], offsets[i + 1] - offsets[i]));
    return found;
}

void values(Check& check, const Subject& subject) {
    OrtValue* const text = strings(check, subject);
    const std::vector<std::string> found = strings_of(check, text, texts.size());
    std::size_t length = 0;
    for (const std::string_view each : texts) length += each.size();
    std::size_t told = 0;
    OK(GetStringTensorDataLength, text, &told);
    PROVED(GetResizedStringTensorElementBuffer, std::equal(found.begin(), found.end(), texts.begin(), texts.end()),
           "what is written there is the element");
    PROVED(GetStringTensorDataLength, told == length, "the sum of the lengths");
    PROVED(GetStringTensorContent, found[0] == texts[0], "bytes with zeros among them");
    PROVED(CreateTensorAsOrtValue, shape_of(check, text) == std::vector<std::int64_t>{4}, "a tensor of strings");
    CALL(ReleaseValue, text);

    std::vector<float> data(8);
    OrtValue* value = floats(check, subject, data, {2, 4});
    void* memory = nullptr;
    OK(GetTensorMutableData, value, &memory);
    PROVED(GetTensorMutableData, memory == data.data(), "the address of the elements");
    PROVED(CreateTensorWithDataAsOrtValue, shape_of(check, value) == (std::vector<std::int64_t>{2, 4}),
           "a tensor over memory of ours");
    OrtTensorTypeAndShapeInfo* info = nullptr;
    const bool given_back = gives_back([&] { OK(GetTensorTypeAndShape, value, &info); },
                                       [&] { CALL(ReleaseTensorTypeAndShapeInfo, info); });
    PROVED(GetTensorTypeAndShape, info != nullptr, "the shape of a value");
    PROVED(ReleaseTensorTypeAndShapeInfo, given_back, "the memory of a shape is given back");
    CALL(ReleaseValue, value);
    PROVED(ReleaseValue,
           gives_back([&] { value = floats(check, subject, data, {8}); }, [&] { CALL(ReleaseValue, value); }),
           "the memory of a value is given back");
    OrtMemoryInfo* place = nullptr;
    PROVED(ReleaseMemoryInfo,
           gives_back([&] { OK(CreateCpuMemoryInfo, OrtDeviceAllocator, OrtMemTypeDefault, &place); },
                      [&] { CALL(ReleaseMemoryInfo, place); }),
           "the memory of a place is given back");
}

// The values of the outputs of a binding.
std::vector<OrtValue*> outputs(Check& check, const Subject& subject, const OrtIoBinding* binding) {
    OrtValue** list = nullptr;
    std::size_t count = 0;
    OK(GetBoundOutputValues, binding, subject.allocator, &list, &count);
    std::vector<OrtValue*> found(list, list + count);
    if (list != nullptr) OK(AllocatorFree, subject.allocator, list);
    return found;
}

// A binding with all inputs of the model.
struct Inputs {
    Inputs(Check& owner, const Subject& subject) : check(owner) {
        const std::int64_t length = 1;
        OK(CreateIoBinding, subject.session, &binding);
        x = floats(check, subject, rows, {2, 4});
        words = strings(check, subject);
        OK(CreateTensorWithDataAsOrtValue, subject.memory, &size, sizeof(size), &length, 1,
           ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, &shape);
        bind();
    }
    ~Inputs() {
        CALL(ReleaseIoBinding, binding);
        for (OrtValue* each : {x, words, shape}) CALL(ReleaseValue, each);
    }
    Inputs(const Inputs&) = delete;
    Inputs& operator=(const Inputs&) = delete;

    void bind() {
        OK(BindInput, binding, "x", x);
        OK(BindInput, binding, "words", words);
        OK(BindInput, binding, "shape", shape);
    }

    Check& check;
    std::vector<float> rows{1, 2, 3, 4, 5, 6, 7, 8};
    std::int64_t size = 8;
    OrtIoBinding* binding = nullptr;
    OrtValue* x = nullptr;
    OrtValue* words = nullptr;
    OrtValue* shape = nullptr;
};

void bindings(Check& check, const Subject& subject) {
    OrtIoBinding* empty = nullptr;
    const auto make = [&] { OK(CreateIoBinding, subject.session, &empty); };
    const bool given_back = gives_back(make, [&] { CALL(ReleaseIoBinding, empty); });
    PROVED(ReleaseIoBinding, given_back, "the memory of a binding is given back");
    const Inputs inputs(check, subject);
    OrtIoBinding* const binding = inputs.binding;
    std::vector<float> sums(6);
    OrtValue* const y = floats(check, subject, sums, {2, 3});
    OK(BindOutput, binding, "y", y);
    OK(BindOutputToDevice, binding, "copy", subject.memory);
    OK(RunWithBinding, subject.session, nullptr, binding);
    PROVED(BindInput, sums == (std::vector<float>{11, 11, 11, 27, 27, 27}), "the model sees the input");
    PROVED(BindOutput, sums[0] != 0, "the output is written into memory of ours");
    std::vector<OrtValue*> found = outputs(check, subject, binding);
    PROVED(CreateIoBinding, found.size() == 2, "a binding for a session");
    PROVED(GetBoundOutputValues, shape_of(check, found.at(0)) == (std::vector<std::int64_t>{2, 3}),
           "the outputs in the order of binding");
    PROVED(BindOutputToDevice,
           strings_of(check, found.at(1), texts.size()) == strings_of(check, inputs.words, texts.size()),
           "ONNX Runtime makes the output");
    PROVED(CreateCpuMemoryInfo, found.size() == 2, "a place for inputs and outputs");
    PROVED(GetAllocatorWithDefaultOptions, subject.allocator != nullptr, "memory for names, lists and strings");
    for (OrtValue* each : found) CALL(ReleaseValue, each);
    CALL(ReleaseValue, y);

    CALL(ClearBoundInputs, binding);
    const Refusal lacking = REFUSED(RunWithBinding, subject.session, nullptr, binding);
    PROVED(ClearBoundInputs, contains(lacking.message, "Missing Input"), "the model lacks its inputs");
    CALL(ClearBoundOutputs, binding);
    PROVED(ClearBoundOutputs, outputs(check, subject, binding).empty(), "no outputs are left");
    const Refusal refusal = REFUSED(RunWithBinding, subject.session, nullptr, binding);
    PROVED(RunWithBinding, contains(refusal.message, "At least one output"), "runs, and refuses to for nothing");
}

void maps(Check& check, const Subject& subject) {
    const Inputs inputs(check, subject);
    OK(BindOutputToDevice, inputs.binding, "maps", subject.memory);
    OK(RunWithBinding, subject.session, nullptr, inputs.binding);
    const std::vector<OrtValue*> found = outputs(check, subject, inputs.binding);
    std::size_t count = 0;
    OK(GetValueCount, found.at(0), &count);
    PROVED(GetValueCount, count == 2, "one map for each row");
    OrtValue* map = nullptr;
    OrtValue* keys = nullptr;
    OrtValue* values = nullptr;
    OK(GetValue, found[0], 1, subject.allocator, &map);
    OK(GetValue, map, 0, subject.allocator, &keys);
    OK(GetValue, map, 1, subject.allocator, &values);
    void* key = nullptr;
    void* value = nullptr;
    OK(GetTensorMutableData, keys, &key);
    OK(GetTensorMutableData, values, &value);
    PROVED(GetValue,
           static_cast<const std::int64_t*>(key)[1] == 20 && static_cast<const float*>(value)[1] == 6.0F &&
               shape_of(check, keys) == std::vector<std::int64_t>{4},
           "the second map, and its keys and values");
    for (OrtValue* each : {values, keys, map, found[0]}) CALL(ReleaseValue, each);
}

void runs(Check& check, const Subject& subject) {
    Inputs inputs(check, subject);
    OrtIoBinding* const binding = inputs.binding;
    OrtRunOptions* options = nullptr;
    OK(BindOutputToDevice, binding, "y", subject.memory);
    PROVED(ReleaseRunOptions,
           gives_back([&] { OK(CreateRunOptions, &options); }, [&] { CALL(ReleaseRunOptions, options); }),
           "the memory of the options is given back");
    OK(CreateRunOptions, &options);
    OK(RunWithBinding, subject.session, options, binding);
    PROVED(CreateRunOptions, options != nullptr, "options for a run");
    OK(RunOptionsSetTerminate, options);
    const Refusal stopped = REFUSED(RunWithBinding, subject.session, options, binding);
    PROVED(RunOptionsSetTerminate, contains(stopped.message, "terminate flag"), "a run stops");
    OK(RunOptionsUnsetTerminate, options);
    OK(RunWithBinding, subject.session, options, binding);
    PROVED(RunOptionsUnsetTerminate, true, "a run does not stop");

    CALL(ClearBoundInputs, binding);
    check.log.take();
    REFUSED(RunWithBinding, subject.session, options, binding);
    const std::size_t loud = check.log.take().size();
    OK(RunOptionsSetRunLogSeverityLevel, options, ORT_LOGGING_LEVEL_FATAL);
    REFUSED(RunWithBinding, subject.session, options, binding);
    PROVED(RunOptionsSetRunLogSeverityLevel, loud > 0 && check.log.take().empty(), "silences a run");
    inputs.bind();
    OK(AddRunConfigEntry, options, "memory.enable_memory_arena_shrinkage", "gpu:0");
    const Refusal shrink = REFUSED(RunWithBinding, subject.session, options, binding);
    PROVED(AddRunConfigEntry, contains(shrink.message, "shrink list: gpu:0"), "a run looks at the entry");
    CALL(ReleaseRunOptions, options);
}

}  // namespace

void call_sessions(Check& check, const OrtEnv* env, const std::string& model) {
    const std::string prefix = model + "-profile";
    OrtSessionOptions* options = nullptr;
    Subject subject;
    OK(CreateSessionOptions, &options);
    OK(SetIntraOpNumThreads, options, 1);
    PROVED(ReleaseSession,
           gives_back([&] { OK(CreateSession, env, model.c_str(), options, &subject.session); },
                      [&] {
                          CALL(ReleaseSession, subject.session);
                          check.log.take();
                      }),
           "the memory of a session is given back");
    OK(EnableProfiling, options, prefix.c_str());
    OK(CreateSession, env, model.c_str(), options, &subject.session);
    OK(GetAllocatorWithDefaultOptions, &subject.allocator);
    OK(CreateCpuMemoryInfo, OrtDeviceAllocator, OrtMemTypeDefault, &subject.memory);
    names(check, subject);
    types(check, subject);
    map_types(check, subject);
    values(check, subject);
    bindings(check, subject);
    maps(check, subject);
    runs(check, subject);
    char* file = nullptr;
    OK(SessionEndProfiling, subject.session, subject.allocator, &file);
    const std::string path = file;
    OK(AllocatorFree, subject.allocator, file);
    PROVED(EnableProfiling, path.starts_with(prefix), "the profile has the name asked for");
    PROVED(SessionEndProfiling, std::filesystem::file_size(path) > 0 && std::ifstream(path).get() == '[',
           "the profile is written");
    CALL(ReleaseMemoryInfo, subject.memory);
    CALL(ReleaseSession, subject.session);
    CALL(ReleaseSessionOptions, options);
}

}  // namespace check
