// What the programs that call a runtime without a server have in common.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <latch>
#include <string>
#include <thread>
#include <vector>

namespace bench {

// The shape that the arguments from `first` on tell.
inline std::vector<std::int64_t> shape_of(int count, char** words, int first) {
    std::vector<std::int64_t> shape;
    for (int i = first; i < count; ++i) shape.push_back(std::stoll(words[i]));
    return shape;
}

// For each three numbers "CALLERS CALLS PAUSE" on standard input: that many threads, started together, share the calls,
// and each sleeps PAUSE nanoseconds before a call. Prints the nanoseconds from the first start to the last end, and then
// those of each call, on one line. `make_call()` is asked in each thread for the function to call.
template <typename MakeCall>
void answer(MakeCall make_call) {
    using Clock = std::chrono::steady_clock;
    struct Span {
        Clock::time_point start;
        Clock::time_point end;
        auto nanoseconds() const { return std::chrono::nanoseconds(end - start).count(); }
    };
    std::size_t callers = 0;
    std::size_t calls = 0;
    std::int64_t pause = 0;
    while (std::cin >> callers >> calls >> pause) {
        std::vector<std::vector<Span>> spans(callers, std::vector<Span>(calls / callers));
        std::latch ready(static_cast<std::ptrdiff_t>(callers));
        std::vector<std::thread> threads;
        for (auto& mine : spans) {
            threads.emplace_back([&] {
                auto call = make_call();
                call();
                ready.arrive_and_wait();
                for (Span& span : mine) {
                    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
                    span.start = Clock::now();
                    call();
                    span.end = Clock::now();
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        Span all = {Clock::time_point::max(), Clock::time_point::min()};
        for (const auto& mine : spans) {
            all.start = std::min(all.start, mine.front().start);
            all.end = std::max(all.end, mine.back().end);
        }
        std::cout << all.nanoseconds();
        for (const auto& mine : spans)
            for (const Span& span : mine) std::cout << ' ' << span.nanoseconds();
        std::cout << std::endl;
    }
}

}  // namespace bench
