// Timelines of GPUs, tested without a GPU: a manager that ends those of a dead client is killed, stopped and replaced
// at every point; lines are claimed, given back and reused.
//
//   timelines     all of it; exits with 0 when every point was reached and every check passed
//
// The harness plays the streams (it writes `completed`), the next manager, and the next owner of the lines.
#include <signal.h>
#include <sys/prctl.h>

#include "base/failpoint.hpp"
#include "heap/timelines.hpp"
#include "matrix.hpp"
#include "world.hpp"

using namespace world;

namespace {

constexpr std::uint32_t kDead = 1, kNext = 2, kOther = 3;           // slots
constexpr std::uint32_t kGeneration = 5;                            // of the dead client's slot
constexpr std::uint32_t kLosing = 0, kWhole = 1, kLosingAgain = 2;  // lines of the dead client
const std::vector<std::string> kRoles = {"manager"};

struct World {
    Group group;
    Timelines timelines{group};

    World() {
        want(group.create(7) == 0, "group.create");
        for (const std::uint32_t line : {kLosing, kWhole, kLosingAgain})
            want(timelines.claim(kDead, kGeneration) == line, "the lines of a new table are not given out in order");
        set(kLosing, 3, 7);
        set(kWhole, 2, 2);
        set(kLosingAgain, 8, 9);
        Timeline& again = timelines.at(kLosingAgain);
        again.lost_from = 2;
        again.lost_to = 5;
    }
    void set(std::uint32_t line, std::uint64_t completed, std::uint64_t issued) {
        timelines.at(line).issued = issued;
        timelines.at(line).completed = completed;
    }
    std::uint64_t owner(std::uint32_t line) { return timelines.at(line).owner.load(); }
};

// Each point up to `last` is reached, and lost exactly if from < point <= to.
void check(World& world, std::uint32_t line, std::uint64_t from, std::uint64_t to, std::uint64_t last,
           const std::string& what) {
    const std::string where = what + ": line " + std::to_string(line) + ", point ";
    for (std::uint64_t point = 1; point <= last; ++point) {
        want(world.timelines.is_reached(line, point), where + std::to_string(point) + " is never reached");
        want(world.timelines.is_lost(line, point) == (from < point && point <= to),
             where + std::to_string(point) +
                 (from < point && point <= to ? " does not count as lost" : " counts as lost"));
    }
    want(!world.timelines.is_reached(line, last + 1), where + std::to_string(last + 1) + " was never given out");
}

void check_ended(World& world, const std::string& what) {
    check(world, kLosing, 3, 7, 7, what);
    check(world, kWhole, 0, 0, 2, what);
    check(world, kLosingAgain, 2, 9, 9, what);
}

// Another client takes all lines, and submits work on those of the dead one.
void reuse(World& world, const std::string& what) {
    std::uint32_t claimed = 0, first = kNone, last = kNone;
    for (std::uint32_t line = 0; (line = world.timelines.claim(kNext, 1)) != kNone; ++claimed) {
        if (first == kNone) first = line;
        last = line;
    }
    want(claimed == kTimelines, what + ": the lines of the dead are not free");
    want(first == kWhole, what + ": a line with lost points was given out first");
    want(last == kLosingAgain, what + ": lines with lost points are not the last");
    world.set(kLosing, 8, 10);
    world.set(kWhole, 2, 4);
    world.set(kLosingAgain, 10, 10);
}

void check_reused(World& world, const std::string& what) {
    const auto is = [&](std::uint32_t line, std::uint64_t completed, std::uint64_t issued) {
        const Timeline& at = world.timelines.at(line);
        want(world.owner(line) == (std::uint64_t{1} << 32 | kNext), what + ": a replaced manager took a line back");
        want(at.completed == completed && at.issued == issued, what + ": a replaced manager moved a stream's point");
    };
    is(kLosing, 8, 10);
    is(kWhole, 2, 4);
    is(kLosingAgain, 10, 10);
    check(world, kLosing, 3, 7, 8, what);
    check(world, kWhole, 0, 0, 2, what);
    check(world, kLosingAgain, 2, 9, 10, what);
    world.timelines.end(kNext, 1);
    check(world, kLosing, 3, 10, 10, what);  // point 8 was reached, and counts as lost
    check(world, kWhole, 2, 4, 4, what);
    check(world, kLosingAgain, 2, 9, 10, what);
}

bool run(const std::string& role, const std::string& point, int nth, const std::string& action) {
    const std::string what = role + " " + point + ":" + std::to_string(nth) + ":" + action;
    World world;
    const pid_t pid = ::fork();
    want(pid >= 0, "fork");
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        failpoint::arm(point + ":" + std::to_string(nth) + ":" + action);
        world.timelines.end(kDead, kGeneration);
        std::_Exit(0);
    }
    int status = 0;
    want(::waitpid(pid, &status, WUNTRACED) == pid, what);
    const bool stopped = WIFSTOPPED(status);
    const bool passed = stopped || WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 70);
    if (!passed) want(WIFEXITED(status) && WEXITSTATUS(status) == 0, what + ": the role failed");
    world.timelines.end(kDead, kGeneration);  // the next manager
    check_ended(world, what);
    reuse(world, what);
    if (stopped) {  // continues after it has been replaced
        ::kill(pid, SIGCONT);
        want(::waitpid(pid, &status, 0) == pid && WIFEXITED(status), what);
    }
    check_reused(world, what);
    return passed;
}

