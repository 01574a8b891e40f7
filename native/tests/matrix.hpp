// The driver that the matrix programs share: every failpoint in every role. Each program has its own roles and audit.
#pragma once

#include <sys/prctl.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/failpoint.hpp"
#include "world.hpp"

namespace world {

// Plays a role with the point armed (nth pass, kill | stop | exit) and audits the world; true when the point was
// passed.
using Play = std::function<bool(const std::string& role, const std::string& point, int nth, const std::string& action)>;

inline std::set<std::string> points_where(const std::function<bool(const std::string&)>& is_wanted) {
    std::set<std::string> points;
    for (const char* name : failpoint::all())
        if (is_wanted(name)) points.insert(name);
    return points;
}

constexpr int kTries = 10;
constexpr int kPassesEmulated = 2;  // fewer under an emulator, where a run takes 50 times as long

// Plays in a process of its own, whose mappings end with it: an emulator keeps tables of every page that a process ever
// mapped, and copies them at each fork.
inline bool play_apart(const Play& play, const std::string& role, const std::string& point, int nth,
                       const std::string& action) {
    constexpr int kPassed = 10, kMissed = 11;
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    want(pid >= 0, "fork");
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const bool passed = play(role, point, nth, action);
        std::fflush(nullptr);
        std::_Exit(passed ? kPassed : kMissed);
    }
    int status = 0;
    want(::waitpid(pid, &status, 0) == pid, "waitpid");
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != kPassed && WEXITSTATUS(status) != kMissed))
        fail(role + " " + point + ":" + std::to_string(nth) + ":" + action + ": ended with " + std::to_string(status));
    return WEXITSTATUS(status) == kPassed;
}

// Plays all roles at all `points`; returns 0 when each of `required` was reached with each action in some role. `nths`:
// the passes to act at, ascending. A pass up to `repeatable` that the role makes each time must occur with each action;
// whether a wait ends in a sleep depends on timing, so a role may also pass a point by chance.
inline int matrix(const std::set<std::string>& points, const std::set<std::string>& required,
                  const std::vector<std::string>& roles, const std::vector<int>& nths, int repeatable,
                  const Play& play) {
    std::map<std::string, std::set<std::string>> reached;  // by action
    int runs = 0;
    for (const std::string& point : points)
        for (const std::string& role : roles)
            for (const int nth : nths) {
                if (emulator() && nth > kPassesEmulated) break;
                if (!play_apart(play, role, point, nth, "kill")) break;
                reached["kill"].insert(point);
                ++runs;
                for (const char* action : {"stop", "exit"}) {
                    bool again = false, each_time = true;
                    for (int tries = 0; tries < kTries && !again; ++tries)
                        again = play_apart(play, role, point, nth, action);
                    if (again) {
                        reached[action].insert(point);
                        ++runs;
                        continue;
                    }
                    for (int tries = 0; tries < kTries && each_time; ++tries)
                        each_time = play_apart(play, role, point, nth, "kill");
                    want(!each_time || nth > repeatable, point + " is not repeatable");
                }
            }
    int missed = 0;
    for (const std::string& point : required)
        for (const char* action : {"kill", "stop", "exit"})
            if (!reached[action].contains(point)) {
                std::printf("never reached: %s (%s)\n", point.c_str(), action);
                ++missed;
            }
    std::printf("%zu points, %d runs (kill, stop, exit): %d never reached\n", points.size(), runs, missed);
    return missed ? 1 : 0;
}

const std::vector<int> kPasses = {1, 2, 3, 6, 12, 24};

}  // namespace world
