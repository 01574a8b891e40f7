// The group segment: the slots of clients, and how much memory counts for each. The manager and every client map it.
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
    int open(int fd);                    // duplicates fd; EINVAL: not a group segment of this version

    int fd() const { return file_.number(); }
    void regain(int fd);  // with a descriptor of the same group, which is duplicated if ours is lost
    std::uint64_t id() const { return header().group_id; }
    GroupHeader& header() const { return *reinterpret_cast<GroupHeader*>(at_); }
    Slot& slot(std::uint32_t index) const { return reinterpret_cast<Slot*>(at_ + kSlotsAt)[index]; }
    Timeline& timeline(std::uint32_t index) const { return reinterpret_cast<Timeline*>(at_ + kTimelinesAt)[index]; }

    // A free slot becomes `state`; kNone when there is none. Any process may claim; the compare-and-swap decides.
    std::uint32_t claim(SlotState state, std::uint32_t pid, std::uint64_t start_time, std::uint32_t parent,
                        std::uint64_t* word = nullptr);
    // Move a slot whose word is `expected` to its next state; `pid` of a client, if known. False: another process
    // changed the word first.
    bool move(std::uint32_t index, std::uint64_t expected, SlotState next, std::uint32_t pid = 0);

    // The calling thread becomes the manager, until it ends or calls leave(), which does nothing in other threads. 0;
    // EBUSY: all kManagers entries are held; EXDEV: the group is of another PID namespace.
    int lead();
    void leave();
    std::uint32_t epoch() const { return header().epoch.load(std::memory_order_acquire); }  // SYNC: epoch
    bool leads() const { return leads_ != 0 && leads_ == epoch(); }  // false also once it was replaced
    bool is_foreign() const;       // of another PID namespace, whose process ids are not valid here
    std::uint32_t leader() const;  // the thread that is the manager, by its number in its own PID namespace
    // False when the group has no manager: the last one was killed, or has left. Another one may follow.
    bool is_led() const;

    // Quotas (layout.hpp, Q1 and Q2). Count `bytes` more for a slot, before they are reserved. Returns nullptr, or the
    // limit that this would exceed: then nothing was counted, and `room` is the number of bytes still allowed.
    enum class Checked { group, group_and_client };  // Q1; Q1 and Q2
    const char* charge(std::uint32_t index, std::uint64_t bytes, Checked quotas, std::uint64_t* room);
    void discharge(std::uint32_t index, std::uint64_t bytes);
    std::uint64_t charged() const;  // for all slots
    void set_quotas(std::uint64_t all, std::uint64_t each);
    std::uint64_t max_bytes() const { return header().max_bytes.load(std::memory_order_relaxed); }
    std::uint64_t max_bytes_per_client() const { return header().max_bytes_per_client.load(std::memory_order_relaxed); }

    // Ask every client to give back the memory that it keeps for later; this changes pressed().
    void press();
    std::uint32_t pressed() const { return header().pressed.load(std::memory_order_relaxed); }

    // Looks: searches for rings that no process can reach (reach.hpp). A process that opens a ring calls this with the
    // ring's `sealed`, which voids the look that sealed it. False: the ring has ended. pre: the lock of the ring's
    // metadata.
    bool may_open(std::uint32_t sealed);
    bool has_ended(std::uint32_t sealed) const;
    std::uint32_t begin_look();       // returns its number
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
