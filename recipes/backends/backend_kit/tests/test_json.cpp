#include "backend_kit/json.hpp"
#include "testing.hpp"

using namespace backend_kit;

namespace {

std::string rewritten(std::string_view text) { return Json::parse(text).text(); }

}  // namespace

TEST(documents_survive_a_round_trip) {
    for (const char* text : {"null", "true", "false", "0", "-0", "-12.50e+03", "1E5", R"("")", "[]", "{}",
                             R"({"b":1,"a":[null,{"c":"\u001f\"\\x"}],"":[]})", R"("\u0000")"}) {
        CHECK_EQUAL(rewritten(text), text);
    }
    CHECK_EQUAL(rewritten(" { \"a\" :\t[ 1 ,\r\n2 ] } "), R"({"a":[1,2]})");
}

TEST(escapes_become_utf8) {
    CHECK_EQUAL(*Json::parse(R"("\"\\\/\b\f\n\r\t")").string(), "\"\\/\b\f\n\r\t");
    CHECK_EQUAL(*Json::parse(R"("\u0041\u00e9\u20AC\ud83d\ude00")").string(), "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    CHECK_EQUAL(*Json::parse("\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"").string(),
                "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST(errors_have_a_position) {
    CHECK_INVALID("JSON at byte 0: a value is expected", Json::parse(""));
    CHECK_INVALID("JSON at byte 1: a value is expected", Json::parse("["));
    CHECK_INVALID("JSON at byte 3: a value is expected", Json::parse("[1,]"));
    CHECK_INVALID("JSON at byte 2: ',' or ']' is expected", Json::parse("[1"));
    CHECK_INVALID("JSON at byte 3: ',' or ']' is expected", Json::parse("[1 2]"));
    CHECK_INVALID("JSON at byte 1: a name in quotes is expected", Json::parse("{a:1}"));
    CHECK_INVALID("JSON at byte 7: a name in quotes is expected", Json::parse(R"({"a":1,})"));
    CHECK_INVALID("JSON at byte 5: ':' is expected", Json::parse(R"({"a" 1})"));
    CHECK_INVALID("JSON at byte 6: ',' or '}' is expected", Json::parse(R"({"a":1)"));
    CHECK_INVALID("JSON at byte 13: the object that ends here has the name 'a' twice", Json::parse(R"({"a":1,"a":2})"));
    CHECK_INVALID("JSON at byte 2: text after the end of the document", Json::parse("1 2"));
    CHECK_INVALID("JSON at byte 0: a value is expected", Json::parse("nul"));
    CHECK_INVALID("JSON at byte 0: a value is expected", Json::parse("+1"));
    CHECK_INVALID("JSON at byte 1: a number has a leading zero", Json::parse("01"));
    CHECK_INVALID("JSON at byte 1: a digit is expected", Json::parse("-"));
    CHECK_INVALID("JSON at byte 2: a digit is expected", Json::parse("1."));
    CHECK_INVALID("JSON at byte 2: a digit is expected", Json::parse("1e"));
}

TEST(bad_strings_are_refused) {
    CHECK_INVALID("JSON at byte 2: the text ends inside a string", Json::parse("\"a"));
    CHECK_INVALID("JSON at byte 1: a control character inside a string", Json::parse("\"\n\""));
    CHECK_INVALID("JSON at byte 2: an unknown escape", Json::parse("\"\\x\""));
    CHECK_INVALID("JSON at byte 2: an unknown escape", Json::parse("\"\\"));
    CHECK_INVALID("JSON at byte 3: four hexadecimal digits are expected", Json::parse("\"\\u12\""));
    CHECK_INVALID("JSON at byte 3: four hexadecimal digits are expected", Json::parse("\"\\u-123\""));
    CHECK_INVALID("JSON at byte 7: half of a surrogate pair", Json::parse("\"\\ud83d\""));
    CHECK_INVALID("JSON at byte 7: half of a surrogate pair", Json::parse("\"\\ude00\""));
    CHECK_INVALID("JSON at byte 13: half of a surrogate pair", Json::parse("\"\\ud83d\\u0041\""));
    for (const char* bytes : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                              "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82"}) {
        CHECK_INVALID("JSON at byte 1: bytes that are not UTF-8",
                      Json::parse(std::string(1, '"').append(bytes).append(1, '"')));
    }
}

