#include "ipc/sync.hpp"

#include <algorithm>
#include <atomic>
#include <climits>
#include <vector>

#include "base/failpoint.hpp"
#include "base/os.hpp"

namespace shmtensor::sync {
namespace {

// [SYNC: handover] Every store that frees a word, sets an event or notifies a waiter is a release. The compare-and-swap
// that takes the word, and the load that sees the event or the notification, is the acquire. All accesses without an
// explicit order are sequentially consistent.

constexpr std::uint64_t kNames = 0xfffffffe;  // the bits of the identity in a lock's word

// True: the word has changed, or this thread was woken. False: the time is over, or a signal arrived.
template <class Word>
bool sleep_on(const std::atomic<Word>& word, std::uint32_t expected, std::uint64_t until) {
    const std::uint64_t now = os::monotonic_ns();
    if (now >= until) return false;
    const int result = os::futex_wait(word, expected, std::min(until - now, kLook));
    return result == 0 || result == EAGAIN;
}

std::uint32_t identity_in(std::uint64_t word) {
    return static_cast<std::uint32_t>(word & kNames);
}

// Take the lock if its word is still `seen`. pre: `seen` names no holder or a dead one.
bool seize(SharedLock& lock, std::uint64_t seen, const ClientThread& self, std::uint32_t asleep) {
    const std::uint64_t mine = std::uint64_t{self.thread} << 32 | self.identity() | asleep;
    if (!lock.word.compare_exchange_strong(seen, mine)) return false;  // SYNC: handover
    SHMTENSOR_POINT("sync.lock.seized");
    lock.inherited.store(identity_in(seen) != 0, std::memory_order_relaxed);
    lock.depth.store(1, std::memory_order_relaxed);
    SHMTENSOR_POINT("sync.lock.noted");
    return true;
}

constexpr std::uint32_t ticket_of(std::uint64_t entry) {
    return static_cast<std::uint32_t>(entry) >> 2;
}
constexpr bool has_mark(std::uint64_t entry, Mark mark) {
    return (entry & 3) == static_cast<std::uint64_t>(mark);
}
constexpr std::uint64_t with_mark(std::uint64_t entry, Mark mark) {
    return (entry & ~std::uint64_t{3}) | static_cast<std::uint64_t>(mark);
}
constexpr std::uint32_t who(std::uint64_t entry) {
    return static_cast<std::uint32_t>(entry >> 32);
}
constexpr bool is_older(std::uint64_t one, std::uint64_t other) {  // tickets wrap at 30 bits
    return static_cast<std::int32_t>((ticket_of(one) - ticket_of(other)) << 2) < 0;
}

}  // namespace

std::uint32_t thread_number() {
    static std::atomic<std::uint32_t> given{0};
    static thread_local const std::uint32_t number = ++given;
    return number;
}

bool is_gone(const ClientThread& self, std::uint32_t identity, bool thorough) {
    const std::uint32_t index = slot_of(identity);
    const Slot& slot = self.group.slot(index);
    const std::uint64_t word = slot.word.load();
    const SlotState state = state_of(word);
    if ((state != SlotState::client && state != SlotState::embryo) || identity_of(index, word) != identity) return true;
    if (!thorough || index == self.slot) return false;
    // The pids that the manager wrote are valid in our PID namespace if our own is. The pid of an embryo is not known
    // yet, and a pid without a start time is being written.
    const auto pid = static_cast<int>(slot.pid.load());
    const std::uint64_t started = slot.start_time.load();
    const Slot& own = self.group.slot(self.slot);
    const int me = os::process_id();
    std::uint64_t own_start = 0;
    if (pid == 0 || started == 0 || static_cast<int>(own.pid.load()) != me) return false;
    if (os::start_time(me, &own_start) != 0 || own_start != own.start_time.load()) return false;
    return os::has_ended(pid, started) || slot.word.load() != word;
}

// --------------------------------------------------------------------------------------------------------------- locks

bool try_lock(SharedLock& lock, const ClientThread& self, bool thorough) {
    const std::uint64_t seen = lock.word.load(std::memory_order_relaxed);
    if (seen == 0) [[likely]]
        return seize(lock, seen, self, 0);
    return is_gone(self, identity_in(seen), thorough) && seize(lock, seen, self, seen & kAsleep);
}

bool wait_lock(SharedLock& lock, const ClientThread& self, Spin& spin, std::uint64_t nanoseconds) {
    const auto free = [&] { return lock.word.load(std::memory_order_relaxed) == 0 && seize(lock, 0, self, 0); };
    if (free() || spin.until(free, nanoseconds)) return true;
    const std::uint64_t until = os::monotonic_ns() + nanoseconds;
    for (bool in_time = true;;) {
        std::uint64_t seen = lock.word.load(std::memory_order_relaxed);
        // Others may still sleep, and unlocking cleared the bit: so take the lock with the bit set.
        if (seen == 0 || is_gone(self, identity_in(seen), !in_time)) {
            if (seize(lock, seen, self, kAsleep)) return true;
            continue;
        }
        if (!in_time) return false;
        if (!(seen & kAsleep)) {
            if (!lock.word.compare_exchange_strong(seen, seen | kAsleep)) continue;
            SHMTENSOR_POINT("sync.lock.asleep");
        }
        in_time = sleep_on(lock.word, static_cast<std::uint32_t>(seen | kAsleep), until);
        SHMTENSOR_POINT("sync.lock.awake");
    }
}

bool unlock(SharedLock& lock) {
    lock.inherited.store(0, std::memory_order_relaxed);
    const std::uint64_t seen = lock.word.exchange(0);  // SYNC: handover
    SHMTENSOR_POINT("sync.unlock.freed");
    if (seen & kAsleep) os::futex_wake(lock.word, 1);
    return seen != 0;
}

bool is_mine(const SharedLock& lock, const ClientThread& self) {
    const std::uint64_t mine = std::uint64_t{self.thread} << 32 | self.identity();
    return (lock.word.load(std::memory_order_relaxed) & ~std::uint64_t{kAsleep}) == mine;
}

std::uint32_t owner_pid(const SharedLock& lock, const ClientThread& self) {
    const std::uint32_t identity = identity_in(lock.word.load());
    const std::uint32_t index = slot_of(identity);
    if (index == 0) return 0;
    if (index == self.slot) return static_cast<std::uint32_t>(os::process_id());
    const Slot& slot = self.group.slot(index);
    const std::uint64_t word = slot.word.load();
    std::uint32_t pid = slot.pid.load();
    if (pid == 0 && state_of(word) == SlotState::client) pid = parent_of(word);
    return is_gone(self, identity, true) ? 0 : pid;  // last: until then the slot may have passed to another client
}

// ---------------------------------------------------------------------------------------------------------- semaphores

namespace {

std::uint32_t free_in(std::uint64_t word) {
    return static_cast<std::uint32_t>(word) >> 1;
}

std::uint32_t max_in(const SharedSemaphore& semaphore, std::uint64_t word) {
    if (semaphore.bounded == 0) return kMaxUnits;
    const auto given = static_cast<std::uint32_t>(word >> 32);
    return given != 0 ? given - 1 : 1;
}

}  // namespace

bool try_take(SharedSemaphore& semaphore) {
    std::uint64_t seen = semaphore.word.load(std::memory_order_relaxed);
    while (free_in(seen) != 0)
        if (semaphore.word.compare_exchange_weak(seen, seen - 2)) return true;  // SYNC: handover
    return false;
}

bool wait_take(SharedSemaphore& semaphore, Spin& spin, std::uint64_t nanoseconds) {
    const auto take = [&] { return try_take(semaphore); };
    if (take() || spin.until(take, nanoseconds)) return true;
    const std::uint64_t until = os::monotonic_ns() + nanoseconds;
    for (bool in_time = true;;) {
        std::uint64_t seen = semaphore.word.load(std::memory_order_relaxed);
        if (free_in(seen) != 0) {
            // Others may still sleep, and giving the unit cleared the bit.
            if (!semaphore.word.compare_exchange_strong(seen, (seen - 2) | kAsleep)) continue;  // SYNC: handover
            SHMTENSOR_POINT("sync.semaphore.taken");
            // Of several units given in a row, only the first wakes a sleeper: wake the next one.
            if (free_in(seen - 2) != 0) os::futex_wake(semaphore.word, 1);
            return true;
        }
        if (!in_time) return false;
        if (!(seen & kAsleep)) {
            if (!semaphore.word.compare_exchange_strong(seen, seen | kAsleep)) continue;
            SHMTENSOR_POINT("sync.semaphore.asleep");
        }
        in_time = sleep_on(semaphore.word, kAsleep, until);
        SHMTENSOR_POINT("sync.semaphore.awake");
    }
}

bool give(SharedSemaphore& semaphore) {
    std::uint64_t seen = semaphore.word.load(std::memory_order_relaxed);
    do {
        if (free_in(seen) >= max_in(semaphore, seen)) return false;
    } while (!semaphore.word.compare_exchange_weak(seen, (seen & ~std::uint64_t{kAsleep}) + 2));  // SYNC: handover
    SHMTENSOR_POINT("sync.semaphore.given");
    if (seen & kAsleep) os::futex_wake(semaphore.word, 1);
    return true;
}

std::uint32_t free_units(const SharedSemaphore& semaphore) {
    return free_in(semaphore.word.load());
}

std::uint32_t max_units(const SharedSemaphore& semaphore) {
    return max_in(semaphore, semaphore.word.load());
}

std::optional<std::uint32_t> first_units(SharedSemaphore& semaphore, std::uint32_t units) {
    std::uint64_t seen = semaphore.word.load(std::memory_order_relaxed);
    std::uint64_t set;
    do {
        if (seen >> 32 != 0) return static_cast<std::uint32_t>(seen >> 32) - 1;
        // So far the initial number was one.
        const std::uint64_t free = std::uint64_t{free_in(seen)} + units;
        if (free == 0 || free - 1 > (semaphore.bounded != 0 ? units : kMaxUnits)) return std::nullopt;
        set = (std::uint64_t{units} + 1) << 32 | (free - 1) << 1;
    } while (!semaphore.word.compare_exchange_weak(seen, set));  // SYNC: handover
    if (seen & kAsleep) os::futex_wake(semaphore.word, 1);
    return units;
}

// -------------------------------------------------------------------------------------------------------------- events

constexpr std::uint32_t kSet = 2;

bool is_set(const SharedEvent& event) {
    return event.word.load() & kSet;
}

std::uint32_t times_set(const SharedEvent& event) {
    return event.word.load() >> 2;
}

void set(SharedEvent& event) {
    std::uint32_t seen = event.word.load();
    do {
        if (seen & kSet) return;
    } while (!event.word.compare_exchange_weak(seen, ((seen >> 2) + 1) << 2 | kSet));  // SYNC: handover
    SHMTENSOR_POINT("sync.event.set");
    if (seen & kAsleep) os::futex_wake(event.word, INT_MAX);
}

void clear(SharedEvent& event) {
    event.word.fetch_and(~kSet);
}

bool wait_set(SharedEvent& event, std::uint32_t before, Spin& spin, std::uint64_t nanoseconds) {
    const auto happened = [&] {
        const std::uint32_t seen = event.word.load();
        return (seen & kSet) || seen >> 2 != before;
    };
    if (happened() || spin.until(happened, nanoseconds)) return true;
    const std::uint64_t until = os::monotonic_ns() + nanoseconds;
    for (bool in_time = true;;) {
        std::uint32_t seen = event.word.load();
        if ((seen & kSet) || seen >> 2 != before) return true;
        if (!in_time) return false;
        if (!(seen & kAsleep)) {
            if (!event.word.compare_exchange_strong(seen, seen | kAsleep)) continue;
            SHMTENSOR_POINT("sync.event.asleep");
        }
        in_time = sleep_on(event.word, seen | kAsleep, until);
    }
}

// --------------------------------------------------------------------------------------------------------- wait queues

std::uint32_t WaitQueue::used() const {
    return std::min(at_.high.load(), capacity_);
}

WaitQueue::Place WaitQueue::enter(const ClientThread& self) {
    const std::uint32_t ticket = at_.tickets.fetch_add(1, std::memory_order_relaxed) & 0x3fffffff;
    const std::uint64_t mine =
        with_mark(std::uint64_t{self.identity()} << 32 | std::uint64_t{ticket} << 2, Mark::waiting);
    for (const bool thorough : {false, true})
        for (std::uint32_t i = 0; i < capacity_; ++i) {
            std::uint64_t seen = entry(i).load(std::memory_order_relaxed);
            if (seen != 0 && !is_gone(self, who(seen), thorough)) continue;
            std::uint32_t high = at_.high.load();
            while (high <= i && !at_.high.compare_exchange_weak(high, i + 1)) {
            }
            SHMTENSOR_POINT("sync.wait_queue.raised");
            if (!entry(i).compare_exchange_strong(seen, mine)) continue;
            SHMTENSOR_POINT("sync.wait_queue.entered");
            return {i, mine};
        }
    return {};
}

bool WaitQueue::wait(const Place& place, Spin& spin, std::uint64_t nanoseconds) {
    const auto notified = [&] { return entry(place.index).load() != place.entry; };  // SYNC: handover
    if (notified() || spin.until(notified, nanoseconds)) return true;
    const std::uint64_t until = os::monotonic_ns() + nanoseconds;
    while (!notified())
        if (!sleep_on(entry(place.index), static_cast<std::uint32_t>(place.entry), until)) return notified();
    SHMTENSOR_POINT("sync.wait_queue.awake");
    return true;
}

bool WaitQueue::leave(const Place& place) {
    std::uint64_t seen = place.entry;
    if (entry(place.index).compare_exchange_strong(seen, 0)) return false;
    seen = with_mark(place.entry, Mark::notified);
    SHMTENSOR_POINT("sync.wait_queue.leaving");
    entry(place.index).compare_exchange_strong(seen, 0);
    return true;
}

std::uint32_t WaitQueue::notify(const ClientThread& self, std::uint32_t max_waiters) {
    std::uint32_t woken = 0;
    while (woken < max_waiters) {
        std::uint32_t oldest = kNone;
        std::uint64_t found = 0;
        for (std::uint32_t i = 0; i < used(); ++i) {
            std::uint64_t seen = entry(i).load();
            if (!has_mark(seen, Mark::waiting)) continue;
            if (is_gone(self, who(seen), false)) {
                entry(i).compare_exchange_strong(seen, 0);
            } else if (oldest == kNone || is_older(seen, found)) {
                oldest = i;
                found = seen;
            }
        }
        if (oldest == kNone) break;
        std::uint64_t marked = with_mark(found, Mark::notified);
        if (!entry(oldest).compare_exchange_strong(found, marked)) continue;  // it left just now; SYNC: handover
        SHMTENSOR_POINT("sync.wait_queue.notified");
        // If no thread was woken, the waiter is about to read the word, or was killed in its sleep, and the manager may
        // not have marked its slot yet.
        if (os::futex_wake(entry(oldest), 1) == 0 && is_gone(self, who(found), true)) {
            entry(oldest).compare_exchange_strong(marked, 0);
            continue;
        }
        ++woken;
    }
    return woken;
}

std::uint32_t WaitQueue::waiting(const ClientThread& self) {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < used(); ++i) {
        const std::uint64_t seen = entry(i).load();
        count += has_mark(seen, Mark::waiting) && !is_gone(self, who(seen), false);
    }
    return count;
}

