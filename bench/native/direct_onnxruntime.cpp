// direct_onnxruntime MODEL.onnx DIM...: runs a session with an input of this shape, as described in calls.hpp.
#include "calls.hpp"
#include "onnxruntime_call.hpp"

int main(int count, char** words) {
    const bench::Runtime runtime(words[1]);
    bench::answer(bench::Call(runtime, bench::shape_of(count, words, 2)));
}
