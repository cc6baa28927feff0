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

TEST(parameters_without_effect_cause_a_warning) {
    const World world;
    const ModelConfig config = ModelConfig::parse(
        R"({"name":"m","parameters":{"DEVICE":{},"device":{},"session.any":{},"session":{},"other":{}}})");
    const std::array<std::string_view, 2> known{"DEVICE", "session.*"};
    Parameters(config, {{{"unknown", "1"}}}, "testing").warn_of_unknown(known);
    const auto warning = [](const std::string& name) {
        return "W config.cpp:n model m: the parameter " + name + " has no effect; this backend knows DEVICE, session.*";
    };
    CHECK(fake::server.log == (std::vector<std::string>{warning("device"), warning("other"), warning("session")}));
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
