#include "python/rings.hpp"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "python/errors.hpp"
#include "python/waits.hpp"

namespace shmtensor {
namespace {

constexpr std::uint64_t kStall = 10'000'000'000;  // ns for which a lock stays held before that is reported
constexpr std::uint64_t kAtOnce = 1'000'000'000;  // ns that a non-blocking call waits for a lock, whose holder copies
constexpr std::uint64_t kLookAgain = 10'000'000;  // ns between two checks whether the manager has undone a transfer
constexpr unsigned kUndone = 50;                  // such checks before it is an error
constexpr double kAsked = 1;                      // seconds that a put or get waits for the ring's event
constexpr std::size_t kKept = 1 << 20;            // bytes of room that a scratch buffer keeps

}  // namespace

PyRing::PyRing(nb::object client_object_, nb::object block_object_, nb::object need_event_)
    : client_object(std::move(client_object_)),
      block_object(std::move(block_object_)),
      need_event(std::move(need_event_)),
      self(*nb::inst_ptr<PyClient>(client_object)),
      block(*nb::inst_ptr<PyBlock>(block_object)->block) {
    if (block.client != &self.client) throw nb::value_error("the block belongs to another client");
    if (block.segment->on_device() || !ring.open(block.data(), block.bytes, block.segment->file))
        raise(errors.queue_damaged, "the block is not a queue of this version; use the version that created it");
}

void PyRing::require_client() const {
    if (!client().may_touch()) raise_not_held(client());
}

// ---------------------------------------------------------------------------------------------------- between attempts

bool ClientLookup::map_missing() {
    if (missing == 0) raise_queue_damaged();  // not the number of a segment
    const std::uint64_t now = os::monotonic_ns();
    if (since_ == 0) {
        since_ = now;  // the first one is always requested, so that calls with a short timeout make progress
    } else if (now >= (deadline_ == 0 ? since_ + kAtOnce : deadline_)) {
        return false;
    }
    if (missing != gone) {
        nb::object why = client_.need_mapping(wrapper_of(client_.client), missing, false);
        if (why.is_none()) return true;
        gone = missing;
        why_ = std::move(why);
    } else if (++waited_ > kUndone) {
        client_.need_mapping(wrapper_of(client_.client), missing, true);
    } else {
        sleep_without_gil(client_, [] { os::sleep(kLookAgain); });
    }
    return true;
}

void ClientLookup::raise_lost() const {
    raise_message_lost(nb::str(why_).c_str());
}

int RingRetry::next(RingStatus status) {
    if (status == RingStatus::busy) return patience();
    if (status != RingStatus::need_mapping) raise_queue_damaged();
    return lookup_.map_missing() ? 0 : kDone;
}

// How long the next attempt may wait for the lock. Warns if the lock stays held.
int RingRetry::patience() {
    check_signals(ring_.self);
    const std::uint64_t now = os::monotonic_ns();
    if (since_ == 0) since_ = warned_ = now;
    const std::uint64_t end = deadline_ == 0 ? since_ + kAtOnce : deadline_;
    if (now >= end) return kDone;
    if (now - warned_ >= kStall) {
        warned_ = now;
        warn();
    }
    return static_cast<int>(std::clamp<std::uint64_t>((end - now) / 1'000'000, 1, kSlice));
}

void RingRetry::warn() const {
    const RingHeader& h = ring_.ring.header();
    End end = end_;
    std::uint32_t slot = (end == End::head ? h.head : h.tail).lock.holder.load(std::memory_order_relaxed);
    if (slot == 0 && end == End::tail) {  // a put that makes the ring larger needs both locks
        slot = h.head.lock.holder.load(std::memory_order_relaxed);
        end = End::head;
    }
    const std::uint32_t pid = slot < kMaxSlots ? ring_.client().group().slot(slot).pid.load() : 0;
    if (PyErr_WarnFormat(errors.stall, 1,
                         "process %u has kept the lock for %s a queue for 10 s; if it is stopped, continue or kill it",
                         pid, end == End::head ? "taking from" : "putting on") != 0)
        throw nb::python_error();
}

// ------------------------------------------------------------------------------------------------------------ watchers

namespace {

// False: the descriptor of the event is lost.
bool announce(PyRing& self) {
    ClientLookup lookup(self.self, 0);
    const Event event = self.event;
    const GilRelease released;
    return self.ring.announce(*event, self.client().slot(), lookup, kSlice);
}

// Raise the error where Python next handles pending calls, like an error of a signal handler.
void postpone(const nb::python_error& error) {
    const auto raise_it = [](void* value) {
        const nb::object held = nb::steal(static_cast<PyObject*>(value));
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(held.ptr())), held.ptr());
        return -1;
    };
    nb::object value = nb::borrow(error.value());
    if (Py_AddPendingCall(raise_it, value.ptr()) == 0) value.release();
}

}  // namespace

Event event_of(PyRing& self, double seconds) {
    if (self.event && self.event->is_ours()) return self.event;
    Event made = std::make_shared<const os::Descriptor>(nb::cast<int>(self.need_event(seconds)));
    if (self.event && self.event->is_ours()) return self.event;  // another thread was here
    self.event = made;
    announce(self);  // for messages put before the ring was watched
    return made;
}

void Watchers::ask() {
    const bool again = std::exchange(asked_, true);
    try {
        event_of(ring_, kAsked);
    } catch (nb::python_error& error) {
        if (!error.matches(PyExc_Exception)) throw;
        if (!again) error.discard_as_unraisable("the event of a queue");
    }
}

void Watchers::tell_them() {
    if (ring_.event && announce(ring_)) return;
    try {
        ask();  // also makes the event readable
    } catch (const nb::python_error& error) {
        postpone(error);
    }
}

// ----------------------------------------------------------------------------------------------------- scratch buffers

namespace {

std::vector<std::unique_ptr<ScratchBuffer>>& spare_buffers() {
    static thread_local std::vector<std::unique_ptr<ScratchBuffer>> spare;
    return spare;
}

}  // namespace

ScratchLease::ScratchLease() : spare_(spare_buffers()) {
    if (spare_.empty()) {
        scratch_ = std::make_unique<ScratchBuffer>();
    } else {
        scratch_ = std::move(spare_.back());
        spare_.pop_back();
    }
}

ScratchLease::~ScratchLease() {
    if (scratch_->message.body.capacity() > kKept || scratch_->encoded.body.capacity() > kKept) return;
    scratch_->encoded.clear();
    scratch_->message.body.clear();
    scratch_->message.holds.clear();
    spare_.push_back(std::move(scratch_));
}

void add_to_error(const char* name, nb::handle value) {
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

}  // namespace shmtensor
