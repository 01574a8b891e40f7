// The binding of broadcast.hpp: making room in a ring that is a broadcast, and its readers.
#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ipc/broadcast.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/results.hpp"
#include "python/rings.hpp"
#include "python/waits.hpp"

namespace shmtensor {
namespace {

struct ReaderFacts {
    std::uint32_t pid, lag;
};

}  // namespace

template <>
struct Result<ReaderFacts> {
    static constexpr const char* name = "ReaderFacts";
    static constexpr std::tuple fields{field("pid", &ReaderFacts::pid), field("lag", &ReaderFacts::lag)};
};

namespace {

// _native.BroadcastRing
struct PyBroadcast {
    explicit PyBroadcast(nb::object object)
        : ring_object(std::move(object)), ring(nb::cast<PyRing&>(ring_object)), broadcast(ring.ring, client().group()) {
        ring.make_room = [this](ClientLookup& lookup, std::uint32_t taken) { return make_room(lookup, taken); };
    }
    PyBroadcast(const PyBroadcast&) = delete;
    PyBroadcast& operator=(const PyBroadcast&) = delete;
    ~PyBroadcast() { ring.make_room = nullptr; }
    Client& client() const { return ring.client(); }
    ClientLookup lookup(std::uint64_t deadline) const { return {ring.self, deadline}; }

    // Repeats the attempt until it succeeds (ok), `when_empty` returns kDone, or the time is up. `message`: filled by
    // the attempt; nullptr: none.
    template <class Attempt, class WhenEmpty>
    RingStatus call(ClientLookup& lookup, std::uint64_t deadline, EncodedMessage* message, Attempt&& attempt,
                    WhenEmpty&& when_empty);
    bool drop(ClientLookup& lookup, Drop which, std::uint32_t taken = 0);
    void drop_passed(ClientLookup& lookup);
    void tidy(ClientLookup& lookup);
    bool make_room(ClientLookup& lookup, std::uint32_t taken);

    nb::object ring_object;
    PyRing& ring;
    Broadcast broadcast;
};

int give_up() {
    return kDone;
}

template <class Attempt, class WhenEmpty>
RingStatus PyBroadcast::call(ClientLookup& lookup, std::uint64_t deadline, EncodedMessage* message, Attempt&& attempt,
                             WhenEmpty&& when_empty) {
    RingRetry between(ring, lookup, deadline, End::head);
    return retry(attempt(0u), std::forward<Attempt>(attempt), [&](RingStatus status) {
        between.note(status);
        if (status == RingStatus::ok) return kDone;
        if (status == RingStatus::empty) return when_empty();
        if (message) HoldsGuard(client(), {message, 1}).drop();
        if (status != RingStatus::full) return between.next(status);
        if (!message) return kDone;
        retry_blocking(ring.self, {.segment = lookup.missing},
                       [&](unsigned patience) { return client().reserve_holds(lookup.missing, patience); });
        return 0;
    });
}

bool PyBroadcast::drop(ClientLookup& lookup, Drop which, std::uint32_t taken) {
    const ScratchLease scratch;
    const HoldsGuard dropped(client(), {&scratch->message, 1});
    const auto attempt = [&](unsigned patience) {
        return broadcast.drop(scratch->message, which, taken, client().slot(), lookup, patience);
    };
    return call(lookup, 0, &scratch->message, attempt, give_up) == RingStatus::ok;
}

// Take out all messages that every reader has read.
void PyBroadcast::drop_passed(ClientLookup& lookup) {
    while (client().may_touch() && ring.ring.size() > 0 && drop(lookup, Drop::passed)) {
    }
}

// The same, without waiting or requests to the manager; raises nothing. Remaining messages are taken out when a put
// needs room or a reader waits.
void PyBroadcast::tidy(ClientLookup& lookup) {
    const ScratchLease scratch;
    HoldsGuard dropped(client(), {&scratch->message, 1});
    while (broadcast.drop(scratch->message, Drop::passed, 0, client().slot(), lookup, 0) == RingStatus::ok)
        dropped.drop();
}

// Drops as few messages as needed, and all that were kept only for readers that have died.
bool PyBroadcast::make_room(ClientLookup& lookup, std::uint32_t taken) {
    bool made = false;
    while (drop(lookup, Drop::passed)) made = true;
    if (made || drop(lookup, Drop::unneeded)) return true;
    if (ring.ring.header().policy.load() == static_cast<std::uint32_t>(Policy::drop_oldest) &&
        drop(lookup, Drop::oldest, taken))
        return true;
    return ring.ring.taken() != taken;  // by others
}

// _native.BroadcastReader
struct PyReader {
    explicit PyReader(nb::object made_by)
        : broadcast_object(std::move(made_by)), owner(*nb::inst_ptr<PyBroadcast>(broadcast_object)) {}
    PyReader(const PyReader&) = delete;
    PyReader& operator=(const PyReader&) = delete;
    ~PyReader() {
        leave();
        if (view >= 0 && os::view_show(view, *event)) os::close(view);
    }

