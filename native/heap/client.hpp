// This process in one group: the segments it has mapped, the blocks it holds, the memory it owns, and what a fork does
// to them.
//
// Locks: the private lock guards everything in this process; it is taken first, and the lock of one segment's metadata
// after it. The lock of a ring is taken without it. Under either lock, no Python code runs, no request is sent to the
// manager, and no wait is unbounded. A call that would have to wait returns `busy` (or `slow`, when it needs system
// calls); the caller repeats it with patience, without the GIL.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "heap/group.hpp"
#include "heap/heap.hpp"
#include "heap/segment.hpp"
#include "heap/segment_metadata.hpp"

namespace shmtensor {

class Client;

// BlockName identifies a block to another process. A Ticket is a hold that the receiver turns into its own.
struct BlockName {
    std::uint64_t segment;
    std::uint32_t index, generation;
};
struct Ticket {
    std::uint32_t hold, mark;
};

// Given to a child that is about to start: a slot, and the socket that it will use, which the caller closes.
struct EmbryoSlot {
    std::uint32_t slot = kNone, generation = 0;
    int socket = -1;
};

// One hold of this process on one block. allocate, attach and redeem make it or add a user; it ends when the last user
// releases it.
struct Block {
    Client* client;
    Segment* segment;
    std::uint32_t index;
    std::uint32_t generation;
    std::uint32_t hold;         // entry in the segment's metadata
    std::uint32_t embryo_hold;  // the child's entry while a fork is under way
    std::uint64_t offset;       // bytes into the payload
    std::uint64_t bytes;
    std::uint32_t users = 1;    // under the private lock
    void* wrapper = nullptr;    // the Python object over it, if any; under the GIL
    std::uint64_t message = 0;  // the message being encoded that last named it, and its number there; under the GIL
    std::uint32_t number = 0;
    std::uint32_t lent = 0, frozen = 0;  // live views of these kinds; under the GIL
    std::byte* data() const { return segment->payload + offset; }
    BlockName name() const { return {segment->id, index, generation}; }
};

enum class Status {
    ok,
    busy,          // another process or thread holds a lock: repeat with patience
    slow,          // needs system calls: repeat with patience
    need_segment,  // no owned segment has room
    need_mapping,  // the segment is not mapped here
    gone,          // no live block of this generation
    refused,       // memory was refused; see refusal()
    full,          // a table of the segment is full
    lost,          // the file of a segment was truncated
    not_held,      // cloned without the fork hooks, or the fork could not be registered
};

class Client {
   public:
    // `group` must outlive the client. Takes ownership of `connection`, to the manager of `epoch`.
    Client(Group& group, std::uint32_t slot, int connection, std::uint32_t epoch = 0);
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // Takes ownership of both descriptors, whatever the result. 0 or errno (EINVAL: the files do not match the
    // arguments). If the segment is mapped already, they replace lost descriptors.
    int add_segment(std::uint64_t id, int control, int payload, std::uint64_t payload_bytes, SegmentKind kind,
                    bool owned);
    // The same for a segment whose payload is device memory that the caller has mapped at `address`. 0; errno; EEXIST:
    // it was mapped already, and keeps that address.
    int add_device_segment(std::uint64_t id, int control, int payload, std::uint64_t payload_bytes, SegmentKind kind,
                           bool owned, int device, std::uint64_t address);
    // The numbers of all mapped segments of devices, and duplicates of their descriptors, which the caller closes.
    std::vector<std::pair<std::uint64_t, int>> device_segments();
    // Disown the segments of a device of which no block is used, so that the manager may take them back. Their numbers.
    std::vector<std::uint64_t> give_up_unused(int device);
    // The former mappings of forgotten segments of devices, as (address, bytes), for the driver to unmap.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> take_unmapped();

    // For each of these, patience 0 means no wait and no system call. The block, new or already held here, gets one
    // more user.
    Status allocate(std::uint64_t bytes, unsigned patience_ms, Block** block, int device = kHost);
    Status attach(const BlockName& name, unsigned patience_ms, Block** block);
    Status ticket(const Block& block, std::uint32_t owner, unsigned patience_ms, Ticket* ticket);
    Status redeem(const BlockName& name, const Ticket& ticket, unsigned patience_ms, Block** block);
    // Make the group hold the block, so that it lives without processes (kept), or end that hold. Idempotent.
    Status keep(const Block& block, bool kept, unsigned patience_ms);
    void release(Block* block);  // removes a user; waits at most kMoment for another process
    void finish_releases();      // those that found the metadata locked; one that stays locked costs one kMoment
    void share(Block& block);    // adds a user
    // Give a block a new generation if it has no other user, here or in another process. False: it has, or the metadata
    // is busy.
    bool renew(Block& block);

    // A hold of ours for a message that is being put: the ring takes it over, or drop() ends it.
    Status lend(const Block& block, std::uint32_t mark, unsigned patience_ms, MessageHold* hold);
    void drop(const MessageHold& hold);
    // The block of a message's hold that has become ours; adds a user. `gone` when it names no such block.
    Status receive(const MessageHold& hold, Block** block);
    std::uint32_t new_mark() { return next_mark_.fetch_add(1, std::memory_order_relaxed); }
    SegmentMetadata* find(std::uint64_t segment);                       // for a SegmentLookup
    Status reserve_holds(std::uint64_t segment, unsigned patience_ms);  // room for more entries in its metadata
    Status trim(std::uint64_t* bytes);
    // After memory was refused: ask the other clients to give back memory that they keep for later, if that can help.
    void press_others(const Refusal& refusal);
    // A read-only mapping of a block, valid as long as the block has a user. 0 or errno.
    int readonly_of(const Block& block, std::byte** at);

