#include <array>

#include "backend_kit/config.hpp"
#include "testing.hpp"

using namespace backend_kit;
using std::string_view;

namespace {

// In the form that a server of version 2.51 passes, shortened.
const char* const full = R"({
  "name": "m", "platform": "", "backend": "pytorch", "runtime": "", "version_policy": {"latest": {"num_versions": 1}},
  "max_batch_size": 8,
  "input": [
    {"name": "x", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [-1, "3"], "reshape": {"shape": [3, -1]},
     "is_shape_tensor": false, "allow_ragged_batch": false, "optional": true, "is_non_linear_format_io": false},
    {"name": "s", "data_type": "TYPE_STRING", "dims": [1], "reshape": {"shape": []}}],
  "output": [{"name": "y", "data_type": "TYPE_BF16", "dims": [2], "label_filename": "labels.txt"}],
  "batch_input": [], "batch_output": [],
  "optimization": {"graph": {"level": -1}, "execution_accelerators": {
    "gpu_execution_accelerator": [{"name": "mps", "parameters": {"a": "b"}}],
    "cpu_execution_accelerator": [{"name": "openvino"}]}},
  "dynamic_batching": {"preferred_batch_size": [8], "max_queue_delay_microseconds": 100},
  "instance_group": [{"name": "m_0", "kind": "KIND_MODEL", "count": 2, "gpus": []}, {"kind": "KIND_CPU"}],
  "default_model_filename": "other.pt", "model_transaction_policy": {"decoupled": true},
  "parameters": {"DEVICE": {"string_value": "cpu"}, "EMPTY": {}}, "model_warmup": [],
  "model_operations": {"op_library_filename": ["a.so", "/b.so"]}})";

ModelConfig model(const std::string& parameters) {
    return ModelConfig::parse(R"({"name":"m","parameters":{)" + parameters + "}}");
}

std::string parameter(const std::string& name, const std::string& value) {
    return "\"" + name + R"(":{"string_value":")" + value + "\"}";
}

}  // namespace

TEST(every_field_of_a_configuration_is_read) {
    const ModelConfig config = ModelConfig::parse(full);
    CHECK_EQUAL(config.name, "m");
    CHECK_EQUAL(config.backend, "pytorch");
    CHECK_EQUAL(config.default_model_filename, "other.pt");
    CHECK_EQUAL(config.max_batch_size, 8);
    CHECK(config.batching() && config.dynamic_batching && config.decoupled && !config.sequence_batching);
    CHECK_EQUAL(config.inputs.size(), 2U);
    CHECK(config.inputs[0].dims == (std::vector<std::int64_t>{-1, 3}));
    CHECK(config.inputs[0].model_dims() == (std::vector<std::int64_t>{3, -1}));
    CHECK(config.inputs[0].optional && !config.inputs[0].ragged);
    CHECK(config.input("s")->model_dims().empty());
    CHECK(config.input("s")->datatype == TRITONSERVER_TYPE_BYTES);
    CHECK(config.input("y") == nullptr);
    CHECK(config.output("y")->datatype == TRITONSERVER_TYPE_BF16);
    CHECK(config.output("y")->model_dims() == (std::vector<std::int64_t>{2}));
    CHECK_EQUAL(config.instance_groups.size(), 2U);
    CHECK(config.instance_groups[0].kind == TRITONSERVER_INSTANCEGROUPKIND_MODEL);
    CHECK_EQUAL(config.instance_groups[0].count, 2);
    CHECK_EQUAL(config.instance_groups[1].count, 1);
    CHECK_EQUAL(config.parameters.at("DEVICE"), "cpu");
    CHECK_EQUAL(config.parameters.at("EMPTY"), "");
    CHECK_EQUAL(*config.graph_level, -1);
    CHECK_EQUAL(config.gpu_accelerators.at(0).parameters.at("a"), "b");
    CHECK_EQUAL(config.cpu_accelerators.at(0).name, "openvino");
    CHECK(config.op_libraries == (std::vector<std::string>{"a.so", "/b.so"}));
    config.check_supported();
}

TEST(absent_fields_have_their_default) {
    const ModelConfig config = ModelConfig::parse(R"({"name":"m","input":[{"name":"x","data_type":"TYPE_INVALID"}]})");
    CHECK(!config.batching() && !config.dynamic_batching && !config.decoupled && !config.graph_level);
    CHECK(config.inputs[0].datatype == TRITONSERVER_TYPE_INVALID);
    CHECK(config.inputs[0].dims.empty() && config.outputs.empty() && config.parameters.empty());
    CHECK(config.op_libraries.empty());
    CHECK(ModelConfig::parse(R"({"model_operations":{}})").op_libraries.empty());
}

