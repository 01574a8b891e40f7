// The binding of group.hpp: _native.Group.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heap/group.hpp"
#include "heap/timelines.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/results.hpp"

namespace shmtensor {
namespace {

struct ClaimedSlot {
    std::uint32_t slot, generation;
};
struct SlotFacts {
    int state;
    std::uint32_t pid;
    std::uint64_t start_time;
    std::uint32_t parent, generation;
};
struct Quotas {
    std::uint64_t max_bytes, max_bytes_per_client;
};
struct OverQuota {
    const char* limit;
    std::uint64_t left;
};
struct Counters {
    std::uint64_t requests, refused, reaped;
};

}  // namespace

template <>
struct Result<ClaimedSlot> {
    static constexpr const char* name = "ClaimedSlot";
    static constexpr std::tuple fields{field("slot", &ClaimedSlot::slot),
                                       field("generation", &ClaimedSlot::generation)};
};
template <>
struct Result<SlotFacts> {
    static constexpr const char* name = "SlotFacts";
    static constexpr std::tuple fields{field("state", &SlotFacts::state), field("pid", &SlotFacts::pid),
                                       field("start_time", &SlotFacts::start_time), field("parent", &SlotFacts::parent),
                                       field("generation", &SlotFacts::generation)};
};
template <>
struct Result<Quotas> {
    static constexpr const char* name = "Quotas";
    static constexpr std::tuple fields{field("max_bytes", &Quotas::max_bytes),
                                       field("max_bytes_per_client", &Quotas::max_bytes_per_client)};
};
template <>
struct Result<OverQuota> {
    static constexpr const char* name = "OverQuota";
    static constexpr std::tuple fields{field("limit", &OverQuota::limit), field("left", &OverQuota::left)};
};
template <>
struct Result<Counters> {
    static constexpr const char* name = "Counters";
    static constexpr std::tuple fields{field("requests", &Counters::requests), field("refused", &Counters::refused),
                                       field("reaped", &Counters::reaped)};
};

namespace {

std::unique_ptr<Group> create(std::uint64_t id) {
    auto group = std::make_unique<Group>();
    if (const int error = group->create(id)) raise_os(error);
    return group;
}

std::unique_ptr<Group> open(int fd) {
    auto group = std::make_unique<Group>();
    const int error = group->open(fd);
    if (error == EINVAL) throw nb::value_error("the descriptor is not a group segment of this layout version");
    if (error) raise_os(error);
    return group;
}

std::uint32_t lead(Group& self) {
    if (const int error = self.lead()) raise_os(error);
    return self.epoch();
}

// --------------------------------------------------------------------------------------------------------------- slots

Slot& slot_at(Group& group, std::uint32_t index) {
    if (index >= kMaxSlots) throw nb::index_error("no such slot");
    return group.slot(index);
}

ClaimedSlot claim(Group& self, int kind, std::uint32_t pid, std::uint64_t start, std::uint32_t parent) {
    std::uint64_t word = 0;
    const std::uint32_t slot = self.claim(static_cast<SlotState>(kind), pid, start, parent, &word);
    if (slot == kNone) raise(PyExc_LookupError, "all slots of the group are taken");
    return {slot, generation_of(word)};
}

void name(Group& self, std::uint32_t index, std::uint32_t pid, std::uint64_t start) {
    Slot& slot = slot_at(self, index);
    slot.start_time.store(start);
    slot.pid.store(pid);
}

bool move(Group& self, std::uint32_t index, std::uint64_t expected, int kind, std::uint32_t pid) {
    slot_at(self, index);
    return self.move(index, expected, static_cast<SlotState>(kind), pid);
}

SlotFacts describe(Group& self, std::uint32_t index) {
    const Slot& slot = slot_at(self, index);
    const std::uint64_t word = slot.word.load();
    const bool client = state_of(word) == SlotState::client;
    const std::uint32_t pid = slot.pid.load();
    return {static_cast<int>(state_of(word)), client && pid == 0 ? parent_of(word) : pid, slot.start_time.load(),
            client ? 0 : parent_of(word), generation_of(word)};
}

std::vector<std::uint32_t> occupied(Group& self) {
    std::vector<std::uint32_t> indices;
    for (std::uint32_t i = 0; i < kMaxSlots; ++i)
        if (state_of(self.slot(i).word.load()) != SlotState::free) indices.push_back(i);
    return indices;
}

void add_slots(nb::class_<Group>& type) {
    type.def("claim", &claim, nb::arg("kind"), nb::arg("pid"), nb::arg("start_time"), nb::arg("parent") = 0)
        .def("name", &name, nb::arg("slot"), nb::arg("pid"), nb::arg("start_time"))
        .def("move", &move, nb::arg("slot"), nb::arg("expected"), nb::arg("kind"), nb::arg("pid") = 0)
        .def(
            "socket", [](Group& self, std::uint32_t index) { return slot_at(self, index).socket.load(); },
            nb::arg("slot"))
        .def(
            "word", [](Group& self, std::uint32_t index) { return slot_at(self, index).word.load(); }, nb::arg("index"))
        .def("slot", &describe, nb::arg("index"))
        .def("occupied", &occupied);
}

// -------------------------------------------------------------------------------------------------------------- quotas

// For slot 0, before pages are reserved: the limit that this would exceed, and the bytes still allowed.
std::optional<OverQuota> charge(Group& self, std::uint64_t bytes) {
    std::uint64_t room = 0;
    const char* limit = self.charge(0, bytes, Group::Checked::group, &room);
    if (!limit) return std::nullopt;
    self.press();
    return OverQuota{limit, room};
}

void account(Group& self, std::uint64_t known, std::uint64_t found) {
    self.slot(0).reserved.compare_exchange_strong(known, found);
}

void add_quotas(nb::class_<Group>& type) {
    type.def("set_quotas", &Group::set_quotas, nb::arg("all"), nb::arg("each"))
        .def("quotas", [](Group& self) { return Quotas{self.max_bytes(), self.max_bytes_per_client()}; })
        .def("charged", &Group::charged)
        .def("charge", &charge, nb::arg("nbytes"))
        .def(
            "reserved", [](Group& self, std::uint32_t index) { return slot_at(self, index).reserved.load(); },
            nb::arg("slot"))
        .def("account", &account, nb::arg("known"), nb::arg("found"));
}

// ------------------------------------------------------------------------------------------------------------ counters

template <std::atomic<std::uint64_t> GroupHeader::* counter>
void count(Group& self) {
    (self.header().*counter).fetch_add(1, std::memory_order_relaxed);
}

Counters counters(Group& self) {
    const GroupHeader& h = self.header();
    return {h.requests.load(), h.refused.load(), h.reaped.load()};
}

void add_counters(nb::class_<Group>& type) {
    type.def("count_request", &count<&GroupHeader::requests>)
        .def("count_refused", &count<&GroupHeader::refused>)
        .def("count_reaped", &count<&GroupHeader::reaped>)
        .def("counters", &counters);
}

}  // namespace

void add_group(nb::module_& m) {
    add_result<ClaimedSlot>(m);
    add_result<SlotFacts>(m);
    add_result<Quotas>(m);
    add_result<OverQuota>(m);
    add_result<Counters>(m);
    nb::class_<Group> type(m, "Group", nb::is_final());
    type.def_static("create", &create, nb::arg("group_id"))
        .def_static("open", &open, nb::arg("fd"))
        .def_prop_ro("fd", &Group::fd)
        .def("regain", &Group::regain, nb::arg("fd"))
        .def_prop_ro("group_id", &Group::id)
        .def_prop_ro("epoch", &Group::epoch)
        .def_prop_ro("is_led", &Group::is_led)
        .def_prop_ro("is_foreign", &Group::is_foreign)
        .def_prop_ro("leader", &Group::leader)
        .def_prop_ro("leads", &Group::leads)
        .def("lead", &lead)
        .def("leave", &Group::leave)
        .def("take_segment_number", [](Group& self) { return self.header().next_segment.fetch_add(1); })
        .def_prop_ro("next_segment", [](Group& self) { return self.header().next_segment.load(); })
        .def("take_ring_number", [](Group& self) { return self.header().next_ring.fetch_add(1); })
        .def_prop_ro("next_ring", [](Group& self) { return self.header().next_ring.load(); });
    type.def(
        "end_timelines",
        [](Group& self, std::uint32_t slot, std::uint32_t generation) { Timelines(self).end(slot, generation); },
        nb::arg("slot"), nb::arg("generation"));
    add_slots(type);
    add_quotas(type);
    add_counters(type);
}

}  // namespace shmtensor