    // The held block that contains all of [data, data + bytes), of any client of this process; adds a user. nullptr:
    // there is none. `readonly`: the data is in a read-only mapping. Searches all held blocks of that segment.
    static Status locate(const std::byte* data, std::uint64_t bytes, unsigned patience_ms, Block** block,
                         bool* readonly);

    // For a child about to be started. 0 or errno. It is not an error if the manager cannot be told: the child will
    // find the next one.
    int embryo(EmbryoSlot* made);

    // Use another connection, to the manager of `epoch`. `close`: close the old descriptor, which is still ours.
    void reconnect(int connection, std::uint32_t epoch, bool close);
    // False if the group has no manager, or another one than we are connected to.
    bool is_led() const { return epoch_ == group_.epoch() && group_.is_led(); }

    // The segments with a lost descriptor, whose number stands for another file: this process cannot hand them over.
    std::vector<std::uint64_t> lost();

    struct Stats {
        std::uint64_t mapped, owned, blocks, bytes, reserved, free;
    };
    Stats stats();                   // of host memory
    Stats device_stats(int device);  // of the memory of one device
    const char* check();
    bool close();  // false while blocks are held

    Group& group() const { return group_; }
    std::uint32_t slot() const { return slot_; }
    std::uint32_t generation() const { return generation_; }  // of the slot, when it became ours
    int connection() const { return connection_.number(); }
    // False in a process that was cloned without the fork hooks, or whose fork could not be registered, and once
    // closed.
    bool may_touch() const { return alive() && held_; }
    // In a child that may not touch shared memory: the errno of the fork's registration; 0: it was registered.
    int fork_error() const { return fork_.error; }
    static Refusal refusal() { return refusal_; }  // of this thread's last call
    void* wrapper = nullptr;                       // the Python object over it; set once

    // pthread_atfork
    void before_fork();
    void after_fork_in_parent();
    void after_fork_in_child();

   private:
    bool alive() const { return *intact_ != 0; }
    Status enter(std::unique_lock<std::mutex>& guard, unsigned patience_ms);
    Segment* known(std::uint64_t id);
    Block* holder_of(const std::byte* data, std::uint64_t bytes, bool* readonly) const;
    int make_embryo(std::uint32_t* slot, std::uint64_t* word, os::Descriptor* socket);
    Status open_block(const BlockName& name, const Ticket* ticket, unsigned patience_ms, Block** block);
    Status more_holds(Segment& s, unsigned patience_ms);
    Status add_hold(const Block& block, std::uint32_t owner, HoldKind kind, std::uint32_t mark, unsigned patience_ms,
                    std::uint32_t* hold);
    void note(Block* block);
    bool end_hold(Segment& s, std::uint32_t hold, unsigned patience_ms);
    void finish_deferred(unsigned patience_ms = 0);
    std::uint64_t give_back();
    void yield_to_others();
    void ask_others(const Refusal& refusal);
    void unmap_retired();
    void unmap_unless_awaited(Segment& s);
    bool hold_for_embryo(Segment& s);
    Heap& heap_of(int device);
    int enlist(std::unique_ptr<Segment> segment, bool owned);
    void take_returned(Heap& heap, unsigned patience_ms);
    void note_unmapped(const Segment& s);
    void prepare_fork();
    bool become(std::uint32_t slot, std::uint64_t word);

    Group& group_;
    std::uint32_t slot_;
    std::uint32_t generation_;
    os::Descriptor connection_;
    std::atomic<std::uint32_t> epoch_;  // of the manager at the other end; 0: there is none
    std::byte* page_ = nullptr;
    volatile unsigned char* intact_;  // on a page that is wiped in a child cloned without the fork hooks
    std::mutex private_;
    // The table of segments changes under both this and the private lock, so that either is enough for a lookup. This
    // one is held for a lookup only, so that it may be taken under the lock of a ring.
    std::mutex table_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Segment>> segments_;
    Segment* last_ = nullptr;                            // the segment of the last lookup
    std::map<const std::byte*, Segment*> mapped_;        // by the address of the payload, and of its read-only mapping
    Heap heap_;                                          // of host memory
    std::map<int, std::unique_ptr<Heap>> device_heaps_;  // by device
    std::vector<std::pair<std::uint64_t, std::uint64_t>> unmapped_;  // see take_unmapped()
    static thread_local Refusal refusal_;
    std::vector<std::pair<Segment*, std::uint32_t>> deferred_;  // holds to end as soon as the metadata can be locked
    std::vector<std::uint32_t> home_;                           // kept for its capacity
    std::uint32_t pressed_;                                     // Group::pressed() when we last gave back
    std::atomic<std::uint32_t> next_mark_;
    int process_;  // id of this process in its own PID namespace, and that namespace
    std::uint64_t namespace_;
    bool held_ = true;  // false: this process is a child whose holds could not be made
    struct {
        std::uint32_t slot = kNone;
        std::uint64_t word = 0;
        os::Descriptor socket;
        int error = 0;
        bool complete = false;
    } fork_;
};

}  // namespace shmtensor