TEST(wrong_fields_are_reported_with_model_and_path) {
    const std::string start = "configuration of model m: config.";
    CHECK_INVALID(start + "input[0].dims[1] is -2, less than -1",
                  ModelConfig::parse(R"({"name":"m","input":[{"dims":[1,-2]}]})"));
    CHECK_INVALID(start + "output[0].data_type: 'TYPE_FP8' is not a data type",
                  ModelConfig::parse(R"({"name":"m","output":[{"data_type":"TYPE_FP8"}]})"));
    CHECK_INVALID(start + "instance_group[0].kind is 'KIND_TPU', which is not an instance kind",
                  ModelConfig::parse(R"({"name":"m","instance_group":[{"kind":"KIND_TPU"}]})"));
    CHECK_INVALID(start + "max_batch_size is not a 64-bit integer",
                  ModelConfig::parse(R"({"name":"m","max_batch_size":1.5})"));
    CHECK_INVALID(start + "model_operations.op_library_filename[1] is not a string",
                  ModelConfig::parse(R"({"name":"m","model_operations":{"op_library_filename":["a",1]}})"));
    CHECK_INVALID(start + "parameters.A.string_value is not a string",
                  ModelConfig::parse(R"({"name":"m","parameters":{"A":{"string_value":1}}})"));
    CHECK_INVALID("configuration of model : config is not an object", ModelConfig::parse("[]"));
}

TEST(unsupported_features_are_refused) {
    const auto error = [](const std::string& more) {
        const ModelConfig config = ModelConfig::parse(R"({"name":"m",)" + more + "}");
        return testing::error_of(TRITONSERVER_ERROR_UNSUPPORTED, [&] { config.check_supported(); }, __FILE__, __LINE__);
    };
    CHECK_EQUAL(error(R"("input":[{"name":"x","allow_ragged_batch":true}])"),
                "input 'x' of model m has allow_ragged_batch, which this backend does not support: requests of "
                "different shapes run one after the other without it");
    CHECK_EQUAL(error(R"("input":[{"name":"x","is_shape_tensor":true}])"),
                "input 'x' of model m is a shape tensor, which this backend does not support");
    CHECK_EQUAL(error(R"("batch_input":[{"kind":"BATCH_ELEMENT_COUNT"}])"),
                "model m has batch_input, which this backend does not support");
    CHECK_EQUAL(error(R"("batch_output":[{}])"), "model m has batch_output, which this backend does not support");
}

TEST(a_completed_configuration_keeps_existing_fields) {
    ModelConfig config = ModelConfig::parse(
        R"({"name":"m","max_batch_size":0,"input":[{"name":"x","format":"FORMAT_NONE","data_type":"TYPE_INVALID"}],)"
        R"("output":[],"dynamic_batching":{}})");
    config.max_batch_size = 4;
    config.inputs[0].datatype = TRITONSERVER_TYPE_INT64;
    config.inputs[0].dims = {-1, 2};
    config.inputs.push_back({"o", TRITONSERVER_TYPE_BYTES, {1}, std::vector<std::int64_t>{}, true});
    config.outputs.push_back({"y", TRITONSERVER_TYPE_FP32, {}});
    CHECK_EQUAL(
        config.completed(),
        R"({"name":"m","max_batch_size":4,"input":[{"name":"x","format":"FORMAT_NONE","data_type":"TYPE_INT64",)"
        R"("dims":[-1,2]},{"name":"o","data_type":"TYPE_STRING","dims":[1],"reshape":{"shape":[]},)"
        R"("optional":true}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[]}],"dynamic_batching":{}})");
}

TEST(a_completed_configuration_gets_a_missing_scheduler) {
    const auto completed = [](const std::string& more) {
        ModelConfig config = ModelConfig::parse(R"({"name":"m")" + more + "}");
        config.dynamic_batching = true;
        return config.completed();
    };
    const std::string ports = R"("max_batch_size":0,"input":[],"output":[])";
    CHECK_EQUAL(completed(""), R"({"name":"m",)" + ports + R"(,"dynamic_batching":{}})");
    for (const std::string name : {"dynamic_batching", "sequence_batching", "ensemble_scheduling"}) {
        const std::string scheduler = ",\"" + name + R"(":{"any":1})";
        CHECK_EQUAL(completed(scheduler), R"({"name":"m")" + scheduler + "," + ports + "}");
    }
    CHECK_EQUAL(ModelConfig::parse(R"({"name":"m"})").completed(), R"({"name":"m",)" + ports + "}");
}

