// A ring as a Python object, and what calls on one share: the segments that a message names, locks that stay taken, and
// those who watch the ring.
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

// What a client has mapped, for one call that waits until `deadline`.
class ClientLookup final : public SegmentLookup {
   public:
    ClientLookup(PyClient& client, std::uint64_t deadline) : client_(client), deadline_(deadline) {}
    SegmentMetadata* find(std::uint64_t segment) override { return client_.client.find(segment); }
    // After RingStatus::need_mapping: have the missing segment mapped. If nobody has it any more it is `gone`. That
    // loses a message; but what a dead process left undone in it, only the manager can say: it was first, or is waited
    // for. False: the time is up. Raises what need_mapping raises.
    bool map_missing();
    void forget_gone() { gone = waited_ = 0; }  // what is missing next is another matter
    [[noreturn]] void raise_lost() const;       // of a message that is lost

   private:
    PyClient& client_;
    const std::uint64_t deadline_;
    std::uint64_t since_ = 0;
    unsigned waited_ = 0;
    nb::object why_;  // what the manager said of the one that is gone
};

// Asked when a put finds no room, as of Ring::taken(); true: try again.
using MakeRoom = std::function<bool(ClientLookup&, std::uint32_t)>;
using Event = std::shared_ptr<const os::Descriptor>;  // shared with calls that use it without the GIL

// _native.Ring
struct PyRing {
    // Raises QueueDamaged if the block does not hold a ring.
    PyRing(nb::object client_object_, nb::object block_object_, nb::object need_event_);
    PyRing(const PyRing&) = delete;
    PyRing& operator=(const PyRing&) = delete;
    Client& client() const { return self.client; }
    void require_client() const;  // raises when this process may not touch shared memory

    // The form of messages that are put.
    unsigned put_form() const {
        return form |
               (form != kAnyForm && ring.header().copied.load(std::memory_order_relaxed) != 0 ? kCopyTensors : 0u);
    }
    // At each put and get, and after each slice of a wait: may raise.
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
    nb::object look;           // called with whether the call waits; not valid: nothing is
    unsigned calls = 0;
};

// Between two attempts of a call on a ring (waits.hpp, retry): what any of them may have lacked.
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
    // After busy and need_mapping; the time may be up. All else is damage.
    int next(RingStatus status);

   private:
    int patience();
    void warn() const;

    PyRing& ring_;
    ClientLookup& lookup_;
    const std::uint64_t deadline_;
    const End end_;
    std::uint64_t since_ = 0, warned_ = 0;  // when a lock was first found taken, and that last reported; ns
};

// The descriptor of the ring's event. The manager is asked for it the first time, for up to so many seconds, and makes
// it readable if messages wait. It does so as well where the answer comes too late, or this process has no descriptor
// left for it. Raises what asking raises.
constexpr double kRequest = 30;  // where the event is what was asked for
Event event_of(PyRing& ring, double seconds = kRequest);

// Those who watch the ring, in one call that puts or takes. Its event is asked for before a message goes in or out, if
// that is known to be needed: so a Ctrl-C in the request finds nothing done. What could not be had then is asked for
// again after that: for the manager tells them in our place. That it cannot be asked makes no error of the call.
class Watchers {
   public:
    explicit Watchers(PyRing& ring) : ring_(ring) {}
    // Before each try.
    void prepare() {
        if (is_watched() && !ring_.event && !asked_) ask();
    }
    // After a put, a get, and a get that found nothing. The message is in, or out, by now.
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

// The holds of messages that nobody has taken over end with this, once: two of these may watch over one message.
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

// A value on its way, with room that is used again and again. Encoding runs Python, which may put or get: each call in
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

// -------------------------------------------------------------------------------------------- put (rings_put.cpp), get
// (rings_get.cpp)
bool put(PyRing& self, nb::handle value, bool wait, nb::handle timeout);
std::size_t put_many(PyRing& self, const nb::list& values, bool wait, nb::handle timeout);
// Messages that another ring's peek() gave, without waiting for room: how many were put. `pickled`: they may be
// pickled.
std::size_t put_frames(PyRing& self, std::span<const std::byte> frames, const nb::list& blocks, std::uint64_t commit,
                       bool pickled);
nb::object get(PyRing& self, bool wait, nb::handle timeout, nb::handle receipt);
nb::list get_many(PyRing& self, std::size_t max_items, bool wait, nb::handle timeout);

// -------------------------------------------------------------------------------------------- moves (rings_move.cpp)
// The oldest messages of a ring, which are inside still; Python's tuple of Ring::peek().
struct RunOfMessages {
    std::uint32_t number, messages;
    std::uint64_t nbytes;
    bool lost;  // the memory of it is
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
// None: there is none.
nb::object peek(PyRing& self, std::size_t max_bytes, std::uint32_t max_messages);
// Whether those were the oldest still, and are out now.
bool take(PyRing& self, std::uint32_t number, std::uint32_t messages, std::uint64_t commit);
std::uint64_t commit_number(PyRing& self, bool of_puts);

// One call that moves messages; it waits for locks without a bound, but for signals.
class RingMove {
   public:
    explicit RingMove(PyRing& ring) : lookup(ring.self, kForever), ring_(ring) {}
    // Repeats an attempt at one end until it succeeds or finds nothing. `holding`: what the attempt fills, if anything.
    RingStatus call(End end, EncodedMessage* holding, const std::function<RingStatus(unsigned)>& attempt);
    nb::object peek(const std::function<RingStatus(Run&, unsigned)>& attempt);
    ClientLookup lookup;

   private:
    PyRing& ring_;
};

// The blocks of a message become blocks of this process. All of its holds are over afterwards.
void receive_blocks(PyRing& self, const EncodedMessage& message, EncodedValue& encoded);

// The value of a message. Takes over its holds, whatever becomes of the value.
nb::object read_message(PyRing& self, EncodedMessage& message, EncodedValue& encoded, Access access);
// A message of a value, but for its holds; `form` as encode(). The holds come after all values of a call are written:
// that may run Python which forks, and holds that are lent already would then belong to two processes.
void write_message(PyRing& self, PyObject* value, EncodedValue& encoded, EncodedMessage& message,
                   unsigned form = kAnyForm);
void lend_holds(PyRing& self, const EncodedValue& encoded, EncodedMessage& message);

// In a catch (...) of what the caller has to know more about: throws the exception on with an attribute more.
[[noreturn]] void add_to_error(const char* name, nb::handle value);

}  // namespace shmtensor
