// Loading and unloading: what the server passes reaches the backend, and nothing is left behind.
#include "testing.hpp"
#include "world.hpp"

using namespace testing;

TEST(a_backend_gets_its_names_and_settings) {
    World world(config_text(8, {"x FP32 -1"}, {"y FP32 -1"}));
    world.instance.kind = TRITONSERVER_INSTANCEGROUPKIND_MODEL;
    world.instance.device_id = 2;
    int seen = 0;
    behaviour.on_backend = [&](const BackendInfo& info) {
        CHECK_EQUAL(info.name, "testing");
        CHECK_EQUAL(info.config.settings.at("level"), "7");
        ++seen;
    };
    behaviour.on_model = [&](const ModelInfo& info) {
        CHECK_EQUAL(info.name, "m");
        CHECK_EQUAL(info.version, 3U);
        CHECK_EQUAL(info.folder, "/models/m/3");
        CHECK_EQUAL(info.config.inputs.at(0).name, "x");
        ++seen;
    };
    behaviour.on_validate = [&](const ModelConfig&) { ++seen; };
    behaviour.on_instance = [&](const InstanceInfo& info) {
        CHECK_EQUAL(info.name, "m_0");
        CHECK(info.kind == TRITONSERVER_INSTANCEGROUPKIND_MODEL);
        CHECK_EQUAL(info.device_id, 2);
        ++seen;
    };
    behaviour.on_complete = [](ModelConfig&) -> bool { throw internal_error("must not be asked"); };
    world.load();
    CHECK_EQUAL(seen, 4);
    CHECK_EQUAL(behaviour.alive, 3);
    CHECK_EQUAL(fake::server.messages, 0);
}

TEST(gpu_instances_are_refused_with_a_hint) {
    World world;
    behaviour.on_instance = [](const InstanceInfo& info) { info.refuse_gpu("wait"); };
    world.instance.kind = TRITONSERVER_INSTANCEGROUPKIND_GPU;
    CHECK_ERROR(TRITONSERVER_ERROR_UNSUPPORTED, "KIND_GPU is not served; use KIND_CPU or KIND_MODEL and wait",
                world.load());
    world.instance.kind = TRITONSERVER_INSTANCEGROUPKIND_MODEL;
    world.load();
}

TEST(an_old_server_is_refused) {
    World world;
    fake::server.minor = 18;
    CHECK_ERROR(TRITONSERVER_ERROR_UNSUPPORTED,
                "the backend API of this server is 1.18, but this backend needs 1.19 or a later 1.x",
                world.load());
    fake::server.major = 2;
    fake::server.minor = 30;
    CHECK_ERROR(TRITONSERVER_ERROR_UNSUPPORTED,
                "the backend API of this server is 2.30, but this backend needs 1.19 or a later 1.x",
                world.load());
    fake::server.major = 1;
    world.load();
}

TEST(a_configuration_is_completed_and_read_again) {
    World world(R"({"name":"m","max_batch_size":0})");
    world.model.auto_complete = true;
    behaviour.on_complete = [](ModelConfig& config) {
        config.max_batch_size = 4;
        config.inputs.push_back({"x", TRITONSERVER_TYPE_FP32, {-1}});
        config.outputs.push_back({"y", TRITONSERVER_TYPE_FP32, {-1}});
        return true;
    };
    std::int64_t validated = 0;
    behaviour.on_validate = [&](const ModelConfig& config) { validated = config.max_batch_size; };
    world.load();
    CHECK_EQUAL(world.model.set_config,
                R"({"name":"m","max_batch_size":4,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[-1]}],)"
                R"("output":[{"name":"y","data_type":"TYPE_FP32","dims":[-1]}]})");
    CHECK_EQUAL(validated, 4);
}

TEST(a_complete_configuration_is_not_set) {
    World world;
    world.model.auto_complete = true;
    behaviour.on_complete = [](ModelConfig&) { return false; };
    world.load();
    CHECK_EQUAL(world.model.set_config, "");
}

TEST(refusals_are_load_errors) {
    World world(config_text(8, {"x FP32 -1"}, {}, R"(,"batch_input":[{}])"));
    CHECK_ERROR(TRITONSERVER_ERROR_UNSUPPORTED, "model m has batch_input, which this backend does not support",
                world.load());
    world.model.config = std::string("{");
    CHECK_INVALID("JSON at byte 1: a name in quotes is expected", world.load());
    world.model.config = config_text(8, {}, {});
    behaviour.on_model = [](const ModelInfo&) { throw not_found("no model.pt"); };
    CHECK_ERROR(TRITONSERVER_ERROR_NOT_FOUND, "no model.pt", world.load());
    behaviour.on_model = nullptr;
    behaviour.on_validate = [](const ModelConfig&) { throw std::runtime_error("bad"); };
    CHECK_ERROR(TRITONSERVER_ERROR_INTERNAL, "bad", world.load());
    CHECK_EQUAL(behaviour.alive, 1);
    behaviour.on_validate = nullptr;
    behaviour.on_instance = [](const InstanceInfo&) { throw std::bad_alloc(); };
    CHECK_ERROR(TRITONSERVER_ERROR_UNAVAILABLE, "out of memory", world.load());
    CHECK_EQUAL(behaviour.alive, 2);
}