    bool is_mine() const {
        const Client& client = owner.client();
        return client.may_touch() && reader_slot(reader.owner) == client.slot() && owner.broadcast.has(reader);
    }
    void require() const {
        if (closed) throw nb::value_error("this reader is closed");
        owner.ring.require_client();
        if (!is_mine())
            raise(errors.foreign_reader,
                  "this reader belongs to another process; call reader() of the broadcast in this one");
    }
    void leave() {
        if (!closed && is_mine()) owner.broadcast.leave(reader);
        closed = true;
    }
    void close() {
        if (closed) return;
        leave();
        ClientLookup lookup = owner.lookup(0);
        owner.drop_passed(lookup);
    }
    int watch();
    void update_view();

    nb::object broadcast_object;
    PyBroadcast& owner;
    Reader reader;
    bool closed = false;
    Event event;    // of the ring, from the first watch() on
    int view = -1;  // this reader's view of the event; lives as long as this object
};

int PyReader::watch() {
    require();
    event = event_of(owner.ring);
    // If the program has closed the view, its number may stand for another file.
    if (view < 0 || !os::view_show(view, *event))
        if (const int error = os::view_open(*event, &view)) raise_os(error);
    update_view();
    return view;
}

// After each read: make the view, if any, readable if there are unread messages, and unreadable otherwise.
void PyReader::update_view() {
    if (view < 0 || owner.broadcast.lag(reader) > 0) return;
    if (!os::view_clear(view, *event)) {
        view = -1;
    } else if (owner.broadcast.lag(reader) > 0) {
        // A message was put in between, and its write to the event may have come before view_clear().
        os::view_show(view, *event);
    }
}

std::unique_ptr<PyReader> make_reader(nb::object object, bool from_oldest) {
    auto& self = *nb::inst_ptr<PyBroadcast>(object);
    self.ring.require_client();
    auto made = std::make_unique<PyReader>(std::move(object));
    ClientLookup lookup = self.lookup(0);
    const auto attempt = [&](unsigned patience) {
        return self.broadcast.join(made->reader, self.client().slot(), lookup, patience, from_oldest);
    };
    const RingStatus result = self.call(lookup, 0, nullptr, attempt, give_up);
    if (result == RingStatus::full)
        raise(errors.quota, "a broadcast has at most " + std::to_string(kReaders) + " readers; close some");
    if (result != RingStatus::ok) raise(errors.lock_busy, "the broadcast stayed locked by another process for 1 s");
    return made;
}

nb::object read(PyReader& self, Next next, bool wait, nb::handle timeout) {
    self.require();
    PyBroadcast& owner = self.owner;
    owner.ring.count_call();
    const std::uint64_t deadline = deadline_of(wait, timeout);
    const ScratchLease scratch;
    const HoldsGuard unread(owner.client(), {&scratch->message, 1});
    ClientLookup lookup = owner.lookup(deadline);
    const std::uint64_t skipped = self.reader.skipped;
    const auto attempt = [&](unsigned patience) {
        return owner.broadcast.read(scratch->message, self.reader, next, owner.client().slot(), lookup, patience);
    };
    const auto await = [&]() {
        const std::uint64_t left = left_of(deadline);
        if (left == 0) return kDone;
        sleep_without_gil(owner.ring.self, [&] { owner.broadcast.await(self.reader, left); });
        self.require();  // a handler may have closed it
        if (owner.broadcast.lag(self.reader) == 0) {
            owner.drop_passed(lookup);  // messages that dead readers have left unread
            owner.ring.look_while_waiting();
        }
        return 0;
    };
    const RingStatus result = owner.call(lookup, deadline, &scratch->message, attempt, await);
    self.update_view();
    if (result != RingStatus::ok) raise_queue_empty();
    if (self.reader.skipped != skipped) owner.tidy(lookup);
    if (scratch->message.lost) lookup.raise_lost();
    return read_message(owner.ring, scratch->message, scratch->encoded, Access::common);
}

// _native.KeptReader: a row that belongs to no process.
struct PyKeptReader {
    explicit PyKeptReader(nb::object made_by)
        : broadcast_object(std::move(made_by)), owner(*nb::inst_ptr<PyBroadcast>(broadcast_object)) {}
    nb::object broadcast_object;
    PyBroadcast& owner;
    Reader reader;
};

std::unique_ptr<PyKeptReader> make_kept_reader(nb::object object, std::uint64_t id) {
    auto& self = *nb::inst_ptr<PyBroadcast>(object);
    self.ring.require_client();
    auto made = std::make_unique<PyKeptReader>(std::move(object));
    ClientLookup lookup = self.lookup(kForever);
    const auto attempt = [&](unsigned patience) {
        return self.broadcast.join_kept(made->reader, id, self.client().slot(), lookup, patience);
    };
    if (self.call(lookup, kForever, nullptr, attempt, give_up) == RingStatus::full)
        raise(errors.quota, "a broadcast has at most " + std::to_string(kReaders) + " readers; close some");
    return made;
}

nb::object peek(PyKeptReader& self, std::size_t max_bytes, std::uint32_t max_messages) {
    self.owner.ring.require_client();
    RingMove move(self.owner.ring);
    return move.peek([&](Run& run, unsigned patience) {
        return self.owner.broadcast.peek(run, self.reader, {max_bytes, max_messages}, self.owner.client().slot(),
                                         move.lookup, patience);
    });
}

// Everything before message `number` counts as read.
void skip_to(PyKeptReader& self, std::uint32_t number) {
    PyBroadcast& owner = self.owner;
    owner.ring.require_client();
    const ScratchLease scratch;
    HoldsGuard unread(owner.client(), {&scratch->message, 1});
    ClientLookup lookup = owner.lookup(kForever);
    const auto attempt = [&](unsigned patience) {
        return owner.broadcast.read(scratch->message, self.reader, Next::oldest, owner.client().slot(), lookup,
                                    patience);
    };
    while (static_cast<std::int32_t>(number - owner.broadcast.next(self.reader)) > 0 &&
           owner.call(lookup, kForever, &scratch->message, attempt, give_up) == RingStatus::ok)
        unread.drop();
}

void leave(PyKeptReader& self) {
    self.owner.ring.require_client();
    self.owner.broadcast.leave(self.reader);
    ClientLookup lookup = self.owner.lookup(kForever);
    self.owner.drop_passed(lookup);
}

std::vector<ReaderFacts> readers(PyBroadcast& self) {
    std::vector<ReaderFacts> found;
    for (const Broadcast::Member& member : self.broadcast.members())
        found.push_back({self.client().group().slot(member.slot).pid.load(), member.lag});
    return found;
}

}  // namespace

void add_broadcast(nb::module_& m) {
    add_result<ReaderFacts>(m);
    m.attr("MAX_READERS") = kReaders;
    m.attr("POLICY_UNSET") = static_cast<int>(Policy::unset);
    m.attr("POLICY_BLOCK") = static_cast<int>(Policy::block);
    m.attr("POLICY_DROP_OLDEST") = static_cast<int>(Policy::drop_oldest);
    m.attr("POLICY_RAISE") = static_cast<int>(Policy::raise);

    nb::class_<PyBroadcast>(m, "BroadcastRing", nb::is_final(), nb::is_weak_referenceable())
        .def(nb::init<nb::object>(), nb::arg("ring"))
        .def("reader", &make_reader, nb::arg("from_oldest"))
        .def("kept_reader", &make_kept_reader, nb::arg("id"))
        .def("readers", &readers)
        .def("check_invariants", [](PyBroadcast& self) { require_sound(self.broadcast.check()); });

    nb::class_<PyKeptReader>(m, "KeptReader", nb::is_final())
        .def(
            "peek",
            [](PyKeptReader& self, std::size_t bytes, std::uint32_t messages) { return peek(self, bytes, messages); },
            nb::arg("max_bytes"), nb::arg("max_messages"))
        .def("skip_to", &skip_to, nb::arg("number"))
        .def("leave", &leave)
        .def_prop_ro("next", [](PyKeptReader& self) { return self.owner.broadcast.next(self.reader); })
        .def_prop_ro("lag", [](PyKeptReader& self) { return self.owner.broadcast.lag(self.reader); });

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
        .def_prop_ro("missed", [](PyReader& self) { return self.require(), self.owner.broadcast.missed(self.reader); })
        .def_prop_ro("skipped", [](PyReader& self) { return self.require(), self.reader.skipped.load(); })
        .def_prop_ro("lag", [](PyReader& self) { return self.require(), self.owner.broadcast.lag(self.reader); })
        .def("close", &PyReader::close);
}

}  // namespace shmtensor
