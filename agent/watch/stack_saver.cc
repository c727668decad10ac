// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/stack_saver.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <map>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/process/proc_files.h"
#include "agent/process/process_tree.h"
#include "agent/process/resolve_program.h"
#include "agent/watch/kernel_view.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/files/own_file.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

namespace {

namespace asio = boost::asio;

constexpr std::size_t kDescendantsMax = 8;      // Of one worker.
constexpr std::chrono::seconds kDeathLimit(1);  // For tools that were killed.
constexpr int kFoldersMax = 1000;               // Under one name. The last one is reused.

/// A program that shows the stacks of a process on its standard output.
struct StackTool {
    const char* name;
    std::vector<std::string> arguments;  ///< Before the pid.
    std::vector<std::string> commands;   ///< After it.
};

/// For every process, the best one first.
const std::vector<StackTool>& native_tools() {
    static const std::vector<StackTool> tools = {
        {"eu-stack", {"-m", "-s", "-p"}, {}},
        {"gdb",
         {"-batch", "-nx", "-iex", "set auto-load no", "-p"},
         {"-ex", "thread apply all backtrace"}},
    };
    return tools;
}

/// For interpreters of Python: their own functions and lines. It reads their memory, so it needs no
/// lock of theirs.
const StackTool& python_tool() {
    static const StackTool tool{"py-spy", {"dump", "--pid"}, {}};
    return tool;
}

bool runs_python(pid_t pid) {
    std::error_code failed;
    const auto program =
        std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", failed);
    if (program.filename().string().starts_with("python")) {
        return true;
    }
    return maps_file(pid, "/libpython3");
}

std::string file_name(const HangSubject& subject) {
    return "rank" + std::to_string(subject.rank);
}

}  // namespace

std::filesystem::path unused_folder(const std::filesystem::path& folder,
                                    const std::vector<HangSubject>& subjects) {
    std::filesystem::path result = folder;
    for (int number = 2; number <= kFoldersMax; ++number) {
        const bool used = std::any_of(subjects.begin(), subjects.end(), [&](const auto& subject) {
            std::error_code ignored;
            return std::filesystem::exists(result / (file_name(subject) + ".txt"), ignored);
        });
        if (!used) {
            break;
        }
        result = folder;
        result += "-" + std::to_string(number);
    }
    return result;
}

struct StackSaver::Run {
    Run(asio::io_context& io_in, const Clock& clock_in, LinuxLauncher& launcher_in,
        const StackOptions& options_in, std::function<void(const SavedStacks&)> on_done_in)
        : io(io_in),
          clock(clock_in),
          launcher(launcher_in),
          options(options_in),
          on_done(std::move(on_done_in)),
          timer(io_in) {}

    // A process can be woken only after its tool has ended, so wait for the tools, which takes
    // milliseconds.
    ~Run() {
        for (auto& [pid, walk] : walks) {
            walk.tool.signal_group(SIGKILL);
        }
        const Instant deadline = after(clock.now(), kDeathLimit);
        for (auto& [pid, walk] : walks) {
            while (!walk.tool.status() && clock.now() < deadline) {
                ::poll(nullptr, 0, 1);
            }
            wake(pid, walk, false);
        }
    }

    /// A tool that is installed.
    struct Installed {
        const StackTool* tool = nullptr;
        std::string executable;

        explicit operator bool() const noexcept { return tool != nullptr; }
    };
    /// One process, and the tool that shows it next.
    struct Task {
        pid_t pid = 0;
        UniqueFd file;
        const Installed* by = nullptr;
    };
    /// One process whose stacks are being walked.
    struct Walk {
        ChildProcess tool;
        const Installed* by = nullptr;
        UniqueFd file;
        bool was_stopped = false;  ///< Stopped before the tool started.
    };

    [[nodiscard]] Installed find(const StackTool& tool) const {
        Result<std::string> found = resolve_program(tool.name, options.search_path);
        return found ? Installed{&tool, std::move(*found)} : Installed();
    }

    void choose_tools() {
        for (const StackTool& candidate : native_tools()) {
            if (!native) {
                native = find(candidate);
            }
        }
        python = find(python_tool());
        result.how = native ? std::string("by ") + native.tool->name
                            : "as the kernel sees them (neither eu-stack nor gdb is installed)";
    }

    /// Queues the process for the first tool, or for the next one after `last`.
    void queue(pid_t pid, UniqueFd file, const Installed* last = nullptr) {
        if (last == nullptr && native) {
            waiting.push_back({pid, std::move(file), &native});
        } else if (last != &python && python && runs_python(pid)) {
            has_shown_python = true;
            waiting.push_back({pid, std::move(file), &python});
        }
    }

    void complain(const std::string& sentence) {
        if (result.complaint.empty()) {
            result.complaint = sentence;
        }
    }

