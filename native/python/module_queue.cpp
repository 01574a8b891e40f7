// The binding of ring.hpp as a client uses it: values in and out, waits without the GIL, what is lacking asked for in
// Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ipc/ring.hpp"
#include "python/codec.hpp"
#include "python/module.hpp"
#include "python/module_queue.hpp"

namespace shmtensor {
namespace {

constexpr std::uint64_t kStall = 10'000'000'000;  // ns of a lock that stays taken until that is reported
constexpr std::uint64_t kAtOnce = 1'000'000'000;  // ns that a call which must not wait gives a lock: its holder copies
constexpr std::chrono::milliseconds kLookAgain{10};  // between two looks whether the manager has undone something
constexpr unsigned kUndone = 50;                     // such looks, until that is an error
constexpr std::size_t kInline = 16 * 1024;           // bytes of a body that travel in the ring; longer ones in a block
constexpr std::size_t kKept = 1 << 20;               // bytes of room that a scratch message keeps
constexpr double kRequest = 30;                      // seconds for the manager's answer where it is what was asked for
constexpr double kAsked = 1;                         // seconds where a put or get waits for it
constexpr std::size_t kBatch = 64;                   // messages that get_many takes under one lock

constexpr const char* kTakenOut = "a message names memory that is gone, and has been taken out: ";

struct QueueErrors {
    PyObject *full, *empty, *too_large, *damaged, *lost, *stall;
};
QueueErrors queue_errors;

// A value on its way, with room that is used again and again. Encoding runs Python, which may put or get: each call in
// progress has a scratch buffer of its own.
struct ScratchBuffer {
    EncodedValue encoded;
    EncodedMessage message;
};
struct ScratchLease {
    ScratchLease() {
        auto& free = buffers();
        if (free.empty()) {
            scratch = std::make_unique<ScratchBuffer>();
        } else {
            scratch = std::move(free.back());
            free.pop_back();
        }
    }
    ~ScratchLease() {
        if (scratch->message.body.capacity() > kKept || scratch->encoded.body.capacity() > kKept) return;
        scratch->encoded.clear();
        scratch->message.body.clear();
        scratch->message.holds.clear();
        buffers().push_back(std::move(scratch));
    }
    ScratchBuffer* operator->() const { return scratch.get(); }
    std::unique_ptr<ScratchBuffer> scratch;

   private:
    static std::vector<std::unique_ptr<ScratchBuffer>>& buffers() {
        static thread_local std::vector<std::unique_ptr<ScratchBuffer>> free;
        return free;
    }
};

struct PyRing {
    PyRing(nb::object client_object_, nb::object block_object_, nb::object need_event_)
        : client_object(std::move(client_object_)),
          block_object(std::move(block_object_)),
          need_event(std::move(need_event_)),
          self(*nb::inst_ptr<PyClient>(client_object)),
          block(*nb::inst_ptr<PyBlock>(block_object)->block) {
        if (block.client != &self.client) throw nb::value_error("the block belongs to another client");
        if (!ring.open(block.data(), block.bytes, block.segment->file))
            raise(queue_errors.damaged, "the block is no queue of this version; open it with what made it");
    }
    PyRing(const PyRing&) = delete;
    Client& client() const { return self.client; }

