// shmtensor._native: the core as Python sees it. With module_atomics.cpp the only file that includes nanobind, and with
// that and array.cpp the only one that raises. What each name does is written in shmtensor/_native.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/layout.hpp"
#include "base/os.hpp"
#include "heap/client.hpp"
#include "heap/group.hpp"
#include "heap/lock.hpp"
#include "heap/segment_metadata.hpp"
#include "python/array.hpp"
#include "python/module.hpp"
#include "python/tensors.hpp"

using namespace shmtensor;

namespace shmtensor {

void add_atomics(nb::module_& m);  // module_atomics.cpp
void add_cast(nb::module_& m);     // module_cast.cpp
void add_dlpack(nb::module_& m);   // module_dlpack.cpp
void add_random(nb::module_& m);   // module_random.cpp
void add_queue(nb::module_& m);    // module_queue.cpp
void add_ring(nb::module_& m);     // module_ring.cpp
void add_sync(nb::module_& m);     // module_sync.cpp
void add_view(nb::module_& m);     // module_view.cpp
void add_codec(nb::module_& m);    // module_codec.cpp

NativeErrors native_errors;

namespace {
constexpr std::uint64_t kAskAgain = 100'000'000;  // ns between two looks for a manager
}

void raise_os(int error) {
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
}
void raise(PyObject* type, const std::string& message) {
    PyErr_SetString(type, message.c_str());
    throw nb::python_error();
}
bool relieve(std::uint64_t bytes) {
    // Not imported now, when descriptors may be what is lacking: without the module nobody has set a callback.
    const nb::object hooks = nb::steal(PyImport_GetModule(nb::str("shmtensor.hooks").ptr()));
    return hooks.is_valid() && nb::cast<bool>(hooks.attr("relieve")(bytes));
}

void raise_refused(const Refusal& refusal, const char* what) {
    nb::tuple args = nb::make_tuple(what, refusal.error, refusal.bytes, refusal.limit, refusal.segment);
    PyErr_SetObject(native_errors.refused, args.ptr());
    throw nb::python_error();
}

namespace {

// What kept a fork from being registered, and what to do.
const char* why_not_registered(int error) {
    switch (error) {
        case EMFILE:
        case ENFILE:
            return "its parent had no file descriptor left for it; raise the limit of open files (ulimit -n), or close "
                   "some before forking";
        case ENOMEM:
            return "there was no memory for its holds on what the parent has; release tensors before forking, or raise "
                   "the limit of memory";
        case ENOSPC:
            return "the table of processes, or that of holds in a segment, was full; let some processes end, or "
                   "release "
                   "tensors before forking";
        case EBUSY:
            return "the metadata of a segment stayed locked by another process; it may be stopped: see "
                   "`shmtensor-manager "
                   "ls`";
        case ESTALE:
            return "the manager took its place back before it came for it; start another";
        default:
            return std::strerror(error);
    }
}

}  // namespace

void set_not_held(const Client& client) {
    if (client.fork_error() != 0)
        PyErr_Format(native_errors.not_held,
                     "shared memory cannot be used in this process: its fork could not be registered, since %s",
                     why_not_registered(client.fork_error()));
    else
        PyErr_Format(native_errors.not_held,
                     "shared memory cannot be used in this process: %s. Start children by fork, spawn or forkserver of "
                     "shmtensor.multiprocessing",
                     client.connection() < 0 ? "its client is closed" : "it was cloned without the fork hooks");
}
void raise_not_held(const Client& client) {
    set_not_held(client);
    throw nb::python_error();
}

std::uint64_t deadline_of(bool wait, nb::handle timeout) {
    if (!wait) return 0;
    if (timeout.is_none()) return kForever;
    const double seconds = PyFloat_AsDouble(timeout.ptr());
    if (seconds == -1.0 && PyErr_Occurred()) throw nb::python_error();
    if (std::isnan(seconds)) raise(PyExc_ValueError, "a timeout is not a number");
    if (seconds <= 0) return 0;
    return seconds < 1e9 ? os::monotonic_ns() + static_cast<std::uint64_t>(seconds * 1e9) : kForever;
}

void look_for_manager(PyClient& client) {
    const std::uint64_t now = os::monotonic_ns();
    if (now - client.asked < kAskAgain || !client.client.may_touch()) return;
    client.asked = now;
    client.need_manager();
    client.asked = os::monotonic_ns();  // it may have taken its time
}
void look_around(PyClient& client) {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!client.client.is_led()) look_for_manager(client);
}

