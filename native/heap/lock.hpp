// A robust process-shared mutex with bounded waits. Whoever takes it from a dead owner is told so.
#pragma once

#include <cstdint>

#include "base/layout.hpp"

namespace shmtensor {

enum class Locked {
    yes,          // held by us; the last holder left in order
    after_death,  // held by us; the last holder died inside: put things right, then call made_consistent()
    busy,         // still held by another when the patience was over
};

void init_lock(Lock& lock);
// Waits at most `patience_ms` (0: only tries). pre: this thread does not hold it. SYNC: lock
Locked take_lock(Lock& lock, std::uint32_t slot, unsigned patience_ms);
void made_consistent(Lock& lock);
void drop_lock(Lock& lock);  // SYNC: lock

// The same lock as the manager takes it, which trusts nothing that lies in shared memory: only tried, and through its
// word alone, since a pthread mutex also keeps pointers and a kind there, which unlocking would follow. pre: this
// thread holds no other lock that way. Leave it by drop_lock_untrusted().
Locked try_lock_untrusted(Lock& lock);
void drop_lock_untrusted(Lock& lock);
// The thread that holds it, by its number in its own PID namespace; 0: none, or it has died. A plain load.
std::uint32_t holder_of(const Lock& lock);
// The slot of the client that holds it; 0: none, or the manager. Plain loads, for reports only.
std::uint32_t holder_slot(const Lock& lock);
// Whether every thread that may hold a lock shows in this process's PID namespace. Only then can a word be told to be
// garbage: it names a thread that does not exist, and it is taken as one that was left by the dead.
void set_threads_visible(bool visible);

}  // namespace shmtensor
