#include "heap/lock.hpp"

#include <linux/futex.h>

#include <algorithm>
#include <cerrno>

#include "base/failpoint.hpp"
#include "base/os.hpp"
#include "base/wait.hpp"

namespace shmtensor {
namespace {

constexpr int kSpins = 200;  // about a microsecond: twenty times as long as the metadata is usually locked

// The word of a robust mutex, which glibc and the kernel both use: thread | FUTEX_WAITERS | FUTEX_OWNER_DIED.
std::atomic<std::uint32_t>& word_of(Lock& lock) {
    return reinterpret_cast<std::atomic<std::uint32_t>&>(lock.mutex.__data.__lock);
}

constexpr bool is_taken(std::uint32_t word) {
    return (word & FUTEX_TID_MASK) != 0 && (word & FUTEX_OWNER_DIED) == 0;
}

// Does not call pthread on a mutex that is held. If a thread dies inside a pthread mutex function, the kernel marks the
// holder as dead if both have the same thread number, as is possible in two PID namespaces.
int try_lock(Lock& lock) {
    return is_taken(word_of(lock).load(std::memory_order_relaxed)) ? EBUSY : ::pthread_mutex_trylock(&lock.mutex);
}

// As pthread_mutex_timedlock, with the same precaution.
int wait_lock(Lock& lock, unsigned patience_ms) {
    std::atomic<std::uint32_t>& word = word_of(lock);
    const std::uint64_t until = os::monotonic_ns() + std::uint64_t{patience_ms} * 1'000'000;
    for (;;) {
        if (const int result = try_lock(lock); result != EBUSY) {
            // Other threads may still sleep, since only one was woken: our unlock must see them.
            if (result == 0 || result == EOWNERDEAD) word.fetch_or(FUTEX_WAITERS);
            return result;
        }
        const std::uint64_t now = os::monotonic_ns();
        if (now >= until) return EBUSY;
        std::uint32_t seen = word.load();
        if (!is_taken(seen)) continue;
        if (!(seen & FUTEX_WAITERS) && !word.compare_exchange_strong(seen, seen | FUTEX_WAITERS)) continue;
        os::futex_wait(word, seen | FUTEX_WAITERS, std::min(until - now, kLook));
    }
}

std::atomic<bool> threads_visible{false};

robust_list_head* own_list() {
    thread_local robust_list_head* const head = os::robust_list();
    return head;
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
    int result = try_lock(lock);
    if (result == EBUSY) spin_for(kSpins, [&] { return (result = try_lock(lock)) != EBUSY; });
    if (result == EBUSY && patience_ms > 0) result = wait_lock(lock, patience_ms);
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

Locked try_lock_untrusted(Lock& lock) {
    std::atomic<std::uint32_t>& word = word_of(lock);
    robust_list_head* const list = own_list();
    if (!list) return Locked::busy;  // the kernel would not release this thread's locks if it were killed
    std::uint32_t seen = word.load(std::memory_order_relaxed);
    bool left = (seen & FUTEX_OWNER_DIED) != 0;
    if (is_taken(seen)) {
        // The kernel marks a thread's locks before the thread is gone. So a number of no thread was never a holder.
        if (!threads_visible.load(std::memory_order_relaxed)) return Locked::busy;
        if (os::thread_exists(static_cast<int>(seen & FUTEX_TID_MASK))) return Locked::busy;
        left = true;
    }
    // If this process is killed from here on, the kernel checks this word and marks it, as it does for glibc.
    list->list_op_pending = reinterpret_cast<robust_list*>(reinterpret_cast<std::byte*>(&word) - list->futex_offset);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const auto self = static_cast<std::uint32_t>(os::thread_id());
    if (!word.compare_exchange_strong(seen, self | (seen & FUTEX_WAITERS))) {  // SYNC: lock
        list->list_op_pending = nullptr;
        return Locked::busy;
    }
    lock.holder.store(0, std::memory_order_relaxed);
    return left ? Locked::after_death : Locked::yes;
}

void drop_lock_untrusted(Lock& lock) {
    std::atomic<std::uint32_t>& word = word_of(lock);
    if (word.exchange(0) & FUTEX_WAITERS) os::futex_wake(word, 1);  // SYNC: lock
    std::atomic_signal_fence(std::memory_order_seq_cst);
    own_list()->list_op_pending = nullptr;
}

std::uint32_t holder_of(const Lock& lock) {
    // When the holder of a robust mutex ends, the kernel clears its id in the word and sets FUTEX_OWNER_DIED.
    const auto seen = static_cast<std::uint32_t>(__atomic_load_n(&lock.mutex.__data.__lock, __ATOMIC_RELAXED));
    return seen & FUTEX_OWNER_DIED ? 0 : seen & FUTEX_TID_MASK;
}

std::uint32_t holder_slot(const Lock& lock) {
    return holder_of(lock) ? lock.holder.load(std::memory_order_relaxed) : 0;
}

void set_threads_visible(bool visible) {
    threads_visible.store(visible, std::memory_order_relaxed);
}

}  // namespace shmtensor
