// A ring as a Python object, and the common parts of calls on it: mapping the segments that a message names, waiting
// for locks, and telling the watchers of the ring.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/os.hpp"
#include "ipc/ring.hpp"
#include "python/codec.hpp"
#include "python/objects.hpp"
#include "python/results.hpp"
#include "python/waits.hpp"

namespace shmtensor {

// The segments that a client has mapped, for one call that waits until `deadline`.
class ClientLookup final : public SegmentLookup {
   public:
    ClientLookup(PyClient& client, std::uint64_t deadline) : client_(client), deadline_(deadline) {}
    SegmentMetadata* find(std::uint64_t segment) override { return client_.client.find(segment); }
    // After RingStatus::need_mapping: have the missing segment mapped. If it no longer exists, it becomes `gone`, and
    // the message that names it is lost. But first wait for the manager to undo what a dead process left in the ring.
    // False: the time is up. Raises what need_mapping raises.
    bool map_missing();
    void forget_gone() { gone = waited_ = 0; }  // before another segment may be missing
    [[noreturn]] void raise_lost() const;       // for a message that is lost

   private:
    PyClient& client_;
    const std::uint64_t deadline_;
    std::uint64_t since_ = 0;
    unsigned waited_ = 0;
    nb::object why_;  // the manager's reason why a segment is gone
};

// Called when a put finds no room, with Ring::taken() of before the attempt; true: try again.
using MakeRoom = std::function<bool(ClientLookup&, std::uint32_t)>;
using Event = std::shared_ptr<const os::Descriptor>;  // shared with calls that use it without the GIL

// _native.Ring
struct PyRing {
    // Raises QueueDamaged if the block does not hold a ring.
    PyRing(nb::object client_object_, nb::object block_object_, nb::object need_event_);
    PyRing(const PyRing&) = delete;
    PyRing& operator=(const PyRing&) = delete;
    Client& client() const { return self.client; }
    void require_client() const;  // raises if this process may not touch shared memory

    // The form of messages that are put.
    unsigned put_form() const {
        return form |
               (form != kAnyForm && ring.header().copied.load(std::memory_order_relaxed) != 0 ? kCopyTensors : 0u);
    }
    // Called at each put and get, and after each slice of a wait; may raise.
    void count_call() {
        if (look.is_valid() && (++calls & 63) == 0) look(false);
    }
    void look_while_waiting() const {
        if (look.is_valid()) look(true);
    }

    nb::object client_object, block_object, need_event;
    PyClient& self;
    Block& block;
    Ring ring;
    MakeRoom make_room;
    Event event;
    unsigned form = kAnyForm;  // of messages that are put here
    nb::object look;           // called with whether the call waits; invalid: not called
    unsigned calls = 0;
};

// Between two attempts of a call on a ring (waits.hpp, retry): provides what the attempt lacked.
class RingRetry {
   public:
    RingRetry(PyRing& ring, ClientLookup& lookup, std::uint64_t deadline, End end)
        : ring_(ring), lookup_(lookup), deadline_(deadline), end_(end) {}

    // After each attempt: locks that were free, and segments that were found, are no longer waited for.
    void note(RingStatus status) {
        if (status == RingStatus::busy) return;
        since_ = 0;
        if (status != RingStatus::need_mapping) lookup_.forget_gone();
    }
    // After busy and need_mapping; the time may be up. Any other status means damage.
    int next(RingStatus status);

   private:
    int patience();
    void warn() const;

    PyRing& ring_;
    ClientLookup& lookup_;
    const std::uint64_t deadline_;
    const End end_;
    std::uint64_t since_ = 0, warned_ = 0;  // when a lock was first found held, and when that was last reported; ns
};

// The descriptor of the ring's event. The first call requests it from the manager, for up to `seconds`; the manager
// also makes it readable if messages wait, even if the answer comes too late or this process has no descriptor left for
// it. Raises what the request raises.
constexpr double kRequest = 30;  // for callers that want the event itself
Event event_of(PyRing& ring, double seconds = kRequest);

// Tells the watchers of the ring, in one call that puts or takes. If the event is known to be needed, it is requested
// before a message is put or taken, so that a Ctrl-C during the request has no effect on messages. If that fails, it is
// requested again afterwards, since the manager then tells the watchers for us. A failed request does not fail the
// call.
class Watchers {
   public:
    explicit Watchers(PyRing& ring) : ring_(ring) {}
    // Before each try.
    void prepare() {
        if (is_watched() && !ring_.event && !asked_) ask();
    }
    // After a put, a get, and a get that found nothing. The message has been put or taken.
    void tell() {
        if (is_watched()) tell_them();
    }

   private:
    bool is_watched() const { return ring_.ring.header().watched.load() != 0; }
    void ask();
    void tell_them();

