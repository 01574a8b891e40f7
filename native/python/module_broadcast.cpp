// The binding of broadcast.hpp: how a Ring makes room as a broadcast does, and the readers of one.
#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <utility>

#include "ipc/broadcast.hpp"
#include "python/module.hpp"
#include "python/module_queue.hpp"

namespace shmtensor {
namespace {

constexpr std::size_t kKept = 1 << 20;  // bytes of room that the spare message keeps

PyObject *empty_error, *foreign_error, *quota_error;

// A message whose room is used again. A call inside a call of this thread gets a new one. What it holds is dropped.
struct ScratchMessage {
    explicit ScratchMessage(Client& c) : client(c), message(std::exchange(spare(), {})) {}
    ScratchMessage(const ScratchMessage&) = delete;
    ~ScratchMessage() {
        for (const MessageHold& hold : message.holds) client.drop(hold);
        message.holds.clear();
        if (message.body.capacity() <= kKept) spare() = std::move(message);
    }
    Client& client;
    EncodedMessage message;

   private:
    static EncodedMessage& spare() {
        static thread_local EncodedMessage one;
        return one;
    }
};

struct PyBroadcast {
    explicit PyBroadcast(nb::object ring)
        : ring_object(std::move(ring)), parts(parts_of(ring_object)), broadcast(parts.ring, client().group()) {
        parts.make_room = [this](ClientLookup& lookup, std::uint32_t taken) { return make_room(lookup, taken); };
    }
    PyBroadcast(const PyBroadcast&) = delete;
    ~PyBroadcast() { parts.make_room = nullptr; }
    Client& client() const { return parts.client.client; }
    ClientLookup lookup(std::uint64_t deadline) const { return {parts.client, parts.client_object, deadline}; }

    // Try until the core is through with it, or the time is up (busy, or empty).
    template <class Try>
    RingStatus retry_blocking(ClientLookup& lookup, std::uint64_t deadline, EncodedMessage* message, Try&& again);
    bool drop(ClientLookup& lookup, Drop which, std::uint32_t taken = 0);
    void tidy(ClientLookup& lookup);
    bool make_room(ClientLookup& lookup, std::uint32_t taken);

    nb::object ring_object;
    RingParts parts;
    Broadcast broadcast;
};

template <class Try>
RingStatus PyBroadcast::retry_blocking(ClientLookup& lookup, std::uint64_t deadline, EncodedMessage* message,
                                       Try&& again) {
    Stall stall(parts.ring, parts.client, deadline);
    for (unsigned patience = 0;;) {
        RingStatus result;
        if (patience == 0) {
            result = again(0u);
        } else {
            const Unlocked unlocked;
            result = again(patience);
        }
        patience = 0;
        lookup.after(result);
        if (result == RingStatus::ok || result == RingStatus::empty) return result;
        if (result != RingStatus::busy) stall.over();
        if (message) {
            for (const MessageHold& hold : message->holds) client().drop(hold);
            message->holds.clear();
        }
        switch (result) {
            case RingStatus::busy:
                patience = stall.patience(true);
                if (patience == 0) return result;
                break;
            case RingStatus::full:
                if (!message) return result;
                shmtensor::retry_blocking(
                    parts.client, parts.client_object,
                    [&](unsigned p) { return client().reserve_holds(lookup.missing, p); }, lookup.missing, 0);
                break;
            case RingStatus::need_mapping:
                if (!lookup.map_missing()) return RingStatus::busy;
                break;
            default:
                raise_damaged();
        }
    }
}

bool PyBroadcast::drop(ClientLookup& lookup, Drop which, std::uint32_t taken) {
    ScratchMessage scratch(client());
    return retry_blocking(lookup, 0, &scratch.message, [&](unsigned patience) {
               return broadcast.drop(scratch.message, which, taken, client().slot(), lookup, patience);
           }) == RingStatus::ok;
}

// Take out what all have read, as far as that needs neither waiting nor asking: nothing is raised. What stays goes when
// there is room to be made, or a reader waits.
void PyBroadcast::tidy(ClientLookup& lookup) {
    RingStatus result;
    do {
        ScratchMessage scratch(client());
        result = broadcast.drop(scratch.message, Drop::passed, 0, client().slot(), lookup, 0);
    } while (result == RingStatus::ok);
}

// No more goes than has to, but for what was kept for the sake of readers who have died since.
bool PyBroadcast::make_room(ClientLookup& lookup, std::uint32_t taken) {
    bool made = false;
    while (drop(lookup, Drop::passed)) made = true;
    if (made || drop(lookup, Drop::unneeded)) return true;
    if (parts.ring.header().policy.load() == static_cast<std::uint32_t>(Policy::drop_oldest) &&
        drop(lookup, Drop::oldest, taken))
        return true;
    return parts.ring.taken() != taken;  // by others
}

struct PyReader {
    explicit PyReader(nb::object made_by)
        : broadcast_object(std::move(made_by)), owner(*nb::inst_ptr<PyBroadcast>(broadcast_object)) {}
    PyReader(const PyReader&) = delete;
    ~PyReader() {
        close();
        if (view >= 0 && os::view_show(view, *event)) os::close(view);
    }

