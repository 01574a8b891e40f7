// Locks, semaphores, events and wait queues in shared memory (layout.hpp, "Synchronisation").
//
// Independent of Python. An operation that may block has two parts: an attempt, which makes no system call while the
// word is free, and a bounded wait, which ends after the given time or when a signal arrives; the caller handles
// signals and calls again. Waiters are not served in order: the first thread to find a word free takes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/layout.hpp"
#include "base/wait.hpp"
#include "heap/group.hpp"

namespace shmtensor::sync {

// The calling thread of a client.
struct ClientThread {
    const Group& group;
    std::uint32_t slot;
    std::uint32_t thread;
    std::uint32_t identity() const { return identity_of(slot, group.slot(slot).word.load(std::memory_order_relaxed)); }
};
// Of the calling thread, from 1. A forked child's first thread keeps the number of the thread that forked.
std::uint32_t thread_number();

// Whether a process has died. The short check reads its slot, where the manager marks deaths within milliseconds. The
// thorough check also reads /proc, in case there is no manager, with some system calls.
bool is_gone(const ClientThread& self, std::uint32_t identity, bool thorough);

// Each returns true when the lock is ours. A lock whose holder died is taken over, and then `inherited` is set.
bool try_lock(SharedLock& lock, const ClientThread& self, bool thorough = false);
bool wait_lock(SharedLock& lock, const ClientThread& self, Spin& spin, std::uint64_t nanoseconds);
bool unlock(SharedLock& lock);  // whichever thread holds it; false: none does
bool is_mine(const SharedLock& lock, const ClientThread& self);
// The process that holds the lock, by its id in the manager's PID namespace (own id: in ours). 0: no process, a dead
// one, or one that the manager does not see.
std::uint32_t owner_pid(const SharedLock& lock, const ClientThread& self);

bool try_take(SharedSemaphore& semaphore);
bool wait_take(SharedSemaphore& semaphore, Spin& spin, std::uint64_t nanoseconds);
bool give(SharedSemaphore& semaphore);  // false: the maximum number of units is free
std::uint32_t free_units(const SharedSemaphore& semaphore);
std::uint32_t max_units(const SharedSemaphore& semaphore);  // free ones at most
// The initial number of units: sets it to `units` if it is not set yet. nullopt: not possible, since too many units are
// taken or were given already.
std::optional<std::uint32_t> first_units(SharedSemaphore& semaphore, std::uint32_t units);

bool is_set(const SharedEvent& event);
void set(SharedEvent& event);
void clear(SharedEvent& event);
std::uint32_t times_set(const SharedEvent& event);
// True when it is set, or has been set more than `before` times.
bool wait_set(SharedEvent& event, std::uint32_t before, Spin& spin, std::uint64_t nanoseconds);

// A description of the first broken invariant (layout.hpp, Y1 to Y5), or nullptr. pre: no thread is in a call on it.
const char* check(const SharedLock& lock);
const char* check(const SharedSemaphore& semaphore);
const char* check(const SharedEvent& event);

// A wait queue of at most `capacity` entries. A thread that enters waits until it is notified, or leaves.
class WaitQueue {
   public:
    WaitQueue(SharedWaitQueue& at, std::uint32_t capacity) : at_(at), capacity_(capacity) {}

    struct Place {
        std::uint32_t index = kNone;  // kNone: the wait queue is full
        std::uint64_t entry = 0;
    };
    Place enter(const ClientThread& self);
    bool wait(const Place& place, Spin& spin, std::uint64_t nanoseconds);  // true: we were notified
    bool leave(const Place& place);                                        // true: we had been notified before
    // Notify the living threads that have waited longest, at most `max_waiters`; returns how many.
    std::uint32_t notify(const ClientThread& self, std::uint32_t max_waiters);
    std::uint32_t waiting(const ClientThread& self);  // living ones, by the short check
    // Whether a thread in the queue belongs to a process that has died. Only the next entry gets the thorough check:
    // since every waiting thread calls this, each entry gets it.
    bool has_dead(const ClientThread& self, const Place& place);
    std::uint32_t forget_dead(const ClientThread& self, bool thorough);  // frees their entries; returns how many

    const char* check() const;  // as above

   private:
    SharedWaitQueue::Entry& entry(std::uint32_t index) const {
        return reinterpret_cast<SharedWaitQueue::Entry*>(reinterpret_cast<std::byte*>(&at_) +
                                                         sizeof(SharedWaitQueue))[index];
    }
    std::uint32_t used() const;

    SharedWaitQueue& at_;
    std::uint32_t capacity_;
};

}  // namespace shmtensor::sync