TEST(a_port_gets_its_dimensions_from_the_shape_of_the_model) {
    using Dims = std::vector<std::int64_t>;
    TensorConfig port{"x", TRITONSERVER_TYPE_FP32, {}};
    port.set_model_shape({-1, 3, 2}, true);
    CHECK(port.dims == (Dims{3, 2}) && !port.reshape);
    port.set_model_shape({-1}, true);
    CHECK(port.dims == (Dims{1}) && port.reshape == Dims{});
    port.set_model_shape({-1, 3}, false);
    CHECK(port.dims == (Dims{-1, 3}) && !port.reshape);
    port.set_model_shape({}, false);
    CHECK(port.dims == (Dims{1}) && !port.reshape);
    CHECK_INVALID("'x' has no batch dimension", port.set_model_shape({}, true));
}

TEST(settings_are_read_from_the_command_line) {
    CHECK_EQUAL(BackendConfig::parse(R"({"cmdline":{"default-max-batch-size":"4","a":"b"}})").default_max_batch_size(),
                4);
    CHECK_EQUAL(BackendConfig::parse("{}").default_max_batch_size(), 0);
    CHECK_INVALID("setting default-max-batch-size: '4x' is not a whole number of 0 or more",
                  BackendConfig::parse(R"({"cmdline":{"default-max-batch-size":"4x"}})").default_max_batch_size());
    CHECK_INVALID("backend configuration.cmdline.a is not a string", BackendConfig::parse(R"({"cmdline":{"a":1}})"));
}

TEST(parameters_win_over_settings) {
    const Parameters parameters(model(parameter("THREADS", "3")), {{{"threads", "5"}, {"device", "mps"}}}, "pytorch");
    CHECK_EQUAL(*parameters.integer("THREADS", 0), 3);
    CHECK_EQUAL(*parameters.text("DEVICE"), "mps");
    CHECK(!parameters.text("OTHER") && !parameters.integer("OTHER", 0) && !parameters.boolean("OTHER"));
}

TEST(values_are_typed) {
    const Parameters parameters(model(parameter("YES", "True") + "," + parameter("NO", "0") + "," +
                                      parameter("DEVICE", "MPS") + "," + parameter("LEAST", "-9223372036854775808")),
                                {}, "b");
    const std::array<string_view, 2> devices{"cpu", "mps"};
    CHECK_EQUAL(*parameters.boolean("YES"), true);
    CHECK_EQUAL(*parameters.boolean("NO"), false);
    CHECK_EQUAL(*parameters.choice("DEVICE", devices), "mps");
    CHECK(!parameters.choice("OTHER", devices));
    CHECK_EQUAL(*parameters.integer("LEAST", INT64_MIN), INT64_MIN);
}

TEST(errors_name_the_wrong_value) {
    const Parameters parameters(model(parameter("INTRA_OP_THREAD_COUNT", "abc") + "," + parameter("DEVICE", "tpu")),
                                {{{"small", "17"}, {"flag", "maybe"}, {"empty", ""}, {"spaced", " 1"}}}, "pytorch");
    const std::array<string_view, 2> devices{"cpu", "mps"};
    CHECK_INVALID("parameter INTRA_OP_THREAD_COUNT of model m: 'abc' is not a whole number of 0 or more",
                  parameters.integer("INTRA_OP_THREAD_COUNT", 0));
    CHECK_INVALID("setting small of backend pytorch: '17' is not a whole number of 1 to 16",
                  parameters.integer("SMALL", 1, 16));
    CHECK_INVALID("setting empty of backend pytorch: '' is not a whole number of 0 or more",
                  parameters.integer("EMPTY", 0));
    CHECK_INVALID("setting spaced of backend pytorch: ' 1' is not a whole number of 0 or more",
                  parameters.integer("SPACED", 0));
    CHECK_INVALID("setting flag of backend pytorch: 'maybe' is neither true nor false", parameters.boolean("FLAG"));
    CHECK_INVALID("parameter DEVICE of model m: 'tpu' is not one of cpu, mps", parameters.choice("DEVICE", devices));
    CHECK_INVALID("parameter DEVICE of model m: 'tpu' is odd", parameters.refuse("DEVICE", "is odd"));
    CHECK_INVALID("parameter OTHER of model m is missing", parameters.refuse("OTHER", "is odd"));
}