    bool is_mine() const {
        const Client& client = owner.client();
        return client.may_touch() && reader_slot(reader.owner) == client.slot() && owner.broadcast.has(reader);
    }
    void require() const {
        if (closed) throw nb::value_error("this reader is closed");
        if (!owner.client().may_touch()) raise_not_held(owner.client());
        if (!is_mine())
            raise(
                foreign_error,
                "this reader was made by another process, which reads with it; call reader() of the broadcast in this "
                "one");
    }
    void close() {
        if (!closed && is_mine()) owner.broadcast.leave(reader);
        closed = true;
    }
    int watch() {
        require();
        event = event_of(owner.ring_object);
        // One that the program has closed, perhaps to have something else under its number, is not ours any more.
        if (view < 0 || !os::view_show(view, *event))
            if (const int error = os::view_open(*event, &view)) raise_os(error);
        update_view();
        return view;
    }
    // After each read: the view, if somebody asked for it, is readable when there is something to read, and else not.
    void update_view() {
        if (view < 0 || owner.broadcast.lag(reader) > 0) return;
        if (!os::view_clear(view, *event)) {
            view = -1;
        } else if (owner.broadcast.lag(reader) > 0) {
            // Put in between: what its sender wrote may have been before the look.
            os::view_show(view, *event);
        }
    }

