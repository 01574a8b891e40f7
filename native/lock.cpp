#include "lock.hpp"

#include <cerrno>
#include <ctime>

#include "failpoint.hpp"
#include "relax.hpp"

namespace shmtensor {
namespace {

constexpr int kSpins = 200;  // about a microsecond: twenty times what the books are held for

timespec after(unsigned milliseconds) {
    timespec at{};
    ::clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += static_cast<long>(milliseconds % 1000) * 1'000'000;
    at.tv_sec += milliseconds / 1000 + at.tv_nsec / 1'000'000'000;
    at.tv_nsec %= 1'000'000'000;
    return at;
}

}  // namespace

void init_lock(Lock& lock) {
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutex_init(&lock.mutex, &attributes);
    ::pthread_mutexattr_destroy(&attributes);
    lock.holder.store(0, std::memory_order_relaxed);
}

Locked take_lock(Lock& lock, std::uint32_t slot, unsigned patience_ms) {
    int result = ::pthread_mutex_trylock(&lock.mutex);
    for (int i = 0; result == EBUSY && i < kSpins; ++i) {
        relax();
        result = ::pthread_mutex_trylock(&lock.mutex);
    }
    if (result == EBUSY && patience_ms > 0) {
        const timespec until = after(patience_ms);
        result = ::pthread_mutex_timedlock(&lock.mutex, &until);
    }
    if (result != 0 && result != EOWNERDEAD) return Locked::busy;
    lock.holder.store(slot, std::memory_order_relaxed);
    return result == 0 ? Locked::yes : Locked::after_death;
}

void made_consistent(Lock& lock) {
    ::pthread_mutex_consistent(&lock.mutex);
}

void drop_lock(Lock& lock) {
    lock.holder.store(0, std::memory_order_relaxed);
    ::pthread_mutex_unlock(&lock.mutex);
}

}  // namespace shmtensor
