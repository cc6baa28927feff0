// Code shared by the programs that call a runtime without a server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace bench {

// The shape given by the arguments from `first` on.
inline std::vector<std::int64_t> shape_of(int count, char** words, int first) {
    std::vector<std::int64_t> shape;
    for (int i = first; i < count; ++i) shape.push_back(std::stoll(words[i]));
    return shape;
}

// For each two numbers "CALLS PAUSE" on standard input: makes that many calls and sleeps PAUSE nanoseconds before each.
// Prints the total nanoseconds, and then those of each call, on one line.
template <typename Call>
void answer(const Call& call) {
    using Clock = std::chrono::steady_clock;
    std::size_t calls = 0;
    std::int64_t pause = 0;
    while (std::cin >> calls >> pause) {
        std::vector<Clock::duration> spans(calls);
        const auto first = Clock::now();
        for (Clock::duration& span : spans) {
            std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
            const auto start = Clock::now();
            call();
            span = Clock::now() - start;
        }
        std::cout << std::chrono::nanoseconds(Clock::now() - first).count();
        for (const auto& span : spans) std::cout << ' ' << std::chrono::nanoseconds(span).count();
        std::cout << std::endl;
    }
}

}  // namespace bench