    nb::object client_object, block_object, need_event;
    PyClient& self;
    Block& block;
    Ring ring;
    MakeRoom make_room;
    Event event;
};

}  // namespace

std::uint64_t left_of(std::uint64_t deadline) {
    if (deadline == kForever) return kForever;
    const std::uint64_t now = deadline == 0 ? 0 : os::monotonic_ns();
    return deadline > now ? deadline - now : 0;
}

bool ClientLookup::map_missing() {
    if (missing == 0) raise_damaged();  // no segment's number
    const std::uint64_t now = os::monotonic_ns();
    if (since_ == 0) {
        since_ = now;  // the first is asked for in any case, so that calls of little patience get on
    } else if (now >= (deadline_ == 0 ? since_ + kAtOnce : deadline_)) {
        return false;
    }
    if (missing != gone) {
        nb::object why = client_.need_mapping(object_, missing, false);
        if (why.is_none()) return true;
        gone = missing;
        why_ = std::move(why);
    } else if (++waited_ > kUndone) {
        client_.need_mapping(object_, missing, true);
    } else {
        {
            const Unlocked unlocked;
            std::this_thread::sleep_for(kLookAgain);
        }
        look_around(client_);
    }
    return true;
}

void ClientLookup::raise_lost() const {
    raise(queue_errors.lost, std::string(kTakenOut) + nb::str(why_).c_str());
}

[[noreturn]] void raise_damaged() {
    raise(queue_errors.damaged, "the queue's shared memory does not hold what queues write; something wrote over it");
}

unsigned Stall::patience(bool getting) {
    look_around(client_);
    const std::uint64_t now = os::monotonic_ns();
    if (since_ == 0) since_ = warned_ = now;
    const std::uint64_t end = deadline_ == 0 ? since_ + kAtOnce : deadline_;
    if (now >= end) return 0;
    if (now - warned_ >= kStall) {
        warned_ = now;
        warn(getting);
    }
    return static_cast<unsigned>(std::clamp<std::uint64_t>((end - now) / 1'000'000, 1, kSlice));
}

void Stall::warn(bool getting) const {
    const RingHeader& h = ring_.header();
    std::uint32_t slot = (getting ? h.get_lock : h.put_lock).holder.load(std::memory_order_relaxed);
    if (slot == 0 && !getting) {  // a put that makes the ring larger needs both locks
        slot = h.get_lock.holder.load(std::memory_order_relaxed);
        getting = true;
    }
    const std::uint32_t pid = slot < kMaxSlots ? client_.client.group().slot(slot).pid.load() : 0;
    if (PyErr_WarnFormat(queue_errors.stall, 1,
                         "process %u has kept the lock for %s a queue for 10 s; if it is stopped, continue or kill it",
                         pid, getting ? "taking from" : "putting on") != 0)
        throw nb::python_error();
}

namespace {

// False: its descriptor is lost.
bool announce(PyRing& self) {
    ClientLookup lookup(self.self, self.client_object, 0);
    const Event event = self.event;
    const Unlocked unlocked;
    return self.ring.announce(*event, self.client().slot(), lookup, kSlice);
}

// The manager is asked for it, for up to so many seconds, and makes it readable if messages wait. It does so as well
// where the answer comes too late, or this process has no descriptor left for it.
Event event_of(PyRing& self, double seconds) {
    if (self.event && self.event->is_ours()) return self.event;
    Event made = std::make_shared<const os::Descriptor>(nb::cast<int>(self.need_event(seconds)));
    if (self.event && self.event->is_ours()) return self.event;  // another thread was here
    self.event = made;
    announce(self);  // what came before anybody watched
    return made;
}

// Raise it where Python raises what signal handlers raise.
void postpone(const nb::python_error& error) {
    const auto raise_it = [](void* value) {
        const nb::object held = nb::steal(static_cast<PyObject*>(value));
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(held.ptr())), held.ptr());
        return -1;
    };
    nb::object value = nb::borrow(error.value());
    if (Py_AddPendingCall(raise_it, value.ptr()) == 0) value.release();
}

// Those who watch the queue, in one call that puts or takes. Its event is asked for before a message goes in or out, if
// that is known to be needed: so a Ctrl-C in the request finds nothing done. What could not be had then is asked for
// again after that: for the manager tells them in our place. That it cannot be asked makes no error of the call.
class Watchers {
   public:
    explicit Watchers(PyRing& self) : self_(self) {}
    // Before each try.
    void prepare() {
        if (is_watched() && !self_.event && !asked_) ask();
    }
    // After a put, a get, and a get that found nothing. The message is in, or out, by now.
    void tell() {
        if (!is_watched()) return;
        if (self_.event && announce(self_)) return;
        try {
            ask();  // says it, too
        } catch (const nb::python_error& error) {
            postpone(error);
        }
    }

