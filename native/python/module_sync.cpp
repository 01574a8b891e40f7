// The bindings of sync.hpp: blocks as locks, semaphores, events and wait queues; waits without the GIL that handle
// signals.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "ipc/sync.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/objects.hpp"
#include "python/waits.hpp"

namespace shmtensor {
namespace {

constexpr const char* kTooOften = "semaphore or lock released too many times";

// The common part of all objects here: an object in a block, and this process's access to it.
template <class Shared>
struct Over {
    nb::object keep;
    Client* client;
    Shared* at;
    Spin spin;

    sync::ClientThread self() const {
        if (!client->may_touch()) raise_not_held(*client);
        return {client->group(), client->slot(), sync::thread_number()};
    }
    void touch() const {
        if (!client->may_touch()) raise_not_held(*client);
    }
};

// Check that the block can contain a `kind`. `fresh`: write its content; otherwise it must already contain one.
template <class Shared>
Over<Shared> over(nb::object object, SyncKind kind, bool fresh) {
    if (!nb::isinstance<PyBlock>(object)) raise(PyExc_TypeError, "a shared block is needed");
    const Block& block = *nb::inst_ptr<PyBlock>(object)->block;
    if (!block.client->may_touch()) raise_not_held(*block.client);
    if (block.segment->on_device()) raise(PyExc_ValueError, "the block is memory of a GPU, which holds no locks");
    auto* at = reinterpret_cast<Shared*>(block.data());
    if (block.bytes < sizeof(Shared))
        raise(PyExc_ValueError, "a block of " + std::to_string(block.bytes) + " bytes is too small; " +
                                    std::to_string(sizeof(Shared)) + " are needed");
    if (fresh) {
        std::fill_n(block.data(), block.bytes, std::byte{0});
        at->header = {kSyncMagic, kind};
    } else if (at->header.magic != kSyncMagic || at->header.kind != kind) {
        raise(PyExc_ValueError,
              at->header.magic != kSyncMagic
                  ? "the block holds no lock, semaphore, event or condition, or its content was overwritten"
                  : "the block holds another kind of lock than the expected one");
    }
    return {std::move(object), block.client, at, {}};
}

// Wait after a failed try, as wait_in_slices (waits.hpp).
template <class Wait>
bool wait_for(const Client& client, std::uint64_t deadline, Wait&& wait) {
    return wait_in_slices(*nb::inst_ptr<PyClient>(wrapper_of(client)), deadline, kLook, std::forward<Wait>(wait));
}

// --------------------------------------------------------------------------------------------------------------- locks

struct PyLock : Over<SharedLock> {
    bool recursive;
    std::uint64_t looked = 0;  // when a failed try last looked up the holder in /proc

    bool acquire(bool block, nb::handle timeout) {
        const sync::ClientThread me = self();
        if (recursive && sync::is_mine(*at, me)) {
            at->depth.store(at->depth.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            return true;
        }
        const std::uint64_t deadline = deadline_of(block, timeout);
        if (sync::try_lock(*at, me)) [[likely]]
            return true;
        if (block)
            return wait_for(*client, deadline, [&](std::uint64_t ns) { return sync::wait_lock(*at, me, spin, ns); });
        const std::uint64_t now = os::monotonic_ns();
        if (now - looked < kLook) return false;
        looked = now;
        return sync::try_lock(*at, me, true);
    }
    void release() {
        if (recursive) {
            if (!sync::is_mine(*at, self()))
                raise(PyExc_AssertionError, "attempt to release recursive lock not owned by thread");
            const std::uint32_t depth = at->depth.load(std::memory_order_relaxed);
            if (depth > 1) {
                at->depth.store(depth - 1, std::memory_order_relaxed);
                return;
            }
        } else {
            touch();
        }
        if (!sync::unlock(*at)) raise(PyExc_ValueError, kTooOften);
    }
    bool is_mine() const { return sync::is_mine(*at, self()); }
    std::uint32_t count() const {  // of this process
        const auto holder = static_cast<std::uint32_t>(at->word.load()) & ~kAsleep;
        if (holder != self().identity()) return 0;
        return recursive ? at->depth.load(std::memory_order_relaxed) : 1;
    }
    std::uint32_t value() const { return touch(), at->word.load() == 0; }
    std::uint32_t maxvalue() const { return 1; }
    std::optional<std::uint32_t> owner_pid() const {
        const std::uint32_t pid = sync::owner_pid(*at, self());
        return pid == 0 ? std::nullopt : std::optional(pid);
    }
};

struct PySemaphore : Over<SharedSemaphore> {
    // Units that this process took and did not give back, and the thread that took the last one, which the standard
    // library treats as the owner in each process.
    int taken = 0;
    std::uint32_t slot = kNone, thread = 0;

