// Waiting for a word in shared memory: turns of spinning, and how long a sleep may be.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/os.hpp"

namespace shmtensor {

// ns between two looks of a thread that sleeps: whoever was woken, or should have woken it, may have been killed.
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

// Whether to spin before sleeping, as it has paid lately: after each failure twice as many waits go without. Private to
// one process; races only cost time.
class Spin {
   public:
    Spin() = default;
    Spin(const Spin&) {}  // each wait learns by itself
    Spin& operator=(const Spin&) = delete;

    // Until `ready` says true; false when it is not worth while. pre: it was not ready just now.
    template <class Ready>
    bool until(Ready&& ready, std::uint64_t timeout_ns) {
        const std::uint32_t unspun = unspun_.load(std::memory_order_relaxed);
        if (unspun > 0) {
            unspun_.store(unspun - 1, std::memory_order_relaxed);
            return false;
        }
        if (!has_other_cores() || timeout_ns == 0) return false;
        const std::uint64_t start = os::monotonic_ns();
        std::uint64_t now = start;
        bool preempted = false;
        do {
            if (spin_for(kTurns, ready)) {
                penalty_.store(0, std::memory_order_relaxed);
                return true;
            }
            const std::uint64_t then = now;
            now = os::monotonic_ns();
            preempted = now - then > kPreempted;
        } while (!preempted && now - start < std::min(kBound, timeout_ns));
        const std::uint32_t penalty = std::min(penalty_.load(std::memory_order_relaxed) * 2 + 1, kMaxPenalty);
        penalty_.store(penalty, std::memory_order_relaxed);
        unspun_.store(penalty, std::memory_order_relaxed);
        return false;
    }

   private:
    static constexpr int kTurns = 20;                    // between two looks at the clock
    static constexpr std::uint64_t kBound = 50'000;      // ns; about what sleeping and being woken costs both sides
    static constexpr std::uint64_t kPreempted = 20'000;  // ns between two such looks: somebody else wants this core
    static constexpr std::uint32_t kMaxPenalty = 64;     // waits

    static bool has_other_cores() {
        static const bool others = os::processors() > 1;
        return others;
    }

    std::atomic<std::uint32_t> unspun_{0}, penalty_{0};  // waits to go without, and how many after the last failure
};

}  // namespace shmtensor
