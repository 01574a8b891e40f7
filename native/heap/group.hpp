// The group segment: who is who, and how much memory counts for whom. The manager and every client map it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/layout.hpp"
#include "base/os.hpp"

namespace shmtensor {

class Group {
   public:
    Group() = default;
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    ~Group();

    int create(std::uint64_t group_id);  // makes the memfd; 0 or errno
    int open(int fd);  // duplicates fd; EINVAL when what lies there is no group segment of this version

    int fd() const { return file_.number(); }
    void regain(int fd);  // with a descriptor of the same group, which is duplicated if ours is lost
    std::uint64_t id() const { return header().group_id; }
    GroupHeader& header() const { return *reinterpret_cast<GroupHeader*>(at_); }
    Slot& slot(std::uint32_t index) const { return reinterpret_cast<Slot*>(at_ + kSlotsAt)[index]; }
    Timeline& timeline(std::uint32_t index) const { return reinterpret_cast<Timeline*>(at_ + kTimelinesAt)[index]; }

    // A free slot becomes `state`; kNone when there is none. Any process may claim; the compare-and-swap decides.
    std::uint32_t claim(SlotState state, std::uint32_t pid, std::uint64_t start_time, std::uint32_t parent,
                        std::uint64_t* word = nullptr);
    // The next state of a slot whose word is `expected`; of a client with its process id, if it is known. False when
    // somebody was faster.
    bool move(std::uint32_t index, std::uint64_t expected, SlotState next, std::uint32_t pid = 0);

    // The calling thread becomes the manager, until it ends or calls leave(), which does nothing in another one. 0, or
    // EBUSY: kManagers are stopped; EXDEV: the group is of another PID namespace.
    int lead();
    void leave();
    std::uint32_t epoch() const { return header().epoch.load(std::memory_order_acquire); }  // SYNC: epoch
    bool leads() const { return leads_ != 0 && leads_ == epoch(); }  // false once it was replaced, too
    bool is_foreign() const;       // of another PID namespace, where process ids mean others
    std::uint32_t leader() const;  // the thread that is the manager, by its number in its own PID namespace
    // False when the group has no manager: it was killed, or has left. Another one may follow.
    bool is_led() const;

    // Quotas (layout.hpp, Q1 and Q2). Count `bytes` more for a slot, before they are reserved. nullptr, or the limit
    // that this would pass, and then nothing was counted and `room` is what could have been.
    enum class Checked { group, group_and_client };  // Q1; Q1 and Q2
    const char* charge(std::uint32_t index, std::uint64_t bytes, Checked quotas, std::uint64_t* room);
    void discharge(std::uint32_t index, std::uint64_t bytes);
    std::uint64_t charged() const;  // for all slots
    void set_quotas(std::uint64_t all, std::uint64_t each);
    std::uint64_t max_bytes() const { return header().max_bytes.load(std::memory_order_relaxed); }
    std::uint64_t max_bytes_per_client() const { return header().max_bytes_per_client.load(std::memory_order_relaxed); }

    // Ask every client to give back what it keeps for later; pressed() then has another value.
    void press();
    std::uint32_t pressed() const { return header().pressed.load(std::memory_order_relaxed); }

    // Looks for rings that nobody can reach (reach.hpp). Who opens a ring that is sealed says so: the look is void
    // then. False: the ring has ended. pre: the lock of the ring's metadata.
    bool may_open(std::uint32_t sealed);
    bool has_ended(std::uint32_t sealed) const;
    std::uint32_t begin_look();       // gives its number
    bool decide(std::uint32_t look);  // false: it is void

   private:
    int map(int fd);

    os::Descriptor file_;
    std::byte* at_ = nullptr;
    std::uint32_t hint_ = 1;   // where the next search starts; only a hint
    std::uint32_t leads_ = 0;  // the epoch in which this object's thread is the manager; 0: it is not
    int thread_ = 0;           // that thread
};

}  // namespace shmtensor