    void own() {
        if (slot == client->slot()) return;  // otherwise new, or in a forked child
        taken = 0;
        slot = client->slot();
    }
    bool acquire(bool block, nb::handle timeout) {
        touch();
        const std::uint64_t deadline = deadline_of(block, timeout);
        const auto wait = [&](std::uint64_t ns) { return sync::wait_take(*at, spin, ns); };
        if (!sync::try_take(*at) && !(block && wait_for(*client, deadline, wait))) return false;
        own();
        ++taken;
        thread = sync::thread_number();
        return true;
    }
    void release() {
        touch();
        if (!sync::give(*at)) raise(PyExc_ValueError, kTooOften);
        own();
        --taken;
    }
    bool is_mine() { return own(), taken > 0 && thread == sync::thread_number(); }
    int count() { return own(), taken; }
    std::uint32_t value() const { return touch(), sync::free_units(*at); }
    std::uint32_t maxvalue() const { return sync::max_units(*at); }
};

// acquire and release parse their arguments by hand, since nanobind's parsing would take half of their time. So they
// must check for an object made without __init__ themselves: nullptr, with an exception set.
template <class Object>
Object* made(PyObject* object) {
    if (nb::inst_ready(object)) [[likely]]
        return nb::inst_ptr<Object>(object);
    PyErr_SetString(PyExc_TypeError, "__init__ of this lock was not called");
    return nullptr;
}

template <class Object>
PyObject* acquire(PyObject* object, PyObject* const* values, Py_ssize_t positional, PyObject* names) {
    Object* const self = made<Object>(object);
    if (!self) return nullptr;
    PyObject* given[2] = {Py_True, Py_None};
    if (positional > 2) {
        PyErr_Format(PyExc_TypeError, "acquire() takes at most 2 arguments, block and timeout, not %zd", positional);
        return nullptr;
    }
    std::copy_n(values, positional, given);
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
        PyObject* name = PyTuple_GET_ITEM(names, i);
        const int at = PyUnicode_CompareWithASCIIString(name, "block") == 0     ? 0
                       : PyUnicode_CompareWithASCIIString(name, "timeout") == 0 ? 1
                                                                                : -1;
        if (at < positional) {
            PyErr_Format(PyExc_TypeError, "acquire() got %R %s", name, at < 0 ? "as an unexpected argument" : "twice");
            return nullptr;
        }
        given[at] = values[positional + i];
    }
    const int block = PyObject_IsTrue(given[0]);
    if (block < 0) return nullptr;
    try {
        return PyBool_FromLong(self->acquire(block, given[1]));
    } catch (nb::python_error& error) {
        error.restore();
        return nullptr;
    }
}

template <class Object>
PyObject* release(PyObject* object, PyObject*) {
    Object* const self = made<Object>(object);
    if (!self) return nullptr;
    try {
        self->release();
        Py_RETURN_NONE;
    } catch (nb::python_error& error) {
        error.restore();
        return nullptr;
    }
}

template <class Object>
PyObject* exit(PyObject* object, PyObject* const*, Py_ssize_t) {
    return release<Object>(object, nullptr);
}

template <class Object>
PyMethodDef hot_methods[] = {
    {"acquire", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(acquire<Object>)),
     METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"release", release<Object>, METH_NOARGS, nullptr},
    {"__enter__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(acquire<Object>)),
     METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(exit<Object>)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
template <class Object>
PyType_Slot hot_slots[] = {{Py_tp_methods, hot_methods<Object>}, {0, nullptr}};

// ---------------------------------------------------------------------------------------------- events and wait queues

struct PyEvent : Over<SharedEvent> {
    bool wait(nb::handle timeout) {
        touch();
        const std::uint64_t deadline = deadline_of(true, timeout);
        const std::uint32_t before = sync::times_set(*at);  // first, so that no later set() is missed
        if (sync::is_set(*at)) return true;
        return wait_for(*client, deadline, [&](std::uint64_t ns) { return sync::wait_set(*at, before, spin, ns); });
    }
};

struct PyWaitQueue : Over<SharedWaitQueue> {
    std::uint32_t capacity;
    sync::WaitQueue queue() const { return {*at, capacity}; }
};

// One entry of a wait queue. It ends with this object at the latest, even after an exception.
struct PyPlace {
    PyPlace(nb::object queue_object, PyWaitQueue& of, sync::WaitQueue::Place taken)
        : keep(std::move(queue_object)), queue(of), place(taken), slot(of.client->slot()) {}
    PyPlace(const PyPlace&) = delete;
    ~PyPlace() { leave(); }

    // True: it had been notified.
    bool leave() {
        // In a forked child, the entry belongs to the parent.
        const bool ours = place.index != kNone && queue.client->may_touch() && queue.client->slot() == slot;
        const bool notified = ours && queue.queue().leave(place);
        place.index = kNone;
        return notified;
    }
    bool wait(nb::handle timeout) {
        if (place.index == kNone) raise(PyExc_ValueError, "this place in the wait queue was left");
        const std::uint64_t deadline = deadline_of(true, timeout);
        wait_for(*queue.client, deadline, [&](std::uint64_t ns) { return queue.queue().wait(place, queue.spin, ns); });
        return leave();
    }
    nb::object keep;
    PyWaitQueue& queue;
    sync::WaitQueue::Place place;
    std::uint32_t slot;
};

// The methods of the standard library's SemLock, for locks and semaphores.
template <class Object>
nb::class_<Object> add_semlock(nb::module_& m, const char* name) {
    return nb::class_<Object>(m, name, nb::is_final(), nb::type_slots(hot_slots<Object>))
        .def_prop_ro("block", [](Object& o) { return o.keep; })
        .def_prop_ro("handle", [](Object& o) { return reinterpret_cast<std::uintptr_t>(o.at); })
        .def_prop_ro("name", [](Object&) { return nb::none(); })
        .def_prop_ro("maxvalue", &Object::maxvalue)
        .def_prop_ro("kind", [](Object&) { return 1; })
        .def("_is_mine", &Object::is_mine)
        .def("_count", &Object::count)
        .def("_get_value", &Object::value)
        .def("_is_zero", [](Object& o) { return o.value() == 0; })
        .def("check_invariants", [](Object& o) { o.touch(), require_sound(sync::check(*o.at)); })
        .def("_after_fork", [](Object&) {});
}

void make_lock(PyLock* self, nb::object block, bool recursive, bool fresh) {
    const SyncKind kind = recursive ? SyncKind::recursive : SyncKind::lock;
    new (self) PyLock{over<SharedLock>(std::move(block), kind, fresh), recursive};
}

void make_semaphore(PySemaphore* self, nb::object block, bool bounded, bool fresh) {
    auto found = over<SharedSemaphore>(std::move(block), SyncKind::semaphore, fresh);
    if (fresh) {
        found.at->bounded = bounded;
        found.at->word.store(1 << 1);
    } else if ((found.at->bounded != 0) != bounded) {
        raise(PyExc_ValueError, bounded ? "a semaphore without a bound" : "a bounded semaphore");
    }
    new (self) PySemaphore{std::move(found)};
}

void add_locks(nb::module_& m) {
    m.attr("LOCK_BYTES") = sizeof(SharedLock);
    add_semlock<PyLock>(m, "Mutex")
        .def("__init__", &make_lock, nb::arg("block"), nb::arg("recursive"), nb::arg("fresh"))
        .def_prop_ro("owner_died", [](PyLock& self) { return self.touch(), self.at->inherited.load() != 0; })
        .def_prop_ro("owner_pid", &PyLock::owner_pid);
    add_semlock<PySemaphore>(m, "Units")
        .def("__init__", &make_semaphore, nb::arg("block"), nb::arg("bounded"), nb::arg("fresh"))
        .def(
            "first",
            [](PySemaphore& self, std::uint32_t units) { return self.touch(), sync::first_units(*self.at, units); },
            nb::arg("units"));
}

void make_event(PyEvent* self, nb::object block, bool fresh) {
    new (self) PyEvent{over<SharedEvent>(std::move(block), SyncKind::event, fresh)};
}

void add_event(nb::module_& m) {
    nb::class_<PyEvent>(m, "Flag", nb::is_final())
        .def("__init__", &make_event, nb::arg("block"), nb::arg("fresh"))
        .def_prop_ro("block", [](PyEvent& self) { return self.keep; })
        .def("is_set", [](PyEvent& self) { return self.touch(), sync::is_set(*self.at); })
        .def("set", [](PyEvent& self) { self.touch(), sync::set(*self.at); })
        .def("clear", [](PyEvent& self) { self.touch(), sync::clear(*self.at); })
        .def("wait", &PyEvent::wait, nb::arg("timeout").none() = nb::none())
        .def("check_invariants", [](PyEvent& self) { self.touch(), require_sound(sync::check(*self.at)); });
}

// --------------------------------------------------------------------------------------------------------- wait queues

std::size_t bytes_for(std::uint32_t entries) {
    if (entries == 0 || entries > kMaxSlots) throw nb::value_error("a wait queue has 1 to 8192 entries");
    return wait_queue_bytes(entries);
}

void make_wait_queue(PyWaitQueue* self, nb::object block, bool fresh) {
    auto made = over<SharedWaitQueue>(std::move(block), SyncKind::wait_queue, fresh);
    const std::uint64_t bytes = nb::inst_ptr<PyBlock>(made.keep)->block->bytes;
    const std::uint64_t entries = (bytes - sizeof(SharedWaitQueue)) / sizeof(SharedWaitQueue::Entry);
    new (self) PyWaitQueue{std::move(made), static_cast<std::uint32_t>(entries)};
}

nb::object enter(const nb::object& object) {
    auto& self = *nb::inst_ptr<PyWaitQueue>(object);
    const sync::WaitQueue::Place place = self.queue().enter(self.self());
    if (place.index == kNone) return nb::none();
    return nb::cast(new PyPlace(object, self, place), nb::rv_policy::take_ownership);
}

std::uint32_t notify(PyWaitQueue& self, std::int64_t max_waiters) {
    const auto bounded = std::clamp<std::int64_t>(max_waiters, 0, kMaxSlots);
    return self.queue().notify(self.self(), static_cast<std::uint32_t>(bounded));
}

bool has_dead(PyPlace& self) {
    return self.place.index != kNone && self.queue.queue().has_dead(self.queue.self(), self.place);
}

void add_wait_queue(nb::module_& m) {
    m.attr("WAIT_QUEUE_ENTRIES") = kWaitQueueEntries;
    m.def("wait_queue_bytes", &bytes_for);
    nb::class_<PyWaitQueue>(m, "WaitQueue", nb::is_final())
        .def("__init__", &make_wait_queue, nb::arg("block"), nb::arg("fresh"))
        .def_prop_ro("block", [](PyWaitQueue& self) { return self.keep; })
        .def_prop_ro("capacity", [](PyWaitQueue& self) { return self.capacity; })
        .def_prop_rw(
            "state", [](PyWaitQueue& self) { return self.touch(), self.at->state.load(); },
            [](PyWaitQueue& self, std::int32_t state) { self.touch(), self.at->state.store(state); })
        .def("enter", &enter)
        .def("notify", &notify)
        .def("waiting", [](PyWaitQueue& self) { return self.queue().waiting(self.self()); })
        .def("check_invariants", [](PyWaitQueue& self) { self.touch(), require_sound(self.queue().check()); })
        .def(
            "forget_dead",
            [](PyWaitQueue& self, bool thorough) { return self.queue().forget_dead(self.self(), thorough); },
            nb::arg("thorough"));
    nb::class_<PyPlace>(m, "WaitQueueEntry", nb::is_final())
        .def("wait", &PyPlace::wait, nb::arg("timeout").none())
        .def("leave", &PyPlace::leave)
        .def("has_dead", &has_dead);
}

}  // namespace

void add_sync(nb::module_& m) {
    add_locks(m);
    add_event(m);
    add_wait_queue(m);
}

}  // namespace shmtensor