void give_back() {
    World world;
    want(!world.timelines.give_back(kLosing, kDead, kGeneration), "a line was given back with points outstanding");
    want(world.owner(kLosing) != 0, "a line with points outstanding is free");
    want(!world.timelines.give_back(kWhole, kOther, kGeneration), "a line was given back by another client");
    want(!world.timelines.give_back(kWhole, kDead, kGeneration + 1), "a line was given back by another generation");
    want(world.timelines.give_back(kWhole, kDead, kGeneration), "a line without points outstanding was not given back");
    want(!world.timelines.give_back(kWhole, kDead, kGeneration), "a line was given back twice");
    world.timelines.end(kDead, kGeneration + 1);
    want(world.owner(kLosing) != 0, "the lines of another generation were ended");
}

// Processes that claim at the same time: each line has one owner.
void claim_together() {
    Group group;
    want(group.create(7) == 0, "group.create");
    const Timelines timelines(group);
    constexpr std::uint32_t kProcesses = 4;
    std::vector<pid_t> pids;
    for (std::uint32_t slot = 1; slot <= kProcesses; ++slot) {
        const pid_t pid = ::fork();
        want(pid >= 0, "fork");
        if (pid == 0) {
            for (std::uint32_t i = 0; i < kTimelines / kProcesses; ++i)
                want(timelines.claim(slot, 1) != kNone, "no line is free");
            std::_Exit(0);
        }
        pids.push_back(pid);
    }
    for (const pid_t pid : pids) {
        int status = 0;
        want(::waitpid(pid, &status, 0) == pid && status == 0, "a process that claims failed");
    }
    std::vector<std::uint32_t> owned(kProcesses + 1);
    for (std::uint32_t line = 0; line < kTimelines; ++line)
        ++owned[static_cast<std::uint32_t>(timelines.at(line).owner)];
    for (std::uint32_t slot = 1; slot <= kProcesses; ++slot)
        want(owned[slot] == kTimelines / kProcesses, "a line was given to two processes");
    want(timelines.claim(kOther, 2) == kNone, "more lines were given out than exist");
}

}  // namespace

int main() {
    set_bound(300);
    give_back();
    claim_together();
    const auto points = points_where([](const std::string& point) { return point.starts_with("timelines."); });
    return world::matrix(points, points, kRoles, {1, 2, 3}, 2, run);
}