   private:
    bool is_watched() const { return self_.ring.header().watched.load() != 0; }
    void ask() {
        const bool again = std::exchange(asked_, true);
        try {
            event_of(self_, kAsked);
        } catch (nb::python_error& error) {
            if (!error.matches(PyExc_Exception)) throw;
            if (!again) error.discard_as_unraisable("the event of a queue");
        }
    }

    PyRing& self_;
    bool asked_ = false;
};

// ----------------------------------------------------------------------------------------------------------------- put

// What is not sent ends here, once: two of these may watch over one message.
struct Unsent {
    Client& client;
    std::span<EncodedMessage> messages;
    ~Unsent() {
        for (EncodedMessage& message : messages) {
            for (const MessageHold& hold : message.holds) client.drop(hold);
            message.holds.clear();
        }
    }
};

void write_message(PyRing& self, PyObject* value, EncodedValue& encoded, EncodedMessage& message) {
    message.holds.clear();
    if (!encode(self.client_object.ptr(), value, encoded)) throw nb::python_error();
    message.flags = 0;
    message.bytes = encoded.body.size() + encoded.bytes;
    if (encoded.body.size() > kInline) {
        Block* block = nullptr;
        retry_blocking(
            self.self, self.client_object,
            [&](unsigned patience) { return self.client().allocate(encoded.body.size(), patience, &block); }, 0,
            encoded.body.size());
        encoded.blocks.push_back(block);
        std::memcpy(block->data(), encoded.body.data(), encoded.body.size());
        encoded.body.clear();
        message.flags = kBodyInBlock;
    }
    message.body.swap(encoded.body);
}

// After all of a call's values are written: that may run Python which forks, and holds that are lent already would then
// be in the hands of two processes.
void lend_holds(PyRing& self, const EncodedValue& encoded, EncodedMessage& message) {
    if (encoded.blocks.empty()) return;
    message.mark = self.client().new_mark();
    message.holds.reserve(encoded.blocks.size());
    Unsent unsent{self.client(), {&message, 1}};
    for (const Block* block : encoded.blocks) {
        MessageHold hold{};
        retry_blocking(
            self.self, self.client_object,
            [&](unsigned patience) { return self.client().lend(*block, message.mark, patience, &hold); }, 0, 0);
        message.holds.push_back(hold);
    }
    unsent.messages = {};
}

[[noreturn]] void raise_too_large(PyRing& self, const EncodedMessage& message) {
    const std::uint64_t max_bytes = self.ring.header().max_bytes.load();
    raise(queue_errors.too_large, "a message of " + std::to_string(message.bytes) + " bytes and " +
                                      std::to_string(message.holds.size()) + " blocks does not fit into this queue (" +
                                      (max_bytes ? "maxbytes " + std::to_string(max_bytes) : "no bound of bytes") +
                                      "); send it in parts");
}