nb::object wrapper_of(Block* block) {
    auto* known = static_cast<PyObject*>(block->wrapper);
    if (known &&
        Py_REFCNT(known) > 0) {  // 0: its weak references are being told just now, so that it is on its way out
        nb::object wrapper = nb::borrow(nb::handle(known));
        block->client->release(block);  // the wrapper is a user already
        return wrapper;
    }
    auto* made = new PyBlock(block);
    nb::object wrapper = nb::cast(made, nb::rv_policy::take_ownership);
    block->wrapper = made->wrapper = wrapper.ptr();
    return wrapper;
}

}  // namespace shmtensor

namespace {

int block_buffer(PyObject* exporter, Py_buffer* view, int flags) {
    const Block& b = *nb::inst_ptr<PyBlock>(exporter)->block;
    if (!b.client->may_touch()) {  // the memory may be somebody else's by now
        set_not_held(*b.client);
        view->obj = nullptr;
        return -1;
    }
    return PyBuffer_FillInfo(view, exporter, b.data(), static_cast<Py_ssize_t>(b.bytes), 0, flags);
}
PyType_Slot block_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(block_buffer)}, {0, nullptr}};

// -------------------------------------------------------------------------------------------------- the manager's side

// The manager takes locks as slot 0: it is no client.
struct Locked_ {
    explicit Locked_(SegmentMetadata& b) : metadata(b) {
        if (!metadata.is_open()) raise(PyExc_ValueError, "the metadata of this segment is closed");
        if (!metadata.lock(0, 0)) raise(native_errors.lock_busy, "the metadata of the segment is locked just now");
    }
    ~Locked_() { metadata.unlock(); }
    SegmentMetadata& metadata;
};

std::unique_ptr<SegmentMetadata> create_metadata(const std::string& name, std::uint64_t segment, std::uint32_t owner,
                                                 std::uint32_t generation, std::uint64_t bytes, bool dedicated) {
    auto metadata = std::make_unique<SegmentMetadata>();
    if (const int error = metadata->create(name.c_str(), segment, owner, generation, bytes, dedicated)) raise_os(error);
    return metadata;
}

using HoldRow = std::tuple<std::uint32_t, std::uint32_t, double>;
using BlockRow = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, std::uint32_t, std::vector<HoldRow>>;

std::vector<BlockRow> list_blocks(SegmentMetadata& metadata, std::uint32_t limit) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> holds;
    std::map<std::uint32_t, BlockRow> rows;
    const std::uint32_t now = os::monotonic_seconds();
    {
        // Copied under the lock, worked through outside. Room is made before, since nothing may allocate under it.
        const std::uint32_t seen =
            std::min(metadata.is_open() ? metadata.header().holds_high.load() : 0, metadata.shape().holds);
        holds.reserve(std::min(seen + 1024, limit));
        const Locked_ locked(metadata);
        const std::uint32_t high = std::min(metadata.header().holds_high.load(), metadata.shape().holds);
        bool all = true;
        for (std::uint32_t i = 0; i < high && all; ++i) {
            const std::uint64_t word = metadata.has_hold(i) ? metadata.hold(i).word.load() : 0;
            if (word == 0) continue;
            all = holds.size() < holds.capacity();
            if (all) holds.emplace_back(word, metadata.hold(i).since.load(std::memory_order_relaxed));
        }
        if (!all) raise(native_errors.lock_busy, "there are too many holds to look at just now");
    }
    for (const auto& [word, since] : holds) {
        const std::uint32_t index = block_of(word);
        if (index >= metadata.shape().blocks || !metadata.has_record(index)) continue;
        const BlockRecord& r = metadata.block(index);
        auto& row = rows.try_emplace(index, index, r.offset, r.size.load(), r.generation.load(), std::vector<HoldRow>{})
                        .first->second;
        std::get<4>(row).emplace_back(owner_of(word), static_cast<std::uint32_t>(kind_of(word)),
                                      now >= since ? now - since : 0);
    }
    std::vector<BlockRow> list;
    list.reserve(rows.size());
    for (auto& [index, row] : rows) list.push_back(std::move(row));
    return list;
}

