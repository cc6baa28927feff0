#include "check.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "macbuild/compat/libraries.hpp"

namespace check {

Child start(const std::vector<std::string>& arguments) {
    const std::string program = macbuild::compat::executable_path();
    std::vector<char*> words{const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) {
        words.push_back(const_cast<char*>(argument.c_str()));
    }
    words.push_back(nullptr);
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv(program.c_str(), words.data());
        _exit(127);
    }
    close(ends[1]);
    return {process, ends[0]};
}

std::string line_of(const Child& child) {
    std::string line;
    char letter = 0;
    while (read(child.output, &letter, 1) == 1 && letter != '\n') {
        line += letter;
    }
    return line;
}

End wait_for(const Child& child) {
    End end;
    char part[4096];
    for (ssize_t count = 0; (count = read(child.output, part, sizeof(part))) > 0;) {
        end.output.append(part, static_cast<std::size_t>(count));
    }
    close(child.output);
    while (waitpid(child.process, &end.status, 0) < 0) {
        CHECK(errno == EINTR);
    }
    return end;
}

}  // namespace check