// Publish messages in order until all are in or the time is up; `sent` says how many, also when it raises.
void deliver(PyRing& self, std::span<EncodedMessage> messages, std::uint64_t deadline, std::size_t& sent) {
    Unsent unsent{self.client(), messages};
    Watchers watchers(self);
    ClientLookup lookup(self.self, self.client_object, deadline);
    Stall stall(self.ring, self.self, deadline);
    sent = 0;
    for (unsigned patience = 0;;) {
        watchers.prepare();
        const std::uint32_t taken = self.ring.taken();
        std::size_t done = 0;
        RingStatus result;
        if (patience == 0) {
            result = self.ring.put(messages.subspan(sent), self.client().slot(), lookup, 0, &done);
        } else {
            const Unlocked unlocked;
            result = self.ring.put(messages.subspan(sent), self.client().slot(), lookup, patience, &done);
        }
        sent += done;
        unsent.messages = messages.subspan(sent);
        if (done > 0) watchers.tell();
        patience = 0;
        if (result != RingStatus::busy) stall.over();
        lookup.after(result);
        switch (result) {
            case RingStatus::ok:
                return;
            case RingStatus::busy:
                patience = stall.patience(false);
                if (patience == 0) return;
                break;
            case RingStatus::full: {
                if (self.make_room && self.make_room(lookup, taken)) break;
                const std::uint64_t left = left_of(deadline);
                if (left == 0) return;
                {
                    const Unlocked unlocked;
                    self.ring.await_room(taken, left);
                }
                look_around(self.self);
                break;
            }
            case RingStatus::no_room: {
                Refusal refusal;
                {
                    const Unlocked unlocked;
                    reserve(self.ring, self.client(), refusal);
                }
                if (refusal.error) raise_refused(refusal, "making the queue larger");
                break;
            }
            case RingStatus::need_mapping:
                if (!lookup.map_missing()) return;
                break;
            case RingStatus::too_large:
                raise_too_large(self, messages[sent]);
            case RingStatus::damaged:
            case RingStatus::empty:
                raise_damaged();
        }
    }
}

