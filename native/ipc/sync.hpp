// Locks, semaphores, events and wait queues in shared memory (layout.hpp, "Synchronisation").
//
// Knows no Python. What may have to wait comes in two parts: an attempt that makes no system call while the word is
// free, and a slice of waiting that ends at the latest after the time given, or when a signal arrives; the caller looks
// at signals and calls again. Nothing here is a promise of order: whoever comes first when a word is free has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/layout.hpp"
#include "base/wait.hpp"
#include "heap/group.hpp"

namespace shmtensor::sync {

// Who acts: a thread of a client.
struct ClientThread {
    const Group& group;
    std::uint32_t slot;
    std::uint32_t thread;
    std::uint32_t identity() const { return identity_of(slot, group.slot(slot).word.load(std::memory_order_relaxed)); }
};
std::uint32_t thread_number();  // of the calling thread, from 1; a forked child's first thread keeps its parent's

// Whether a process has died. The short look reads its slot: the manager notes deaths there within milliseconds. The
// thorough one asks /proc as well, for when there is no manager; it makes some system calls.
bool is_gone(const ClientThread& self, std::uint32_t identity, bool thorough);

// Each: true when it is ours. A lock whose holder died is taken over, and says so in `inherited`.
bool try_lock(SharedLock& lock, const ClientThread& self, bool thorough = false);
bool wait_lock(SharedLock& lock, const ClientThread& self, Spin& spin, std::uint64_t nanoseconds);
bool unlock(SharedLock& lock);  // whoever holds it; false: nobody does
bool is_mine(const SharedLock& lock, const ClientThread& self);

bool try_take(SharedSemaphore& semaphore);
bool wait_take(SharedSemaphore& semaphore, Spin& spin, std::uint64_t nanoseconds);
bool give(SharedSemaphore& semaphore);  // false: there are as many units as may be
std::uint32_t free_units(const SharedSemaphore& semaphore);
std::uint32_t max_units(const SharedSemaphore& semaphore);  // free ones at most
// The number of units at first: `units` if nobody has set it so far. nullopt: so many cannot be, as too many are taken
// or have been given already.
std::optional<std::uint32_t> first_units(SharedSemaphore& semaphore, std::uint32_t units);

bool is_set(const SharedEvent& event);
void set(SharedEvent& event);
void clear(SharedEvent& event);
std::uint32_t times_set(const SharedEvent& event);
// True when it is set, or was set since it had been `before` times.
bool wait_set(SharedEvent& event, std::uint32_t before, Spin& spin, std::uint64_t nanoseconds);

// First broken invariant (layout.hpp, Y1 to Y5) in words, or nullptr. pre: nobody is in a call on it.
const char* check(const SharedLock& lock);
const char* check(const SharedSemaphore& semaphore);
const char* check(const SharedEvent& event);

// A wait queue of `capacity` entries at most. Whoever enters waits until it is notified, or leaves.
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
    // Notify the `max_waiters` who have waited longest and are alive; gives how many they were.
    std::uint32_t notify(const ClientThread& self, std::uint32_t max_waiters);
    std::uint32_t waiting(const ClientThread& self);  // and alive, by the short look
    // Whether somebody died who had entered. Looks thoroughly at the next one only: with everybody in the wait queue
    // asking, each is looked at.
    bool has_dead(const ClientThread& self, const Place& place);
    std::uint32_t forget_dead(const ClientThread& self, bool thorough);  // their entries end; gives how many they were

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
