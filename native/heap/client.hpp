// This process in one group: the segments it has mapped, the blocks it holds, the room it owns, and what a fork does to
// all that.
//
// Locks: the private lock guards everything in this process; it is taken first, and the lock of one segment's metadata
// after it. The lock of a ring is taken without it. No Python, no request to the manager and no endless wait happens
// under either. A call that would have to wait says `busy` (or `slow`, when it wants system calls) and is made again
// with patience, without the GIL.
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

// What a child in the making is given: a slot, and the socket on which it will speak, the caller's to close.
struct EmbryoSlot {
    std::uint32_t slot = kNone, generation = 0;
    int socket = -1;
};

// One hold of this process on one block. Made by allocate, attach and redeem, which give one user each; ended when the
// last user releases it.
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
    std::uint64_t message = 0;  // the message being encoded that named it last, and its number there; under the GIL
    std::uint32_t number = 0;
    std::uint32_t lent = 0, frozen = 0;  // views of these kinds that live; under the GIL
    std::byte* data() const { return segment->payload + offset; }
    BlockName name() const { return {segment->id, index, generation}; }
};

enum class Status {
    ok,
    busy,          // another process or thread holds a lock: again, with patience
    slow,          // needs system calls: again, with patience
    need_segment,  // no owned segment has room
    need_mapping,  // the segment is not mapped here
    gone,          // no live block of this generation
    refused,       // memory was refused; see refusal()
    full,          // a table of the segment is full
    lost,          // somebody truncated the file of a segment
    not_held,      // cloned without the fork hooks, or the fork could not be registered
};

class Client {
   public:
    // `group` must outlive the client. Owns `connection`, to the manager of `epoch`, from now on.
    Client(Group& group, std::uint32_t slot, int connection, std::uint32_t epoch = 0);
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // Takes over both descriptors, whatever the result. 0 or errno (EINVAL: not what the arguments say). Of a segment
    // that is mapped already they replace those that are lost.
    int add_segment(std::uint64_t id, int control, int payload, std::uint64_t payload_bytes, SegmentKind kind,
                    bool owned);
    // The same of one whose payload is memory of a device, which the caller has mapped at `address`. 0; errno; EEXIST:
    // it was mapped already, where it still is.
    int add_device_segment(std::uint64_t id, int control, int payload, std::uint64_t payload_bytes, SegmentKind kind,
                           bool owned, int device, std::uint64_t address);
    // The numbers of all segments of devices that are mapped here, and copies of their descriptors, the caller's to
    // close.
    std::vector<std::pair<std::uint64_t, int>> device_segments();
    // Owned segments of a device of which nothing is used: not owned any more, so that the manager may take them back.
    std::vector<std::uint64_t> give_up_unused(int device);
    // Where segments of devices were mapped that are not known here any more: (address, bytes), for the driver to
    // unmap.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> take_unmapped();

    // Each: patience 0 = no wait and no system call. The block has one user more: a new one, or one that was held here.
    Status allocate(std::uint64_t bytes, unsigned patience_ms, Block** block, int device = kHost);
    Status attach(const BlockName& name, unsigned patience_ms, Block** block);
    Status ticket(const Block& block, std::uint32_t owner, unsigned patience_ms, Ticket* ticket);
    Status redeem(const BlockName& name, const Ticket& ticket, unsigned patience_ms, Block** block);
    // The group holds the block, without any process; keeping it twice is keeping it once. Or it does no longer.
    Status keep(const Block& block, bool kept, unsigned patience_ms);
    void release(Block* block);  // one user less; waits a moment at most for another process
    void share(Block& block);    // one user more
    // Give a block a new generation if it has no other user, here or in another process. False: it has, or the metadata
    // is busy.
    bool renew(Block& block);

    // A hold of ours for a message on its way into a ring: the ring takes it, or drop() ends it.
    Status lend(const Block& block, std::uint32_t mark, unsigned patience_ms, MessageHold* hold);
    void drop(const MessageHold& hold);
    // The block of a hold that was a message's and has become ours: one user more. `gone` when it names no such block.
    Status receive(const MessageHold& hold, Block** block);
    std::uint32_t new_mark() { return next_mark_.fetch_add(1, std::memory_order_relaxed); }
    SegmentMetadata* find(std::uint64_t segment);                       // for a SegmentLookup
    Status reserve_holds(std::uint64_t segment, unsigned patience_ms);  // room for more entries in its metadata
    Status trim(std::uint64_t* bytes);
    // After memory was refused: ask the other clients to give back what they keep, if that can help.
    void press_others(const Refusal& refusal);
    // The bytes of a block where this process cannot write them; good as long as the block has a user. 0 or errno.
    int readonly_of(const Block& block, std::byte** at);

    // The block that all of [data, data + bytes) lies in, of whichever client of this process: one user more; nullptr
    // when none is held here. `readonly`: where this process cannot write it. Looks at each block held of that segment.
    static Status locate(const std::byte* data, std::uint64_t bytes, unsigned patience_ms, Block** block,
                         bool* readonly);

    // For a child about to be started. 0 or errno. A manager that cannot be told does no harm: the child will find the
    // next one.
    int embryo(EmbryoSlot* made);

    // Go on with another connection, to the manager of `epoch`. `close`: the descriptor of the old one is ours still.
    void reconnect(int connection, std::uint32_t epoch, bool close);
    // False when there is another manager than the one we are connected to, or none.
    bool is_led() const { return epoch_ == group_.epoch() && group_.is_led(); }

    // The segments of which a descriptor stands for another file by now: this process cannot hand them over.
    std::vector<std::uint64_t> lost();

    struct Stats {
        std::uint64_t mapped, owned, blocks, bytes, reserved, free;
    };
    Stats stats();                   // of the host's memory
    Stats device_stats(int device);  // of one device's
    const char* check();
    bool close();  // false while blocks are held

    Group& group() const { return group_; }
    std::uint32_t slot() const { return slot_; }
    std::uint32_t generation() const { return generation_; }  // of the slot, when it became ours
    int connection() const { return connection_.number(); }
    // False in a process that was cloned without the fork hooks, or whose fork could not be registered, and once
    // closed.
    bool may_touch() const { return alive() && held_; }
    // Why a fork could not be registered, for the child in which nothing may be touched: errno; 0: it was.
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
    void finish_deferred();
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
    volatile unsigned char* intact_;  // on a page that is wiped in a child nobody told us about
    std::mutex private_;
    // The table of segments changes under both this and the private lock, so either will do to look something up; this
    // one is held for no longer than a look, so that it may be taken under the lock of a ring.
    std::mutex table_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Segment>> segments_;
    Segment* last_ = nullptr;                      // the segment asked for last
    std::map<const std::byte*, Segment*> mapped_;  // payloads by where they begin, twice those with a read-only mapping
    Heap heap_;                                    // of the host's memory
    std::map<int, std::unique_ptr<Heap>> device_heaps_;              // by device
    std::vector<std::pair<std::uint64_t, std::uint64_t>> unmapped_;  // see take_unmapped()
    static thread_local Refusal refusal_;
    std::vector<std::pair<Segment*, std::uint32_t>> deferred_;  // holds to end as soon as the metadata is free
    std::vector<std::uint32_t> home_;                           // kept for its capacity
    std::uint32_t pressed_;                                     // Group::pressed() when we last gave back
    std::atomic<std::uint32_t> next_mark_;
    int process_;  // id of this process, and of its PID namespace, as it sees them
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