// In a catch (...) of what the caller has to know more about. What C++ raises becomes what Python calls it.
[[noreturn]] void add_to_error(const char* name, nb::handle value) {
    const auto add = [&](nb::python_error& error) {
        if (PyObject_SetAttrString(error.value().ptr(), name, value.ptr()) != 0) PyErr_Clear();
    };
    try {
        throw;
    } catch (nb::python_error& error) {
        add(error);
        throw;
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    nb::python_error error;
    add(error);
    throw error;
}

void require_members(PyRing& self) {
    if (!self.client().may_touch()) raise_not_held(self.client());
}

bool put(PyRing& self, nb::handle value, bool wait, nb::handle timeout) {
    require_members(self);
    const std::uint64_t deadline = deadline_of(wait, timeout);
    ScratchLease scratch;
    write_message(self, value.ptr(), scratch->encoded, scratch->message);
    lend_holds(self, scratch->encoded, scratch->message);
    std::size_t sent = 0;
    deliver(self, {&scratch->message, 1}, deadline, sent);
    if (sent == 0) {
        PyErr_SetNone(queue_errors.full);
        throw nb::python_error();
    }
    return true;
}

// Nothing is sent before all values are written.
void deliver_all(PyRing& self, const nb::list& values, std::uint64_t deadline, std::size_t& sent) {
    std::vector<EncodedMessage> messages;
    std::vector<std::unique_ptr<EncodedValue>> encoded;
    messages.reserve(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        encoded.push_back(std::make_unique<EncodedValue>());
        messages.emplace_back();
        const nb::object value = values[i];
        write_message(self, value.ptr(), *encoded.back(), messages.back());
    }
    Unsent unsent{self.client(), messages};
    for (std::size_t i = 0; i < messages.size(); ++i) lend_holds(self, *encoded[i], messages[i]);
    const std::uint64_t max_bytes = self.ring.header().max_bytes.load();
    for (const EncodedMessage& message : messages)
        if (max_bytes != 0 && message.bytes > max_bytes) raise_too_large(self, message);
    unsent.messages = {};
    deliver(self, messages, deadline, sent);
}

std::size_t put_many(PyRing& self, nb::list values, bool wait, nb::handle timeout) {
    require_members(self);
    const std::uint64_t deadline = deadline_of(wait, timeout);
    std::size_t sent = 0;
    try {
        deliver_all(self, values, deadline, sent);
        if (sent > 0 && PyErr_CheckSignals() != 0)
            throw nb::python_error();  // what came meanwhile, while it can be told
    } catch (...) {
        add_to_error("put", nb::int_(sent));
    }
    if (sent == 0 && values.size() != 0) {
        PyErr_SetNone(queue_errors.full);
        throw nb::python_error();
    }
    return sent;
}

// ----------------------------------------------------------------------------------------------------------------- get

// Take messages until at least one is here or the time is up; gives how many.
std::size_t collect(PyRing& self, std::span<EncodedMessage> messages, std::uint64_t deadline,
                    std::atomic<std::uint64_t>* receipt) {
    Watchers watchers(self);
    ClientLookup lookup(self.self, self.client_object, deadline);
    Stall stall(self.ring, self.self, deadline);
    for (unsigned patience = 0;;) {
        watchers.prepare();
        std::size_t done = 0;
        RingStatus result;
        const std::size_t max_items = lookup.gone ? 1 : messages.size();  // one that is lost comes alone
        if (patience == 0) {
            result = self.ring.get(messages.first(max_items), self.client().slot(), lookup, 0, &done, receipt);
        } else {
            const Unlocked unlocked;
            result = self.ring.get(messages.first(max_items), self.client().slot(), lookup, patience, &done, receipt);
        }
        patience = 0;
        if (result != RingStatus::busy) stall.over();
        lookup.after(result);
        switch (result) {
            case RingStatus::ok:
                if (self.ring.size() == 0) watchers.tell();
                if (messages[0].flags & kLost) lookup.raise_lost();
                return done;
            case RingStatus::busy:
                patience = stall.patience(true);
                if (patience == 0) return 0;
                break;
            case RingStatus::empty: {
                const std::uint64_t left = left_of(deadline);
                if (left == 0) {
                    if (self.event) watchers.tell();
                    return 0;
                }
                {
                    const Unlocked unlocked;
                    self.ring.await_message(left);
                }
                look_around(self.self);
                break;
            }
            case RingStatus::need_mapping:
                if (!lookup.map_missing()) return 0;
                break;
            case RingStatus::no_room:
            case RingStatus::full:
            case RingStatus::too_large:
            case RingStatus::damaged:
                raise_damaged();
        }
    }
}

nb::object read_message(PyRing& self, EncodedMessage& message, EncodedValue& encoded, bool common = false) {
    std::size_t received = 0;
    bool truncated = false;
    try {
        encoded.blocks.reserve(message.holds.size());
        for (; received < message.holds.size(); ++received) {
            Block* block = nullptr;
            const Status status = self.client().receive(message.holds[received], &block);
            if (status == Status::ok) encoded.blocks.push_back(block);
            truncated |= status == Status::lost;
        }
    } catch (...) {  // no memory
        for (; received < message.holds.size(); ++received) self.client().drop(message.holds[received]);
        throw;
    }
    if (truncated) raise(queue_errors.lost, std::string(kTakenOut) + kTruncated);
    if (encoded.blocks.size() != message.holds.size()) raise_damaged();
    const std::byte* body = message.body.data();
    std::size_t bytes = message.body.size();
    if (message.flags & kBodyInBlock) {
        if (encoded.blocks.empty()) raise_damaged();
        body = encoded.blocks.back()->data();
        bytes = encoded.blocks.back()->bytes;
    }
    PyObject* value = decode(body, bytes, encoded.blocks, common);
    if (!value) throw nb::python_error();
    return nb::steal(value);
}

nb::object get(PyRing& self, bool wait, nb::handle timeout, nb::handle receipt) {
    require_members(self);
    const std::uint64_t deadline = deadline_of(wait, timeout);
    std::atomic<std::uint64_t>* cell = nullptr;
    if (!receipt.is_none()) {
        const Block& block = *nb::inst_ptr<PyBlock>(receipt)->block;
        if (block.bytes < sizeof *cell) throw nb::value_error("a receipt takes 8 bytes");
        cell = reinterpret_cast<std::atomic<std::uint64_t>*>(block.data());
    }
    ScratchLease scratch;
    if (collect(self, {&scratch->message, 1}, deadline, cell) == 0) {
        PyErr_SetNone(queue_errors.empty);
        throw nb::python_error();
    }
    return read_message(self, scratch->message, scratch->encoded);
}

nb::list get_many(PyRing& self, std::size_t max_items, bool wait, nb::handle timeout) {
    require_members(self);
    const std::uint64_t deadline = deadline_of(wait, timeout);
    std::vector<EncodedMessage> messages(std::min({max_items, kBatch, std::max<std::size_t>(self.ring.size(), 1)}));
    nb::list values;
    std::exception_ptr problem;
    while (values.size() < max_items && !problem) {
        std::size_t got = 0;
        try {
            const std::size_t want = std::min(messages.size(), max_items - values.size());
            got = collect(self, std::span(messages).first(want), values.size() ? 0 : deadline, nullptr);
        } catch (...) {
            problem = std::current_exception();
        }
        if (got == 0) break;
        for (EncodedMessage& message : std::span(messages).first(got)) {
            EncodedValue encoded;
            try {
                values.append(read_message(self, message, encoded));
            } catch (...) {
                if (!problem) problem = std::current_exception();
            }
        }
    }
    try {  // a signal that came meanwhile, while it can be told what was taken
        if (!problem && values.size() > 0 && PyErr_CheckSignals() != 0) throw nb::python_error();
    } catch (...) {
        problem = std::current_exception();
    }
    if (problem) {
        // The others are out of the queue as well; nobody but the caller can have them now.
        try {
            std::rethrow_exception(problem);
        } catch (...) {
            add_to_error("messages", values);
        }
    }
    if (values.size() == 0 && max_items > 0) {
        PyErr_SetNone(queue_errors.empty);
        throw nb::python_error();
    }
    return values;
}

// Wait without the GIL, in slices between which signals are looked at, until is_so() or the time is up.
template <class IsSo, class Wait>
bool await(PyRing& self, nb::handle timeout, IsSo&& is_so, Wait&& wait) {
    const std::uint64_t deadline = deadline_of(true, timeout);
    while (!is_so()) {
        const std::uint64_t left = left_of(deadline);
        if (left == 0) return false;
        {
            const Unlocked unlocked;
            wait(left);
        }
        look_around(self.self);
    }
    return true;
}
bool await_message(PyRing& self, nb::handle timeout) {
    return await(
        self, timeout, [&] { return self.ring.size() > 0; },
        [&](std::uint64_t left) { self.ring.await_message(left); });
}
bool await_room(PyRing& self, nb::handle timeout, std::uint32_t taken) {
    return await(
        self, timeout, [&] { return self.ring.taken() != taken; },
        [&](std::uint64_t left) { self.ring.await_room(taken, left); });
}
bool await_done(PyRing& self, nb::handle timeout) {
    return await(
        self, timeout, [&] { return self.ring.is_all_done(); },
        [&](std::uint64_t left) { self.ring.await_done(left); });
}

std::uint32_t pid_of(PyRing& self, const Lock& lock) {
    const std::uint32_t slot = lock.holder.load(std::memory_order_relaxed);
    return slot < kMaxSlots ? self.client().group().slot(slot).pid.load() : 0;
}

}  // namespace

