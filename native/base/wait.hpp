// Waiting for a word in shared memory: spinning, pauses, and the longest sleep.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/os.hpp"

namespace shmtensor {

// The longest sleep, in ns. The process that should end it may have been killed, so a sleeper looks again after that.
constexpr std::uint64_t kLook = 100'000'000;

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spin for at most `turns` turns, until `ready` returns true.
template <class Ready>
bool spin_for(int turns, Ready&& ready) {
    for (int i = 0; i < turns; ++i) {
        relax();
        if (ready()) return true;
    }
    return false;
}

// Whether to try an optimisation that may fail. After each failure, twice as many waits skip it. Private to one
// process; races only cost time.
class Backoff {
   public:
    explicit Backoff(std::uint32_t max_skipped) : max_skipped_(max_skipped) {}

    bool is_due() {
        const std::uint32_t left = left_.load(std::memory_order_relaxed);
        if (left > 0) left_.store(left - 1, std::memory_order_relaxed);
        return left == 0;
    }
    void paid() { penalty_.store(0, std::memory_order_relaxed); }
    void failed() {
        const std::uint32_t penalty = std::min(penalty_.load(std::memory_order_relaxed) * 2 + 1, max_skipped_);
        penalty_.store(penalty, std::memory_order_relaxed);
        left_.store(penalty, std::memory_order_relaxed);
    }

   private:
    const std::uint32_t max_skipped_;                  // waits
    std::atomic<std::uint32_t> left_{0}, penalty_{0};  // waits still to skip, and how many the last failure set
};

// Spinning before a sleep, where it pays.
class Spin {
   public:
    Spin() = default;
    Spin(const Spin&) {}  // each copy learns by itself
    Spin& operator=(const Spin&) = delete;

    // Spins until `ready` returns true. False: spinning does not pay, so sleep. pre: ready() has just returned false.
    template <class Ready>
    bool until(Ready&& ready, std::uint64_t timeout_ns) {
        if (!backoff_.is_due() || !has_other_cores() || timeout_ns == 0) return false;
        const std::uint64_t start = os::monotonic_ns();
        std::uint64_t now = start;
        bool preempted = false;
        do {
            if (spin_for(kTurns, ready)) {
                backoff_.paid();
                return true;
            }
            const std::uint64_t then = now;
            now = os::monotonic_ns();
            preempted = now - then > kPreempted;
        } while (!preempted && now - start < std::min(kBound, timeout_ns));
        backoff_.failed();
        return false;
    }

   private:
    static constexpr int kTurns = 20;                    // between two readings of the clock
    static constexpr std::uint64_t kBound = 50'000;      // ns; about the cost of a sleep and a wake-up to both sides
    static constexpr std::uint64_t kPreempted = 20'000;  // ns between two readings: another thread wants this core

    static bool has_other_cores() {
        static const bool others = os::processors() > 1;
        return others;
    }

    Backoff backoff_{64};
};

// A pause of fixed length, in which messages gather, instead of a sleep until the next one. Where both sides share a
// core, or other processes compute on all of them, each wake-up takes the core from the producer after a few messages;
// after a pause, many have come for the cost of one switch. It is tried only if several messages came since the last
// wait, so not when each message is an answer. A producer waits in the same way for room that a slow consumer makes.
class Gather {
   public:
    Gather() = default;
    Gather(const Gather&) {}
    Gather& operator=(const Gather&) = delete;

    // Whether there was a pause. `passed`: the number of messages that this side has handled. `found` returns how many
    // have come since the pause began, 0 if the other side waits for this one. A pause pays if messages come throughout
    // it. It does not pay if the other side puts a few at once and then waits for answers.
    template <class Found>
    bool pause(std::uint32_t passed, std::uint64_t timeout_ns, Found&& found) {
        const bool several = passed - passed_.exchange(passed, std::memory_order_relaxed) > 1;
        if (!several || timeout_ns < kLeast || !backoff_.is_due()) return false;
        os::sleep(kHalf);
        const std::uint32_t half = found();
        if (half >= kMany) os::sleep(kHalf);
        const bool pays = half >= kMany && found() >= half + kMany;
        if (pays)
            backoff_.paid();
        else
            backoff_.failed();
        return true;
    }

   private:
    static constexpr std::uint64_t kHalf = 5'000;       // ns; about 60 us with the slack of the kernel's timers
    static constexpr std::uint64_t kLeast = 1'000'000;  // ns; in a shorter wait, a pause would be too large a part
    static constexpr std::uint32_t kMany = 8;  // in each half: a wake-up costs both sides about 2 us, a pause 5

    std::atomic<std::uint32_t> passed_{0};  // at the last wait
    Backoff backoff_{1024};
};

}  // namespace shmtensor
