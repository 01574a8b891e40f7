// Waiting for a word in shared memory: turns of spinning, pauses, and how long a sleep may be.
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

// At most so many turns, until `ready` says true.
template <class Ready>
bool spin_for(int turns, Ready&& ready) {
    for (int i = 0; i < turns; ++i) {
        relax();
        if (ready()) return true;
    }
    return false;
}

// Whether to try what may fail, as it has paid lately: after each failure twice as many waits go without. Private to
// one process; races only cost time.
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
    std::atomic<std::uint32_t> left_{0}, penalty_{0};  // waits to go without, and how many after the last failure
};

// Spinning before a sleep, as far as it pays.
class Spin {
   public:
    Spin() = default;
    Spin(const Spin&) {}  // each wait learns by itself
    Spin& operator=(const Spin&) = delete;

    // Until `ready` says true; false when it is not worth while. pre: it was not ready just now.
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
    static constexpr int kTurns = 20;                    // between two looks at the clock
    static constexpr std::uint64_t kBound = 50'000;      // ns; about what sleeping and being woken costs both sides
    static constexpr std::uint64_t kPreempted = 20'000;  // ns between two such looks: somebody else wants this core

    static bool has_other_cores() {
        static const bool others = os::processors() > 1;
        return others;
    }

    Backoff backoff_{64};
};

// A pause that nobody ends, in which messages gather, instead of a sleep until the next one. Where both sides share a
// core, or other processes compute on all of them, each wake-up takes the core from the producer after a message or a
// few; a moment later many are there for the price of one switch. It is tried where several came since the last wait:
// a message that is an answer is waited for by itself. The same for room that a slow consumer makes.
class Gather {
   public:
    Gather() = default;
    Gather(const Gather&) {}
    Gather& operator=(const Gather&) = delete;

    // Whether there was a pause. `passed`: how many this side has handled so far; `found` says how many have come since
    // the pause began, 0 where the other side waits for this one. It pays if they come during all of it, and not if the
    // other side puts a few at once and then waits for answers: then the pause would be the longest part of the turn.
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
    static constexpr std::uint64_t kHalf = 5'000;       // ns; with the slack of the kernel's timers about 60 us
    static constexpr std::uint64_t kLeast = 1'000'000;  // ns; of a shorter wait a pause would be a large part
    static constexpr std::uint32_t kMany = 8;  // in each half: a wake-up costs both sides about 2 us, a pause 5

    std::atomic<std::uint32_t> passed_{0};  // at the last wait
    Backoff backoff_{1024};
};

}  // namespace shmtensor
