// Time that the kernel takes to pass a turn to another process and back, without Python: two words in shared memory.
// One JSON object a line; nanoseconds, medians. Argument: microseconds between turns in the rows "pause". Left
// to itself, the scheduler puts two processes that only ever wake each other on one core; "apart" keeps them on two.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/os.hpp"

using namespace shmtensor;

namespace {

constexpr std::uint64_t kPatience = 100'000'000;  // ns of a wait before it reads the word again

struct Words {
    alignas(64) std::atomic<std::uint32_t> there{0};  // turns requested; written by the parent
    alignas(64) std::atomic<std::uint32_t> back{0};   // turns answered; written by the child
};

void await(const std::atomic<std::uint32_t>& word, std::uint32_t turn, bool sleep) {
    for (std::uint32_t seen; (seen = word.load(std::memory_order_acquire)) < turn;)
        if (sleep) os::futex_wait(word, seen, kPatience);
}

void tell(std::atomic<std::uint32_t>& word, std::uint32_t turn, bool sleep) {
    word.store(turn, std::memory_order_release);
    if (sleep) os::futex_wake(word, 1);
}

void stay_on(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    ::sched_setaffinity(0, sizeof cores, &cores);
}

double median_turn(Words& words, std::uint32_t turns, bool sleep, unsigned pause_us, bool apart) {
    if (apart) stay_on(0);
    new (&words) Words;
    const pid_t child = ::fork();
    if (child < 0) std::exit(1);
    if (child == 0) {
        if (apart) stay_on(1);
        for (std::uint32_t turn = 1; turn <= turns; ++turn) {
            await(words.there, turn, sleep);
            tell(words.back, turn, sleep);
        }
        ::_exit(0);
    }
    std::vector<std::uint64_t> times;
    const timespec pause{0, static_cast<long>(pause_us) * 1000};
    for (std::uint32_t turn = 1; turn <= turns; ++turn) {
        if (pause_us) ::nanosleep(&pause, nullptr);
        const std::uint64_t start = os::monotonic_ns();
        tell(words.there, turn, sleep);
        await(words.back, turn, sleep);
        times.push_back(os::monotonic_ns() - start);
    }
    ::waitpid(child, nullptr, 0);
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return static_cast<double>(*middle);
}

}  // namespace

int main(int count, char** arguments) {
    const unsigned pause_us = count > 1 ? static_cast<unsigned>(std::strtoul(arguments[1], nullptr, 10)) : 5000;
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 1;
    Words& words = *static_cast<Words*>(page);
    const auto print = [&](const char* name, std::uint32_t turns, bool sleep, unsigned pause, bool apart) {
        std::printf("{\"bench\": \"%s\", \"ns\": %.0f}\n", name, median_turn(words, turns, sleep, pause, apart));
        std::fflush(stdout);
    };
    print("spin", 20'000, false, 0, false);
    print("futex", 2'000, true, 0, false);
    print("futex_pause", 100, true, pause_us, false);
    print("futex_apart", 2'000, true, 0, true);  // this process stays on core 0 afterwards
    print("futex_apart_pause", 100, true, pause_us, true);
    return 0;
}