    void note(const std::filesystem::path& path, pid_t pid, const std::string& head) {
        Result<UniqueFd> file =
            files::open_own(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
        const std::string text = head + "\n\nAs the kernel sees it:\n" + kernel_view(pid);
        if (!file || !files::write_all(file->get(), text)) {
            complain("cannot write " + path.string() + ": " +
                     (file ? std::string(std::strerror(errno)) : file.error().detail));
            return;
        }
        ++result.files;
        queue(pid, *std::move(file));
    }

    // The kernel's view of all processes comes first: it is cheap, and a tool changes it.
    void begin(const std::filesystem::path& folder, const std::vector<HangSubject>& subjects,
               const std::string& heading) {
        if (const Result<void> made = files::make_own_folder(folder); !made) {
            complain("cannot make the folder " + folder.string() + ": " + made.error().detail);
        }
        for (const HangSubject& subject : subjects) {
            const std::string name = file_name(subject);
            const std::string title = printable(heading) + "\nrank " + std::to_string(subject.rank);
            const std::string pid = std::to_string(subject.pid);
            note(folder / (name + ".txt"), subject.pid,
                 title + ", pid " + pid +
                     (subject.doing.empty() ? "" : ", " + printable(subject.doing)));
            // The descendants of a wrapper, and processes that load data.
            std::size_t count = 0;
            for (const pid_t child : descendants(subject.pid)) {
                if (++count > kDescendantsMax) {
                    break;
                }
                const std::string number = std::to_string(child);
                note(folder / (name + "." + number + ".txt"), child,
                     title + ", pid " + number + ", a descendant of its process " + pid);
            }
        }
        timer.expires_after(options.limit);
        timer.async_wait([this, alive = std::weak_ptr(life)](boost::system::error_code late) {
            if (!late && !alive.expired()) {
                give_up();
            }
        });
        go_on();
    }

    void go_on() {
        while (!waiting.empty() && walks.size() < options.at_once) {
            Task task = std::move(waiting.front());
            waiting.pop_front();
            walk(std::move(task));
        }
        if (walks.empty() && !done) {
            done = true;
            timer.cancel();
            if (has_shown_python) {
                result.how += std::string(native ? " and " : " and by ") + python.tool->name;
            }
            asio::post(io, [this, alive = std::weak_ptr(life)] {
                if (!alive.expired()) {
                    const SavedStacks saved = result;  // The call may destroy this object.
                    std::exchange(on_done, nullptr)(saved);
                }
            });
        }
    }

    void walk(Task task) {
        const pid_t pid = task.pid;
        const StackTool& tool = *task.by->tool;
        ProcessSpec spec;
        spec.executable = task.by->executable;
        spec.arguments = {tool.name};
        spec.arguments.insert(spec.arguments.end(), tool.arguments.begin(), tool.arguments.end());
        spec.arguments.push_back(std::to_string(pid));
        spec.arguments.insert(spec.arguments.end(), tool.commands.begin(), tool.commands.end());
        // A small environment: English texts, and no symbols from the network.
        spec.environment = {"LC_ALL=C", "PATH=" + options.search_path};
        spec.stdout_fd = spec.stderr_fd = task.file.get();
        files::write_all(task.file.get(), std::string("\nBy ") + tool.name + ":\n");
        const bool stopped = is_stopped(pid);  // A running tool may have stopped it already.
        Result<ChildProcess> child = launcher.launch(spec);
        if (!child) {
            complain(child.error().detail);
            return;
        }
        Walk& walk =
            walks.emplace(pid, Walk{std::move(*child), task.by, std::move(task.file), stopped})
                .first->second;
        walk.tool.async_wait([this, pid](ExitStatus status) {
            Walk ended = std::move(walks.at(pid));
            walks.erase(pid);
            if (!status.success()) {
                const std::string how = std::string(ended.by->tool->name) + " " + status.describe();
                files::write_all(ended.file.get(), how + "\n");
                complain(how + " on pid " + std::to_string(pid));
            }
            wake(pid, ended, status.success());
            if (!has_given_up) {
                queue(pid, std::move(ended.file), ended.by);
            }
            go_on();
        });
    }

    // The SIGSTOP of a tool that dies before it detaches may stop the process after the end of the
    // tool. So send SIGCONT, which cancels a pending stop, even if the process is not yet stopped.
    // Send it after the end of the tool, because a tool that is being killed may still attach.
    static void wake(pid_t pid, const Walk& walk, bool detached) {
        if (!walk.was_stopped && (!detached || is_stopped(pid))) {
            ::kill(pid, SIGCONT);
        }
    }

    // The handlers of the killed tools run as usual.
    void give_up() {
        has_given_up = true;
        for (const Task& task : std::exchange(waiting, {})) {
            files::write_all(task.file.get(), "\nNo time was left for its own stacks.\n");
            complain("there was no time for the stacks of all processes");
        }
        for (auto& [pid, walk] : walks) {
            const std::string late = std::string(walk.by->tool->name) + " took longer than " +
                                     format_duration(options.limit);
            files::write_all(walk.file.get(), "\n" + late + ", and was ended\n");
            complain(late + " on pid " + std::to_string(pid));
            walk.tool.signal_group(SIGKILL);
        }
        go_on();
    }

    asio::io_context& io;
    const Clock& clock;
    LinuxLauncher& launcher;
    StackOptions options;
    std::function<void(const SavedStacks&)> on_done;
    asio::steady_timer timer;
    Installed native;
    Installed python;
    std::deque<Task> waiting;
    std::map<pid_t, Walk> walks;
    SavedStacks result;
    bool has_shown_python = false;
    bool has_given_up = false;
    bool done = false;
    /// Lets queued handlers find out that this object is gone.
    std::shared_ptr<bool> life = std::make_shared<bool>(true);
};

StackSaver::StackSaver(asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
                       StackOptions options)
    : io_(io), clock_(clock), launcher_(launcher), options_(std::move(options)) {}

StackSaver::~StackSaver() = default;

void StackSaver::save(const std::filesystem::path& folder, const std::vector<HangSubject>& subjects,
                      const std::string& heading, std::function<void(const SavedStacks&)> on_done) {
    run_ = std::make_unique<Run>(io_, clock_, launcher_, options_, std::move(on_done));
    run_->choose_tools();
    run_->begin(folder, subjects, heading);
}

}  // namespace regroup::agent