TEST(depth_is_limited) {
    const std::string fits = std::string(64, '[') + std::string(64, ']');
    CHECK_EQUAL(rewritten(fits), fits);
    CHECK_INVALID("JSON at byte 64: more than 64 levels", Json::parse(std::string(100000, '[')));
}

TEST(members_are_set_in_their_place) {
    Json document = Json::parse(R"({"a":1,"b":2})");
    document.set("a", Json(std::int64_t{-7}));
    document.set("c", Json(std::string("x")));
    CHECK_EQUAL(document.text(), R"({"a":-7,"b":2,"c":"x"})");
    Json number(std::int64_t{1});
    CHECK_ERROR(TRITONSERVER_ERROR_INTERNAL, "a member 'a' is set in a value that is not an object",
                number.set("a", Json()));
}

TEST(views_know_their_path) {
    const Json document = Json::parse(R"({"a":[{"b":"x"},3.5,"12","99999999999999999999",true,null],"n":null})");
    const JsonView root(document, "config");
    const std::vector<JsonView> items = root.find("a")->items();
    CHECK(!root.find("missing"));
    CHECK(!root.find("n"));
    CHECK_EQUAL(items[0].find("b")->path(), "config.a[0].b");
    CHECK_EQUAL(items[2].integer(), 12);
    CHECK_EQUAL(items[4].boolean(), true);
    CHECK_EQUAL(items[0].string_or("b", "y"), "x");
    CHECK_EQUAL(items[0].string_or("c", "y"), "y");
    CHECK_EQUAL(items[0].integer_or("c", 4), 4);
    CHECK_EQUAL(items[0].boolean_or("c", true), true);
    CHECK_INVALID("config.a[0].b is not a 64-bit integer", items[0].integer_or("b", 4));
    CHECK_INVALID("config.a[1] is not a 64-bit integer", items[1].integer());
    CHECK_INVALID("config.a[3] is not a 64-bit integer", items[3].integer());
    CHECK_INVALID("config.a[1] is not a string", items[1].string());
    CHECK_INVALID("config.a[1] is neither true nor false", items[1].boolean());
    CHECK_INVALID("config.a[1] is not an object", items[1].find("b"));
    CHECK_INVALID("config.a[1] is not an object", items[1].members());
    CHECK_INVALID("config is not an array", root.items());
    CHECK_EQUAL(root.members().size(), 2U);
}

TEST(mutated_documents_are_refused_or_survive_a_round_trip) {
    const std::string seed =
        R"({"name":"m\u00e9","dims":[-1,3,1.5e3],"flag":true,"none":null,"deep":[[{"a":"\ud83d\ude00"}]]})";
    testing::Random random(3);
    int accepted = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string text = seed;
        for (std::size_t change = random.below(3) + 1; change > 0; --change) {
            const std::size_t at = random.below(text.size());
            switch (random.below(4)) {
                case 0:
                    text[at] = static_cast<char>(random.below(256));
                    break;
                case 1:
                    text.erase(at, random.below(5) + 1);
                    break;
                case 2:
                    text.insert(at, text.substr(random.below(text.size()), random.below(8)));
                    break;
                default:
                    text[at] = "{}[],:\"\\0e-"[random.below(11)];
            }
            if (text.empty()) {
                text.assign(1, ' ');
            }
        }
        // A copy of exact size, so that reading beyond its end is found.
        const std::vector<char> exact(text.begin(), text.end());
        try {
            const std::string once = Json::parse({exact.data(), exact.size()}).text();
            CHECK_EQUAL(rewritten(once), once);
            ++accepted;
        } catch (const Error& error) {
            CHECK_EQUAL(std::string(error.what()).substr(0, 13), "JSON at byte ");
        }
    }
    CHECK(accepted > 100);
}