    nb::object broadcast_object;
    PyBroadcast& owner;
    Reader reader;
    bool closed = false;
    Event event;    // the ring's, once somebody asked
    int view = -1;  // this reader's of it; lives as long as this
};

std::unique_ptr<PyReader> make_reader(nb::object object, bool from_oldest) {
    auto& self = *nb::inst_ptr<PyBroadcast>(object);
    if (!self.client().may_touch()) raise_not_held(self.client());
    auto made = std::make_unique<PyReader>(std::move(object));
    ClientLookup lookup = self.lookup(0);
    const RingStatus result = self.retry_blocking(lookup, 0, nullptr, [&](unsigned patience) {
        return self.broadcast.join(made->reader, self.client().slot(), lookup, patience, from_oldest);
    });
    if (result == RingStatus::full)
        raise(quota_error, "a broadcast has at most " + std::to_string(kReaders) + " readers; close some");
    if (result != RingStatus::ok)
        raise(native_errors.lock_busy, "the broadcast stayed locked by another process for 1 s");
    return made;
}

nb::object read(PyReader& self, Next next, bool wait, nb::handle timeout) {
    self.require();
    PyBroadcast& owner = self.owner;
    const std::uint64_t deadline = deadline_of(wait, timeout);
    ScratchMessage scratch(owner.client());
    ClientLookup lookup = owner.lookup(deadline);
    const std::uint64_t skipped = self.reader.skipped;
    for (;;) {
        const RingStatus result = owner.retry_blocking(lookup, deadline, &scratch.message, [&](unsigned patience) {
            return owner.broadcast.read(scratch.message, self.reader, next, owner.client().slot(), lookup, patience);
        });
        if (result == RingStatus::ok) break;
        const std::uint64_t left = left_of(deadline);
        if (left == 0) {
            self.update_view();
            PyErr_SetNone(empty_error);
            throw nb::python_error();
        }
        {
            const Unlocked unlocked;
            owner.broadcast.await(self.reader, left);
        }
        look_around(owner.parts.client);
        self.require();  // a handler may have closed it
        // Nothing came: time to see to what the dead have left unread.
        if (owner.broadcast.lag(self.reader) == 0)
            while (owner.parts.ring.size() > 0 && owner.drop(lookup, Drop::passed)) {
            }
    }
    self.update_view();
    if (self.reader.skipped != skipped) owner.tidy(lookup);
    if (scratch.message.flags & kLost) lookup.raise_lost();
    return read_common(owner.ring_object, scratch.message);
}

}  // namespace

void add_cast(nb::module_& m) {
    const nb::object errors = nb::module_::import_("shmtensor.errors");
    empty_error = nb::module_::import_("_queue").attr("Empty").inc_ref().ptr();
    foreign_error = errors.attr("ForeignReader").inc_ref().ptr();
    quota_error = errors.attr("QuotaExceeded").inc_ref().ptr();
    m.attr("MAX_READERS") = kReaders;
    m.attr("POLICY_UNSET") = static_cast<int>(Policy::unset);
    m.attr("POLICY_BLOCK") = static_cast<int>(Policy::block);
    m.attr("POLICY_DROP_OLDEST") = static_cast<int>(Policy::drop_oldest);
    m.attr("POLICY_RAISE") = static_cast<int>(Policy::raise);

    nb::class_<PyBroadcast>(m, "BroadcastRing", nb::is_final(), nb::is_weak_referenceable())
        .def(nb::init<nb::object>(), nb::arg("ring"))
        .def("reader", &make_reader, nb::arg("from_oldest"))
        .def("readers", [](PyBroadcast& self) {
            nb::list found;
            for (const Broadcast::Member& member : self.broadcast.members())
                found.append(nb::make_tuple(self.client().group().slot(member.slot).pid.load(), member.lag));
            return found;
        });

    nb::class_<PyReader>(m, "BroadcastReader", nb::is_final())
        .def(
            "get",
            [](PyReader& self, bool block, nb::handle timeout) { return read(self, Next::oldest, block, timeout); },
            nb::arg("block") = true, nb::arg("timeout") = nb::none())
        .def(
            "latest",
            [](PyReader& self, bool block, nb::handle timeout) { return read(self, Next::newest, block, timeout); },
            nb::arg("block") = true, nb::arg("timeout") = nb::none())
        .def("event", &PyReader::watch)
        .def_ro("closed", &PyReader::closed)
        .def_prop_ro("missed",
                     [](PyReader& self) {
                         self.require();
                         return self.owner.broadcast.missed(self.reader);
                     })
        .def_prop_ro("skipped",
                     [](PyReader& self) {
                         self.require();
                         return self.reader.skipped.load();
                     })
        .def_prop_ro("lag",
                     [](PyReader& self) {
                         self.require();
                         return self.owner.broadcast.lag(self.reader);
                     })
        .def("close", [](PyReader& self) {
            if (self.closed) return;
            self.close();
            ClientLookup lookup = self.owner.lookup(0);
            while (self.owner.client().may_touch() && self.owner.parts.ring.size() > 0 &&
                   self.owner.drop(lookup, Drop::passed)) {
            }
        });
}

}  // namespace shmtensor