    PyRing& ring_;
    bool asked_ = false;
};

// Drops the holds of messages that were not taken over. Each is dropped once, even if two guards have the same message.
struct HoldsGuard {
    Client& client;
    std::span<EncodedMessage> messages;
    HoldsGuard(Client& owner, std::span<EncodedMessage> all) : client(owner), messages(all) {}
    HoldsGuard(const HoldsGuard&) = delete;
    HoldsGuard& operator=(const HoldsGuard&) = delete;
    ~HoldsGuard() { drop(); }
    void drop() {
        for (EncodedMessage& message : messages) {
            for (const MessageHold& hold : message.holds) client.drop(hold);
            message.holds.clear();
        }
    }
};

// Reusable memory for encoding and decoding a value. Encoding runs Python code, which may put or get, so each call in
// progress has a scratch buffer of its own.
struct ScratchBuffer {
    EncodedValue encoded;
    EncodedMessage message;
};
class ScratchLease {
   public:
    ScratchLease();
    ScratchLease(const ScratchLease&) = delete;
    ScratchLease& operator=(const ScratchLease&) = delete;
    ~ScratchLease();
    ScratchBuffer* operator->() const { return scratch_.get(); }

   private:
    std::vector<std::unique_ptr<ScratchBuffer>>& spare_;  // this thread's
    std::unique_ptr<ScratchBuffer> scratch_;
};

// ----------------------------------------------------------------------- put (rings_put.cpp), get (rings_get.cpp)
bool put(PyRing& self, nb::handle value, bool wait, nb::handle timeout);
std::size_t put_many(PyRing& self, const nb::list& values, bool wait, nb::handle timeout);
// Put messages from another ring's peek(), without waiting for room. Returns how many. `pickled`: they may be pickled.
std::size_t put_frames(PyRing& self, std::span<const std::byte> frames, const nb::list& blocks, std::uint64_t commit,
                       bool pickled);
nb::object get(PyRing& self, bool wait, nb::handle timeout, nb::handle receipt);
nb::list get_many(PyRing& self, std::size_t max_items, bool wait, nb::handle timeout);

// -------------------------------------------------------------------------------------------- moves (rings_move.cpp)
// Copies of the oldest messages of a ring, which are still inside; the result of Ring.peek() in Python.
struct RunOfMessages {
    std::uint32_t number, messages;
    std::uint64_t nbytes;
    bool lost;  // its memory is lost
    nb::bytes frames;
    nb::list blocks;
};
template <>
struct Result<RunOfMessages> {
    static constexpr const char* name = "RunOfMessages";
    static constexpr std::tuple fields{
        field("number", &RunOfMessages::number), field("messages", &RunOfMessages::messages),
        field("nbytes", &RunOfMessages::nbytes), field("lost", &RunOfMessages::lost),
        field("frames", &RunOfMessages::frames), field("blocks", &RunOfMessages::blocks)};
};
// None: there is no message.
nb::object peek(PyRing& self, std::size_t max_bytes, std::uint32_t max_messages);
// Take those messages out. False: they are no longer the oldest.
bool take(PyRing& self, std::uint32_t number, std::uint32_t messages, std::uint64_t commit);
std::uint64_t commit_number(PyRing& self, bool of_puts);

// One call that moves messages. It waits for locks without a time limit, but handles signals.
class RingMove {
   public:
    explicit RingMove(PyRing& ring) : lookup(ring.self, kForever), ring_(ring) {}
    // Repeats an attempt at one end until it succeeds or finds no message. `holding`: filled by the attempt, or
    // nullptr.
    RingStatus call(End end, EncodedMessage* holding, const std::function<RingStatus(unsigned)>& attempt);
    nb::object peek(const std::function<RingStatus(Run&, unsigned)>& attempt);
    ClientLookup lookup;

   private:
    PyRing& ring_;
};

// Make the blocks of a message blocks of this process. Afterwards the message has no holds.
void receive_blocks(PyRing& self, const EncodedMessage& message, EncodedValue& encoded);

// The value of a message. Takes over its holds, even if decoding fails.
nb::object read_message(PyRing& self, EncodedMessage& message, EncodedValue& encoded, Access access);
// Write a value as a message, without its holds; `form` as in encode(). Holds are lent after all values of a call are
// written: writing may run Python code that forks, and lent holds would then belong to two processes.
void write_message(PyRing& self, PyObject* value, EncodedValue& encoded, EncodedMessage& message,
                   unsigned form = kAnyForm);
void lend_holds(PyRing& self, const EncodedValue& encoded, EncodedMessage& message);

// Called in a catch (...): adds an attribute to the Python exception and rethrows it.
[[noreturn]] void add_to_error(const char* name, nb::handle value);

}  // namespace shmtensor