// A block with the user that is its wrapper's.
Block* allocate(nb::handle object, std::uint64_t bytes) {
    auto& self = *nb::inst_ptr<PyClient>(object);
    if (bytes == 0 || bytes > kMaxSegmentBytes)
        raise(PyExc_ValueError,
              "a block has 1 to " + std::to_string(kMaxSegmentBytes) + " bytes, not " + std::to_string(bytes));
    if (!self.client.is_led()) [[unlikely]]
        look_for_manager(self);
    Block* block = nullptr;
    retry_blocking(
        self, object, [&](unsigned patience) { return self.client.allocate(bytes, patience, &block); }, 0, bytes);
    return block;
}

Slot& slot_at(Group& group, std::uint32_t index) {
    if (index >= kMaxSlots) throw nb::index_error("no such slot");
    return group.slot(index);
}

}  // namespace

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // clients live until the process ends

    m.attr("LAYOUT_VERSION") = kLayoutVersion;
    m.attr("PAGE") = kPage;
    m.attr("MAX_SLOTS") = kMaxSlots;
    m.attr("MAX_SEGMENT_BYTES") = kMaxSegmentBytes;
    m.attr("ARENA_BYTES") = kArenaBytes;
    m.attr("DEDICATED_FROM") = kDedicatedFrom;
    m.attr("ARENA_HOLDS") = kArenaHolds;
    m.attr("DEDICATED_HOLDS") = kDedicatedHolds;
    m.attr("SLOT_FREE") = static_cast<int>(SlotState::free);
    m.attr("SLOT_GROUP") = static_cast<int>(SlotState::group);
    m.attr("SLOT_CLIENT") = static_cast<int>(SlotState::client);
    m.attr("SLOT_EMBRYO") = static_cast<int>(SlotState::embryo);
    m.attr("SLOT_DEAD") = static_cast<int>(SlotState::dead);
    m.attr("HOLD_CLIENT") = static_cast<int>(HoldKind::client);
    m.attr("HOLD_TICKET") = static_cast<int>(HoldKind::ticket);

    const auto exception = [&](const char* name, PyObject* base = nullptr) {
        PyObject* type = PyErr_NewException((std::string{"shmtensor._native."} + name).c_str(), base, nullptr);
        m.attr(name) = nb::handle(type);
        return type;
    };
    native_errors.lock_busy = exception("LockBusy");
    native_errors.block_gone = exception("BlockGone");
    native_errors.refused = exception("Refused");
    // May come out of a memoryview or an array as well, where no Python of ours can translate it.
    const nb::object errors = nb::module_::import_("shmtensor.errors");
    native_errors.not_held = exception("NotHeld", errors.attr("ClientUnavailable").ptr());
    native_errors.lost = errors.attr("SegmentLost").inc_ref().ptr();
    error_types = {errors.attr("DTypeError").inc_ref().ptr(), errors.attr("InvalidArgument").inc_ref().ptr(),
                   errors.attr("IndexOutOfRange").inc_ref().ptr(), errors.attr("LayoutError").inc_ref().ptr()};
    add_atomics(m);
    add_queue(m);
    add_cast(m);
    add_dlpack(m);
    add_random(m);
    add_ring(m);
    add_sync(m);

    m.def(
        "make_payload",
        [](const std::string& name, std::uint64_t bytes) {
            int fd = -1;
            if (const int error = os::memfd(name.c_str(), bytes, &fd)) raise_os(error);
            return fd;
        },
        nb::arg("name"), nb::arg("nbytes"));
    m.def(
        "punch",
        [](int fd, std::uint64_t offset, std::uint64_t bytes) {
            if (const int error = os::punch(fd, offset, bytes)) raise_os(error);
        },
        nb::arg("fd"), nb::arg("offset"), nb::arg("nbytes"));
    m.def(
        "process_start_time",
        [](int pid) {
            std::uint64_t ticks = 0;
            if (const int error = os::start_time(pid, &ticks)) raise_os(error);
            return ticks;
        },
        nb::arg("pid"));
    m.def("directory_watch", [] {
        int fd = -1;
        if (const int error = os::directory_watch(&fd)) raise_os(error);
        return fd;
    });
    m.def(
        "watch_directory",
        [](int watch, const nb::bytes& path) {
            if (const int error = os::watch_directory(watch, path.c_str())) raise_os(error);
        },
        nb::arg("watch"), nb::arg("path"));
    m.def("set_threads_visible", &set_threads_visible, nb::arg("visible"));
    m.def(
        "memory_available",
        [](const std::string& root) {
            const char* limit = "";
            const std::uint64_t bytes = limits::available(&limit, root);
            return std::tuple<std::uint64_t, std::string>{bytes, limit};
        },
        nb::arg("root") = "/");
    m.def(
        "memory_cgroups",
        [](const std::string& root) {
            std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>> rows;
            for (const limits::Cgroup& one : limits::cgroups(root)) rows.emplace_back(one.path, one.used, one.limit);
            return rows;
        },
        nb::arg("root") = "/");

    m.def(
        "map_over",
        [](nb::handle buffer, int fd, bool shared, bool writable) {
            const nb::object view = nb::steal(PyMemoryView_FromObject(buffer.ptr()));
            if (!view.is_valid()) throw nb::python_error();
            const Py_buffer& memory = *PyMemoryView_GET_BUFFER(view.ptr());
            const auto bytes = static_cast<std::uint64_t>(memory.len);
            if (const int error = os::map_over(static_cast<std::byte*>(memory.buf), fd, bytes, shared, writable))
                raise_os(error);
        },
        nb::arg("buffer"), nb::arg("fd"), nb::arg("shared"), nb::arg("writable"));

    nb::class_<os::Descriptor>(m, "Descriptor", nb::is_final())
        .def(
            "__init__",
            [](os::Descriptor* self, int fd) {
                new (self) os::Descriptor(fd);
                if (self->number() < 0) raise_os(EBADF);
            },
            nb::arg("fd"))
        .def_prop_ro("number", &os::Descriptor::number)
        .def_prop_ro("is_ours", &os::Descriptor::is_ours)
        .def("close", &os::Descriptor::close);

    nb::class_<Group>(m, "Group", nb::is_final())
        .def_static(
            "create",
            [](std::uint64_t id) {
                auto group = std::make_unique<Group>();
                if (const int error = group->create(id)) raise_os(error);
                return group;
            },
            nb::arg("group_id"))
        .def_static(
            "open",
            [](int fd) {
                auto group = std::make_unique<Group>();
                const int error = group->open(fd);
                if (error == EINVAL)
                    throw nb::value_error("the descriptor is not a group segment of this layout version");
                if (error) raise_os(error);
                return group;
            },
            nb::arg("fd"))
        .def_prop_ro("fd", &Group::fd)
        .def("regain", &Group::regain, nb::arg("fd"))
        .def_prop_ro("group_id", &Group::id)
        .def_prop_ro("epoch", &Group::epoch)
        .def_prop_ro("is_led", &Group::is_led)
        .def_prop_ro("is_foreign", &Group::is_foreign)
        .def_prop_ro("leader", &Group::leader)
        .def_prop_ro("leads", &Group::leads)
        .def("lead",
             [](Group& self) {
                 if (const int error = self.lead()) raise_os(error);
                 return self.epoch();
             })
        .def("leave", &Group::leave)
        .def("take_segment_number", [](Group& self) { return self.header().next_segment.fetch_add(1); })
        .def_prop_ro("next_segment", [](Group& self) { return self.header().next_segment.load(); })
        .def("take_ring_number", [](Group& self) { return self.header().next_ring.fetch_add(1); })
        .def_prop_ro("next_ring", [](Group& self) { return self.header().next_ring.load(); })
        .def(
            "claim",
            [](Group& self, int kind, std::uint32_t pid, std::uint64_t start, std::uint32_t parent) {
                std::uint64_t word = 0;
                const std::uint32_t slot = self.claim(static_cast<SlotState>(kind), pid, start, parent, &word);
                if (slot == kNone) raise(PyExc_LookupError, "all slots of the group are taken");
                return std::tuple{slot, generation_of(word)};
            },
            nb::arg("kind"), nb::arg("pid"), nb::arg("start_time"), nb::arg("parent") = 0)
        .def(
            "name",
            [](Group& self, std::uint32_t index, std::uint32_t pid, std::uint64_t start) {
                Slot& slot = slot_at(self, index);
                slot.start_time.store(start);
                slot.pid.store(pid);
            },
            nb::arg("slot"), nb::arg("pid"), nb::arg("start_time"))
        .def(
            "move",
            [](Group& self, std::uint32_t index, std::uint64_t expected, int kind, std::uint32_t pid) {
                slot_at(self, index);
                return self.move(index, expected, static_cast<SlotState>(kind), pid);
            },
            nb::arg("slot"), nb::arg("expected"), nb::arg("kind"), nb::arg("pid") = 0)
        .def(
            "socket", [](Group& self, std::uint32_t index) { return slot_at(self, index).socket.load(); },
            nb::arg("slot"))
        .def(
            "word", [](Group& self, std::uint32_t index) { return slot_at(self, index).word.load(); }, nb::arg("index"))
        .def(
            "set_quotas", [](Group& self, std::uint64_t all, std::uint64_t each) { self.set_quotas(all, each); },
            nb::arg("all"), nb::arg("each"))
        .def("quotas", [](Group& self) { return std::tuple{self.max_bytes(), self.max_bytes_per_client()}; })
        .def("charged", &Group::charged)
        .def(
            "charge",
            [](Group& self, std::uint64_t bytes) {
                std::uint64_t room = 0;
                const char* limit = self.charge(0, bytes, false, &room);
                if (limit) self.press();
                return limit ? std::optional{std::tuple<std::string, std::uint64_t>{limit, room}} : std::nullopt;
            },
            nb::arg("nbytes"))
        .def(
            "reserved", [](Group& self, std::uint32_t index) { return slot_at(self, index).reserved.load(); },
            nb::arg("slot"))
        .def(
            "account",
            [](Group& self, std::uint64_t known, std::uint64_t found) {
                self.slot(0).reserved.compare_exchange_strong(known, found);
            },
            nb::arg("known"), nb::arg("found"))
        .def(
            "slot",
            [](Group& self, std::uint32_t index) {
                const Slot& slot = slot_at(self, index);
                const std::uint64_t word = slot.word.load();
                const bool client = state_of(word) == SlotState::client;
                const std::uint32_t pid = slot.pid.load();
                return std::tuple{static_cast<int>(state_of(word)), client && pid == 0 ? parent_of(word) : pid,
                                  slot.start_time.load(), client ? 0 : parent_of(word), generation_of(word)};
            },
            nb::arg("index"))
        .def("occupied", [](Group& self) {
            std::vector<std::uint32_t> indices;
            for (std::uint32_t i = 0; i < kMaxSlots; ++i)
                if (state_of(self.slot(i).word.load()) != SlotState::free) indices.push_back(i);
            return indices;
        });

    nb::class_<SegmentMetadata>(m, "SegmentMetadata", nb::is_final())
        .def_static("create", &create_metadata, nb::arg("name"), nb::arg("segment"), nb::arg("owner"),
                    nb::arg("generation"), nb::arg("payload_bytes"), nb::arg("dedicated"))
        .def_static(
            "found",
            [](int fd) {
                auto metadata = std::make_unique<SegmentMetadata>();
                const int error = metadata->open_found(fd);
                if (error == EINVAL)
                    throw nb::value_error("the descriptor is not segment metadata of this layout version");
                if (error) raise_os(error);
                return metadata;
            },
            nb::arg("fd"))
        .def_prop_ro("fd", &SegmentMetadata::fd)
        .def_prop_ro("facts",
                     [](SegmentMetadata& self) {
                         if (!self.is_open()) throw nb::value_error("the metadata of this segment is closed");
                         const MetadataHeader& h = self.header();
                         return std::tuple{h.segment,
                                           h.owner,
                                           h.owner_generation,
                                           h.payload_bytes,
                                           self.shape().blocks == 1,
                                           h.retired.load() != 0};
                     })
        .def(
            "hand_out",
            [](SegmentMetadata& self, std::uint32_t slot) {
                if (!self.is_open() || self.shape().blocks != 1 || self.header().blocks_high.load() != 0)
                    throw nb::value_error("only an unused dedicated segment is handed out whole");
                std::uint32_t reserved = 0;
                Refusal refusal;
                if (const int error = self.reserve_blocks(1, refusal)) raise_os(error);
                if (const int error = self.reserve_holds(&reserved, refusal)) raise_os(error);
                const Locked_ locked(self);
                self.grow_holds(reserved);
                self.hand_out(0, 0, self.header().payload_bytes, slot);
            },
            nb::arg("slot"))
        .def(
            "release_holds",
            [](SegmentMetadata& self, std::uint32_t slot, Group& group, bool rebuild) {
                const Locked_ locked(self);
                // The slot may be another's by now, if we were stopped and replaced. Whoever replaced us cannot have
                // released it here while we have the lock.
                if (!group.leads()) raise(PyExc_PermissionError, "this manager has been replaced");
                return locked.metadata.release_holds_of(slot, rebuild);
            },
            nb::arg("slot"), nb::arg("group"), nb::arg("rebuild") = false)
        .def(
            "expire_tickets",
            [](SegmentMetadata& self, std::uint32_t seconds) {
                const std::uint32_t now = os::monotonic_seconds();
                return now < seconds ? 0u : Locked_(self).metadata.expire_tickets(now - seconds);
            },
            nb::arg("seconds"))
        .def_prop_ro("is_lent", [](SegmentMetadata& self) { return self.is_open() && self.header().lent.load() != 0; })
        .def(
            "has_ended",
            [](SegmentMetadata& self, Group& group) {
                return self.is_open() && group.has_ended(self.header().sealed.load());
            },
            nb::arg("group"))
        .def("retire",
             [](SegmentMetadata& self) {
                 if (!self.is_open()) throw nb::value_error("the metadata of this segment is closed");
                 self.header().retired.store(1);
             })
        .def(
            "live",
            [](SegmentMetadata& self, std::uint32_t block, std::uint32_t generation) -> std::optional<std::uint64_t> {
                if (!self.is_open()) throw nb::value_error("the metadata of this segment is closed");
                const std::uint64_t size = self.live_size(block, generation);
                return size ? std::optional{size} : std::nullopt;
            },
            nb::arg("block"), nb::arg("generation"))
        .def("stats",
             [](SegmentMetadata& self) {
                 if (!self.is_open()) throw nb::value_error("the metadata of this segment is closed");
                 const MetadataHeader& h = self.header();
                 return std::tuple{h.live_blocks.load(), h.live_bytes.load(), h.reserved_bytes.load()};
             })
        .def(
            "note_reserved",
            [](SegmentMetadata& self, int payload) {
                os::Facts facts;
                if (!self.is_open()) throw nb::value_error("the metadata of this segment is closed");
                if (const int error = os::facts_of(payload, &facts)) raise_os(error);
                self.header().reserved_bytes.store(facts.reserved, std::memory_order_relaxed);
            },
            nb::arg("payload"))
        .def("blocks", &list_blocks, nb::arg("limit") = kArenaHolds)
        .def("close", &SegmentMetadata::close);

    nb::class_<PyBlock>(m, "Block", nb::is_final(), nb::is_weak_referenceable(), nb::type_slots(block_slots))
        .def_prop_ro("address", [](PyBlock& b) { return reinterpret_cast<std::uintptr_t>(b.block->data()); })
        .def_prop_ro("nbytes", [](PyBlock& b) { return b.block->bytes; })
        .def_prop_ro("segment", [](PyBlock& b) { return b.block->segment->id; })
        .def_prop_ro("index", [](PyBlock& b) { return b.block->index; })
        .def_prop_ro("generation", [](PyBlock& b) { return b.block->generation; })
        .def_prop_ro("offset", [](PyBlock& b) { return b.block->offset; })
        .def_prop_ro(
            "client",
            [](PyBlock& b) { return nb::borrow(nb::handle(static_cast<PyObject*>(b.block->client->wrapper))); })
        .def(
            "array",
            [](nb::handle self, nb::handle dtype, nb::handle shape, Py_ssize_t offset, nb::handle strides) {
                const Block& b = *nb::inst_ptr<PyBlock>(self)->block;
                if (!b.client->may_touch()) raise_not_held(*b.client);
                PyObject* array =
                    make_array(self.ptr(), b.data(), b.bytes, dtype.ptr(), shape.ptr(), offset, strides.ptr());
                if (!array) throw nb::python_error();
                return nb::steal(array);
            },
            nb::arg("dtype"), nb::arg("shape"), nb::arg("offset") = 0, nb::arg("strides") = nb::none());

    add_view(m);

    nb::class_<PyClient>(m, "Client", nb::is_final())
        .def(
            "__init__",
            [](nb::pointer_and_handle<PyClient> self, nb::object group, std::uint32_t slot, int connection,
               std::uint32_t epoch, nb::object need_segment, nb::object need_mapping, nb::object need_manager) {
                new (self.p) PyClient(group, nb::cast<Group&>(group), slot, connection, epoch, need_segment,
                                      need_mapping, need_manager);
                self.h.inc_ref();  // blocks point at it: it lives as long as the process
                self.p->client.wrapper = self.h.ptr();
            },
            nb::arg("group"), nb::arg("slot"), nb::arg("connection"), nb::arg("epoch"), nb::arg("need_segment"),
            nb::arg("need_mapping"), nb::arg("need_manager"))
        .def_prop_ro("group", [](PyClient& self) { return self.keep; })
        .def_prop_ro("slot", [](PyClient& self) { return self.client.slot(); })
        .def_prop_ro("generation", [](PyClient& self) { return self.client.generation(); })
        .def_prop_ro("connection", [](PyClient& self) { return self.client.connection(); })
        .def_prop_ro("is_led", [](PyClient& self) { return self.client.is_led(); })
        .def(
            "reconnect",
            [](PyClient& self, int connection, std::uint32_t epoch, bool close) {
                self.client.reconnect(connection, epoch, close);
            },
            nb::arg("connection"), nb::arg("epoch"), nb::arg("close"))
        .def(
            "add_segment",
            [](PyClient& self, std::uint64_t id, int control, int payload, std::uint64_t bytes, bool dedicated,
               bool owned) {
                const int error = self.client.add_segment(id, control, payload, bytes, dedicated, owned);
                if (error == EINVAL) throw nb::value_error("the descriptors are not the segment that was announced");
                if (error) raise_os(error);
            },
            nb::arg("segment"), nb::arg("control"), nb::arg("payload"), nb::arg("payload_bytes"), nb::arg("dedicated"),
            nb::arg("owned"))
        .def("lost", [](PyClient& self) { return self.client.lost(); })
        .def(
            "allocate", [](nb::handle object, std::uint64_t bytes) { return wrapper_of(allocate(object, bytes)); },
            nb::arg("nbytes"))
        .def(
            "array",
            [](nb::handle object, std::uint64_t bytes, nb::handle dtype, nb::handle shape) {
                Block* block = allocate(object, bytes);
                const nb::object wrapper = wrapper_of(block);
                PyObject* array =
                    make_array(wrapper.ptr(), block->data(), block->bytes, dtype.ptr(), shape.ptr(), 0, Py_None);
                if (!array) throw nb::python_error();
                return nb::steal(array);
            },
            nb::arg("nbytes"), nb::arg("dtype"), nb::arg("shape"))
        .def(
            "attach",
            [](nb::handle object, std::uint64_t segment, std::uint32_t index, std::uint32_t generation) {
                auto& self = *nb::inst_ptr<PyClient>(object);
                Block* block = nullptr;
                retry_blocking(
                    self, object,
                    [&](unsigned patience) { return self.client.attach(segment, index, generation, patience, &block); },
                    segment, 0);
                return wrapper_of(block);
            },
            nb::arg("segment"), nb::arg("index"), nb::arg("generation"))
        .def(
            "ticket",
            [](nb::handle object, PyBlock& block, std::uint32_t owner) {
                auto& self = *nb::inst_ptr<PyClient>(object);
                if (block.block->client != &self.client) throw nb::value_error("the block belongs to another client");
                if (owner >= kMaxSlots) throw nb::value_error("no such slot");
                std::uint32_t hold = 0, mark = 0;
                retry_blocking(
                    self, object,
                    [&](unsigned patience) { return self.client.ticket(*block.block, owner, patience, &hold, &mark); },
                    0, 0);
                return std::tuple{hold, mark};
            },
            nb::arg("block"), nb::arg("owner") = 0)
        .def(
            "redeem",
            [](nb::handle object, std::uint64_t segment, std::uint32_t index, std::uint32_t generation,
               std::uint32_t hold, std::uint32_t mark) {
                auto& self = *nb::inst_ptr<PyClient>(object);
                Block* block = nullptr;
                retry_blocking(
                    self, object,
                    [&](unsigned patience) {
                        return self.client.redeem(segment, index, generation, hold, mark, patience, &block);
                    },
                    segment, 0);
                return wrapper_of(block);
            },
            nb::arg("segment"), nb::arg("index"), nb::arg("generation"), nb::arg("hold"), nb::arg("mark"))
        .def(
            "receive",
            [](nb::handle object, std::uint64_t segment, std::uint32_t index, std::uint32_t generation,
               std::uint32_t hold) {
                auto& self = *nb::inst_ptr<PyClient>(object);
                Block* block = nullptr;
                retry_blocking(
                    self, object,
                    [&](unsigned) { return self.client.receive({segment, index, generation, hold, 0}, &block); },
                    segment, 0);
                return wrapper_of(block);
            },
            nb::arg("segment"), nb::arg("index"), nb::arg("generation"), nb::arg("hold"))
        .def("embryo",
             [](PyClient& self) {
                 std::uint32_t slot = 0, generation = 0;
                 int socket = -1;
                 if (!self.client.may_touch()) raise_not_held(self.client);
                 if (const int error = self.client.embryo(&slot, &generation, &socket)) raise_os(error);
                 return std::tuple{slot, generation, socket};
             })
        .def("trim",
             [](PyClient& self) {
                 std::uint64_t bytes = 0;
                 Status status;
                 {
                     const Unlocked unlocked;
                     status = self.client.trim(&bytes);
                 }
                 if (status == Status::not_held) raise_not_held(self.client);
                 return bytes;
             })
        .def("stats",
             [](PyClient& self) {
                 const Client::Stats s = self.client.stats();
                 return std::tuple{s.mapped, s.owned, s.blocks, s.bytes, s.reserved, s.free};
             })
        .def("check_invariants",
             [](PyClient& self) {
                 const char* wrong = self.client.check();
                 if (wrong) raise(PyExc_AssertionError, wrong);
             })
        .def("close", [](nb::handle object) {
            auto& self = *nb::inst_ptr<PyClient>(object);
            if (!self.client.close()) throw nb::value_error("blocks of this client are still in use; drop them first");
        });
    add_codec(m);
    if (!add_tensors(m.ptr())) throw nb::python_error();
}
