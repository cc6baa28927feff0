// Stands in for Boost.Stacktrace in foreign code on Darwin: Triton requests the mode that starts addr2line, a program
// that no Mac has. It has the part of the interface that Triton uses, and frames as image and offset.
#pragma once

#include <ostream>
#include <string>

#include "macbuild/compat/stack_trace.hpp"

namespace boost::stacktrace {

class stacktrace {
public:
    stacktrace() : text_(macbuild::compat::stack_trace()) {}

    explicit operator bool() const noexcept { return !text_.empty(); }

    friend std::ostream& operator<<(std::ostream& out, const stacktrace& trace) { return out << trace.text_; }

private:
    std::string text_;
};

}  // namespace boost::stacktrace
