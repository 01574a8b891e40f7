// The binding of rings.hpp: _native.Ring, a client's view of a queue.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "ipc/ring.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/results.hpp"
#include "python/rings.hpp"
#include "python/waits.hpp"

namespace shmtensor {
namespace {

struct RingBounds {  // 0: none
    std::uint32_t maxsize;
    std::uint64_t maxbytes;
};
struct RingStats {
    std::uint32_t messages, peak_messages, put, taken;
    std::uint64_t nbytes, put_nbytes, capacity_nbytes;
    std::uint32_t unfinished, put_lock_pid, get_lock_pid;
};

}  // namespace

template <>
struct Result<RingBounds> {
    static constexpr const char* name = "RingBounds";
    static constexpr std::tuple fields{field("maxsize", &RingBounds::maxsize),
                                       field("maxbytes", &RingBounds::maxbytes)};
};
template <>
struct Result<RingStats> {
    static constexpr const char* name = "RingStats";
    static constexpr std::tuple fields{field("messages", &RingStats::messages),
                                       field("peak_messages", &RingStats::peak_messages),
                                       field("put", &RingStats::put),
                                       field("taken", &RingStats::taken),
                                       field("nbytes", &RingStats::nbytes),
                                       field("put_nbytes", &RingStats::put_nbytes),
                                       field("capacity_nbytes", &RingStats::capacity_nbytes),
                                       field("unfinished", &RingStats::unfinished),
                                       field("put_lock_pid", &RingStats::put_lock_pid),
                                       field("get_lock_pid", &RingStats::get_lock_pid)};
};

namespace {

// Wait without the GIL until is_so() or the time is up, in slices between which signals are handled.
template <class IsSo, class Wait>
bool await(PyRing& self, nb::handle timeout, IsSo&& is_so, Wait&& wait) {
    const std::uint64_t deadline = deadline_of(true, timeout);
    const auto ask = [&](unsigned = 0) { return static_cast<bool>(is_so()); };
    return retry(ask(), ask, [&](bool is) {
        const std::uint64_t left = is ? 0 : left_of(deadline);
        if (left == 0) return kDone;
        sleep_without_gil(self.self, [&] { wait(left); });
        return 0;
    });
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

void make_ring(PyRing* self, nb::object client, nb::object block, nb::object need_event) {
    if (!load_queue_full()) throw nb::python_error();
    nb::cast<PyClient&>(client);
    nb::cast<PyBlock&>(block);
    new (self) PyRing(std::move(client), std::move(block), std::move(need_event));
}

std::size_t put_buffer(PyRing& self, nb::handle frames, const nb::list& blocks, std::uint64_t commit, bool pickled) {
    Py_buffer view{};
    if (PyObject_GetBuffer(frames.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> released(&view, PyBuffer_Release);
    return put_frames(self, {static_cast<const std::byte*>(view.buf), static_cast<std::size_t>(view.len)}, blocks,
                      commit, pickled);
}

bool await_beyond(PyRing& self, nb::handle timeout, std::uint32_t put) {
    return await(
        self, timeout, [&] { return count_of(self.ring.header().tail.at.word.load()) != put; },
        [&](std::uint64_t left) { self.ring.await_beyond(put, left); });
}

RingBounds bounds_of(PyRing& self) {
    const RingHeader& h = self.ring.header();
    return {h.max_messages.load(), h.max_bytes.load()};
}

// Set each bound that is not set yet.
RingBounds bound(PyRing& self, std::uint32_t messages, std::uint64_t bytes) {
    RingHeader& h = self.ring.header();
    std::uint32_t no_messages = 0;
    if (messages != 0) h.max_messages.compare_exchange_strong(no_messages, messages);
    std::uint64_t no_bytes = 0;
    if (bytes != 0) h.max_bytes.compare_exchange_strong(no_bytes, bytes);
    return bounds_of(self);
}

std::uint32_t policy(PyRing& self, std::uint32_t wanted) {
    auto found = static_cast<std::uint32_t>(Policy::unset);
    return self.ring.header().policy.compare_exchange_strong(found, wanted) ? wanted : found;
}

// Maps segments first if needed: messages may hold blocks of segments that are not mapped here yet.
void check_invariants(PyRing& self) {
    self.require_client();
    ClientLookup lookup(self.self, 0);
    const char* wrong = nullptr;
    do {
        lookup.missing = 0;
        wrong = self.ring.check(lookup);
    } while (lookup.missing != 0 && lookup.map_missing());
    require_sound(wrong);
}

std::uint32_t pid_of(PyRing& self, const Lock& lock) {
    const std::uint32_t slot = lock.holder.load(std::memory_order_relaxed);
    return slot < kMaxSlots ? self.client().group().slot(slot).pid.load() : 0;
}

RingStats stats(PyRing& self) {
    const RingHeader& h = self.ring.header();
    const std::uint64_t head = h.head.at.word.load(), tail = h.tail.at.word.load();
    return {.messages = count_of(tail) - count_of(head),
            .peak_messages = h.peak_messages.load(),
            .put = count_of(tail),
            .taken = count_of(head),
            .nbytes = h.tail.bytes.load() - h.head.bytes.load(),
            .put_nbytes = h.tail.bytes.load(),
            .capacity_nbytes = std::uint64_t{h.capacity.load()} * kRingUnit,
            .unfinished = count_of(tail) - h.done.load(),
            .put_lock_pid = pid_of(self, h.tail.lock),
            .get_lock_pid = pid_of(self, h.head.lock)};
}

}  // namespace

void add_queue(nb::module_& m) {
    add_result<RingBounds>(m);
    add_result<RingStats>(m);
    add_result<RunOfMessages>(m);
    m.attr("COPY_TENSORS") = static_cast<unsigned>(kCopyTensors);
    m.attr("REFUSE_PICKLE") = static_cast<unsigned>(kRefusePickle);
    m.attr("PICKLE_BY_VALUE") = static_cast<unsigned>(kPickleByValue);
    nb::class_<PyRing>(m, "Ring", nb::is_final(), nb::is_weak_referenceable())
        .def("__init__", &make_ring, nb::arg("client"), nb::arg("block"), nb::arg("need_event"))
        .def("bound", &bound, nb::arg("messages"), nb::arg("nbytes"))
        .def("policy", &policy, nb::arg("wanted") = static_cast<std::uint32_t>(Policy::unset))
        .def_prop_ro("block", [](PyRing& self) { return self.block_object; })
        .def_prop_rw(
            "kind", [](PyRing& self) { return self.ring.header().kind.load(); },
            [](PyRing& self, std::uint32_t kind) { self.ring.header().kind.store(kind); })
        .def_prop_rw(
            "form", [](PyRing& self) { return self.form; }, [](PyRing& self, unsigned form) { self.form = form; })
        .def_prop_rw(
            "look", [](PyRing& self) { return self.look.is_valid() ? self.look : nb::none(); },
            [](PyRing& self, nb::object look) { self.look = look.is_none() ? nb::object() : std::move(look); },
            nb::arg("look").none())
        .def_prop_rw(
            "copied", [](PyRing& self) { return self.ring.header().copied.load() != 0; },
            [](PyRing& self, bool copied) { self.ring.header().copied.store(copied ? 1 : 0); })
        .def("put", &put, nb::arg("value").none(), nb::arg("block") = true, nb::arg("timeout") = nb::none())
        .def("put_many", &put_many, nb::arg("values"), nb::arg("block") = true, nb::arg("timeout") = nb::none())
        .def("peek", &peek, nb::arg("max_bytes"), nb::arg("max_messages"))
        .def("take", &take, nb::arg("number"), nb::arg("messages"), nb::arg("commit"))
        .def("put_frames", &put_buffer, nb::arg("frames"), nb::arg("blocks"), nb::arg("commit"), nb::arg("pickled"))
        .def("commit_number", &commit_number, nb::arg("of_puts"))
        .def("get", &get, nb::arg("block") = true, nb::arg("timeout") = nb::none(), nb::arg("receipt") = nb::none())
        .def("get_many", &get_many, nb::arg("max_items"), nb::arg("block") = true, nb::arg("timeout") = nb::none())
        .def("size", [](PyRing& self) { return self.ring.size(); })
        .def("is_full", [](PyRing& self) { return self.ring.is_full(); })
        .def("task_done", [](PyRing& self) { return self.ring.task_done(); })
        .def("await_message", &await_message, nb::arg("timeout") = nb::none())
        .def("taken", [](PyRing& self) { return self.ring.taken(); })
        .def("await_room", &await_room, nb::arg("timeout"), nb::arg("taken"))
        .def("await_beyond", &await_beyond, nb::arg("timeout"), nb::arg("put"))
        .def("await_done", &await_done, nb::arg("timeout") = nb::none())
        .def("event", [](PyRing& self) { return event_of(self)->number(); })
        .def("limits", &bounds_of)
        .def("check_invariants", &check_invariants)
        .def("stats", &stats);
}

}  // namespace shmtensor
