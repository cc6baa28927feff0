#include <array>

#include "backend_kit/config.hpp"
#include "backend_kit/log.hpp"
#include "testing.hpp"
#include "world.hpp"

using namespace testing;

TEST(messages_have_level_and_file) {
    const World world;
    log_info("one");
    log_warning("two");
    log_error("three");
    log_message(TRITONSERVER_LOG_VERBOSE, "not written");
    const std::vector<std::string> expected{"I test_log.cpp:n one", "W test_log.cpp:n two", "E test_log.cpp:n three"};
    CHECK(fake::server.log == expected);
    CHECK_EQUAL(fake::server.calls, 3);
}

TEST(unknown_parameters_are_refused_with_the_nearest_name) {
    const World world;
    const std::array<std::string_view, 3> known{"DEVICE", "THREAD_COUNT", "session.*"};
    const auto refusal = [&](const std::string& parameters) {
        const ModelConfig config = ModelConfig::parse(R"({"name":"m","parameters":)" + parameters + "}");
        try {
            Parameters(config, {{{"unknown", "1"}}}, "testing").check_names(known);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const std::string end = " (STRICT_PARAMETERS: false makes this a warning)";
    const std::string begin = "model m: the parameter ";
    CHECK_EQUAL(refusal(R"({"DEVICE":{},"session.any":{},"STRICT_PARAMETERS":{"string_value":"true"}})"), "");
    CHECK_EQUAL(refusal(R"({"THREADS_COUNT":{}})"),
                begin + "THREADS_COUNT has no effect; did you mean THREAD_COUNT?" + end);
    CHECK_EQUAL(refusal(R"({"device":{}})"), begin + "device has no effect; did you mean DEVICE?" + end);
    CHECK_EQUAL(refusal(R"({"other":{}})"),
                begin + "other has no effect; this backend knows DEVICE, THREAD_COUNT, session.*" + end);
    CHECK(refusal("{\"" + std::string(100000, 'D') + "\":{}}").ends_with(end));
    CHECK_EQUAL(refusal(R"({"STRICT_PARAMETERS":{"string_value":"perhaps"}})"),
                "parameter STRICT_PARAMETERS of model m: 'perhaps' is neither true nor false");
    CHECK(fake::server.log.empty());
}

TEST(unknown_parameters_are_warned_of_when_not_strict) {
    const World world;
    const ModelConfig config = ModelConfig::parse(
        R"({"name":"m","parameters":{"DEVICE":{},"device":{},"session.any":{},"session":{},"other":{}}})");
    const std::array<std::string_view, 2> known{"DEVICE", "session.*"};
    Parameters(config, {{{"strict_parameters", "no"}}}, "testing").check_names(known);
    const std::string begin = "W config.cpp:n model m: the parameter ";
    CHECK(fake::server.log ==
          (std::vector<std::string>{begin + "device has no effect; did you mean DEVICE?",
                                    begin + "other has no effect; this backend knows DEVICE, session.*",
                                    begin + "session has no effect; did you mean session.*?"}));
}

TEST(a_failing_log_is_ignored) {
    const World world;
    fake::server.fail_at = 0;
    log_error("lost");
    CHECK_EQUAL(fake::server.failed, "TRITONSERVER_LogMessage");
    CHECK_EQUAL(fake::server.errors, 0);
}

TEST(unreturned_errors_are_logged_and_deleted) {
    const World world;
    log_if_error(nullptr, "do nothing");
    log_if_error(internal_error(std::string(3000, 'x')).to_triton(), "do it");
    CHECK_EQUAL(fake::server.errors, 0);
    CHECK_EQUAL(fake::server.log.size(), 1U);
    CHECK_EQUAL(fake::server.log[0].substr(0, 35), "E error.cpp:n failed to do it: xxxx");
}

TEST(exceptions_become_errors_of_their_kind) {
    const World world;
    const auto error = [](const std::function<void()>& function) {
        TRITONSERVER_Error* const made = guarded(function);
        CHECK(made != nullptr);
        const std::string text = std::to_string(made->code) + " " + made->message;
        TRITONSERVER_ErrorDelete(made);
        return text;
    };
    CHECK(guarded([] {}) == nullptr);
    CHECK_EQUAL(error([] { throw not_found("a"); }), "2 a");
    CHECK_EQUAL(error([] { throw std::bad_alloc(); }), "4 out of memory");
    CHECK_EQUAL(error([] { throw std::runtime_error("b"); }), "1 b");
    CHECK_EQUAL(error([] { throw 3; }), "1 unknown exception");
}