bool WaitQueue::has_dead(const ClientThread& self, const Place& place) {
    bool next = true;
    for (std::uint32_t n = used(), i = 1; i < n; ++i) {
        const std::uint64_t seen = entry((place.index + i) % n).load();
        if (seen == 0) continue;
        if (is_gone(self, who(seen), next)) return true;
        next = false;
    }
    return false;
}

std::uint32_t WaitQueue::forget_dead(const ClientThread& self, bool thorough) {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < used(); ++i) {
        std::uint64_t seen = entry(i).load();
        if (seen != 0 && is_gone(self, who(seen), thorough)) count += entry(i).compare_exchange_strong(seen, 0);
    }
    return count;
}

// ---------------------------------------------------------------------------------------------------------- inspection

const char* check(const SharedLock& lock) {
    const std::uint64_t word = lock.word.load();
    if (word == 0) return lock.inherited.load() == 0 ? nullptr : "Y5: a free lock is marked inherited";
    return slot_of(identity_in(word)) != 0 && word >> 32 != 0 ? nullptr : "Y1: a lock is held by no thread of a client";
}

const char* check(const SharedSemaphore& semaphore) {
    const std::uint64_t word = semaphore.word.load();
    return free_in(word) <= max_in(semaphore, word) ? nullptr : "Y2: more units are free than exist";
}

const char* check(const SharedEvent& event) {
    const std::uint32_t word = event.word.load();
    return (word & kSet) && (word & kAsleep) ? "Y5: an event that is set has sleepers" : nullptr;
}

const char* WaitQueue::check() const {
    if (at_.high.load() > capacity_) return "Y3: the wait queue is longer than its block";
    std::vector<std::uint32_t> tickets;
    for (std::uint32_t i = 0; i < capacity_; ++i) {
        const std::uint64_t seen = entry(i).load();
        if (seen == 0) continue;
        if (i >= used()) return "Y3: an entry above `high` is in use";
        if (slot_of(who(seen)) == 0) return "Y3: an entry names no client";
        if (has_mark(seen, Mark::waiting)) {
            tickets.push_back(ticket_of(seen));
        } else if (!has_mark(seen, Mark::notified)) {
            return "Y3: an entry has no mark";
        }
    }
    std::sort(tickets.begin(), tickets.end());
    return std::adjacent_find(tickets.begin(), tickets.end()) == tickets.end() ? nullptr : "Y3: two share a ticket";
}

}  // namespace shmtensor::sync