RingParts parts_of(nb::handle object) {
    auto& self = nb::cast<PyRing&>(object);
    return {self.self, self.client_object, self.ring, self.make_room};
}

Event event_of(nb::handle object) {
    return event_of(*nb::inst_ptr<PyRing>(object), kRequest);
}

nb::object read_common(nb::handle object, EncodedMessage& message) {
    struct Taken {  // whatever becomes of the value, the holds are not the message's any more
        EncodedMessage& message;
        ~Taken() { message.holds.clear(); }
    } taken{message};
    EncodedValue encoded;
    return read_message(*nb::inst_ptr<PyRing>(object), message, encoded, true);
}

void add_queue(nb::module_& m) {
    const nb::object errors = nb::module_::import_("shmtensor.errors");
    const auto error = [&](const char* name) { return errors.attr(name).inc_ref().ptr(); };
    const nb::module_ standard = nb::module_::import_("_queue");
    // queue.Full is Python's own; importing queue costs, so it is looked up when the first ring is made.
    queue_errors = {nullptr,
                    standard.attr("Empty").inc_ref().ptr(),
                    error("MessageTooLarge"),
                    error("QueueDamaged"),
                    error("SegmentLost"),
                    error("StallWarning")};
    m.attr("RING_BYTES") = kRingBytes;

    nb::class_<PyRing>(m, "Ring", nb::is_final(), nb::is_weak_referenceable())
        .def(
            "__init__",
            [](PyRing* self, nb::object client, nb::object block, nb::object need_event) {
                if (!queue_errors.full) queue_errors.full = nb::module_::import_("queue").attr("Full").inc_ref().ptr();
                nb::cast<PyClient&>(client);
                nb::cast<PyBlock&>(block);
                new (self) PyRing(std::move(client), std::move(block), std::move(need_event));
            },
            nb::arg("client"), nb::arg("block"), nb::arg("need_event"))
        .def(
            "bound",
            [](PyRing& self, std::uint32_t messages, std::uint64_t bytes) {
                RingHeader& h = self.ring.header();
                std::uint32_t no_messages = 0;
                if (messages != 0) h.max_messages.compare_exchange_strong(no_messages, messages);
                std::uint64_t no_bytes = 0;
                if (bytes != 0) h.max_bytes.compare_exchange_strong(no_bytes, bytes);
                return std::tuple{h.max_messages.load(), h.max_bytes.load()};
            },
            nb::arg("messages"), nb::arg("nbytes"))
        .def(
            "policy",
            [](PyRing& self, std::uint32_t wanted) {
                auto found = static_cast<std::uint32_t>(Policy::unset);
                return self.ring.header().policy.compare_exchange_strong(found, wanted) ? wanted : found;
            },
            nb::arg("wanted") = static_cast<std::uint32_t>(Policy::unset))
        .def_prop_ro("block", [](PyRing& self) { return self.block_object; })
        .def_prop_rw(
            "kind", [](PyRing& self) { return self.ring.header().kind.load(); },
            [](PyRing& self, std::uint32_t kind) { self.ring.header().kind.store(kind); })
        .def("put", &put, nb::arg("value").none(), nb::arg("block") = true, nb::arg("timeout") = nb::none())
        .def("put_many", &put_many, nb::arg("values"), nb::arg("block") = true, nb::arg("timeout") = nb::none())
        .def("get", &get, nb::arg("block") = true, nb::arg("timeout") = nb::none(), nb::arg("receipt") = nb::none())
        .def("get_many", &get_many, nb::arg("max_items"), nb::arg("block") = true, nb::arg("timeout") = nb::none())
        .def("size", [](PyRing& self) { return self.ring.size(); })
        .def("is_full", [](PyRing& self) { return self.ring.is_full(); })
        .def("task_done", [](PyRing& self) { return self.ring.task_done(); })
        .def("await_message", &await_message, nb::arg("timeout") = nb::none())
        .def("taken", [](PyRing& self) { return self.ring.taken(); })
        .def("await_room", &await_room, nb::arg("timeout"), nb::arg("taken"))
        .def("await_done", &await_done, nb::arg("timeout") = nb::none())
        .def("event", [](PyRing& self) { return event_of(self, kRequest)->number(); })
        .def("limits",
             [](PyRing& self) {
                 const RingHeader& h = self.ring.header();
                 return std::tuple{h.max_messages.load(), h.max_bytes.load()};
             })
        .def("stats", [](PyRing& self) {
            const RingHeader& h = self.ring.header();
            const std::uint64_t head = h.head.word.load(), tail = h.tail.word.load();
            return std::tuple{count_of(tail) - count_of(head),
                              h.peak_messages.load(),
                              count_of(tail),
                              count_of(head),
                              h.put_bytes.load() - h.got_bytes.load(),
                              h.put_bytes.load(),
                              std::uint64_t{h.capacity.load()} * kRingUnit,
                              count_of(tail) - h.done.load(),
                              pid_of(self, h.put_lock),
                              pid_of(self, h.get_lock)};
        });
}

}  // namespace shmtensor
