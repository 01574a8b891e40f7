// The bindings of segment_metadata.hpp, _native.SegmentMetadata, for the manager, which is not a client and takes locks
// as slot 0; and of observe.hpp, _native.observe_segment, for processes that only watch.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/os.hpp"
#include "heap/group.hpp"
#include "heap/observe.hpp"
#include "heap/segment_metadata.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/results.hpp"
#include "python/waits.hpp"

namespace shmtensor {
namespace {

struct SegmentFacts {
    std::uint64_t segment;
    std::uint32_t owner, generation;
    std::uint64_t payload_bytes;
    bool dedicated, retired;
    nb::bytes device;
};
struct SegmentStats {
    std::uint32_t live_blocks;
    std::uint64_t live_bytes, reserved_bytes;
    std::uint32_t lock_slot;
};
struct HoldFacts {
    std::uint32_t owner, kind;
    double age;
};
struct HoldKinds {
    std::uint32_t client, ticket, message, name;
    double oldest_ticket;
};
struct BlockFacts {
    std::uint32_t block;
    std::uint64_t offset, nbytes;
    std::uint32_t generation;
    std::vector<HoldFacts> holds;
};
struct SegmentObservation {
    std::uint64_t segment, payload_bytes, live_bytes, reserved_bytes;
    std::uint32_t owner, live_blocks;
    bool dedicated;
    nb::bytes blocks;
    std::vector<ObservedHolder> holders;
};
struct HolderSum {
    std::uint32_t owner, kind, blocks;
    std::uint64_t nbytes, unshared_nbytes;
    double oldest;
};
struct HeldBlock {
    std::uint32_t block, generation;
    std::uint64_t nbytes;
    std::uint32_t owner, kind;
    double age;
};
struct Holders {
    std::vector<HolderSum> sums;
    std::vector<HeldBlock> oldest;
};

}  // namespace

template <>
struct Result<SegmentFacts> {
    static constexpr const char* name = "SegmentFacts";
    static constexpr std::tuple fields{
        field("segment", &SegmentFacts::segment),       field("owner", &SegmentFacts::owner),
        field("generation", &SegmentFacts::generation), field("payload_bytes", &SegmentFacts::payload_bytes),
        field("dedicated", &SegmentFacts::dedicated),   field("retired", &SegmentFacts::retired),
        field("device", &SegmentFacts::device)};
};
template <>
struct Result<SegmentStats> {
    static constexpr const char* name = "SegmentStats";
    static constexpr std::tuple fields{
        field("live_blocks", &SegmentStats::live_blocks), field("live_bytes", &SegmentStats::live_bytes),
        field("reserved_bytes", &SegmentStats::reserved_bytes), field("lock_slot", &SegmentStats::lock_slot)};
};
template <>
struct Result<HoldFacts> {
    static constexpr const char* name = "HoldFacts";
    static constexpr std::tuple fields{field("owner", &HoldFacts::owner), field("kind", &HoldFacts::kind),
                                       field("age", &HoldFacts::age)};
};
template <>
struct Result<HoldKinds> {
    static constexpr const char* name = "HoldKinds";
    static constexpr std::tuple fields{field("client", &HoldKinds::client), field("ticket", &HoldKinds::ticket),
                                       field("message", &HoldKinds::message), field("name", &HoldKinds::name),
                                       field("oldest_ticket", &HoldKinds::oldest_ticket)};
};
template <>
struct Result<BlockFacts> {
    static constexpr const char* name = "BlockFacts";
    static constexpr std::tuple fields{
        field("block", &BlockFacts::block), field("offset", &BlockFacts::offset), field("nbytes", &BlockFacts::nbytes),
        field("generation", &BlockFacts::generation), field("holds", &BlockFacts::holds)};
};
template <>
struct Result<ObservedHolder> {
    static constexpr const char* name = "ObservedHolder";
    static constexpr std::tuple fields{field("owner", &ObservedHolder::owner), field("kind", &ObservedHolder::kind),
                                       field("blocks", &ObservedHolder::blocks),
                                       field("nbytes", &ObservedHolder::bytes), field("since", &ObservedHolder::since)};
};
template <>
struct Result<SegmentObservation> {
    static constexpr const char* name = "SegmentObservation";
    static constexpr std::tuple fields{field("segment", &SegmentObservation::segment),
                                       field("owner", &SegmentObservation::owner),
                                       field("payload_bytes", &SegmentObservation::payload_bytes),
                                       field("dedicated", &SegmentObservation::dedicated),
                                       field("live_blocks", &SegmentObservation::live_blocks),
                                       field("live_bytes", &SegmentObservation::live_bytes),
                                       field("reserved_bytes", &SegmentObservation::reserved_bytes),
                                       field("blocks", &SegmentObservation::blocks),
                                       field("holders", &SegmentObservation::holders)};
};
template <>
struct Result<HolderSum> {
    static constexpr const char* name = "HolderSum";
    static constexpr std::tuple fields{field("owner", &HolderSum::owner),
                                       field("kind", &HolderSum::kind),
                                       field("blocks", &HolderSum::blocks),
                                       field("nbytes", &HolderSum::nbytes),
                                       field("unshared_nbytes", &HolderSum::unshared_nbytes),
                                       field("oldest", &HolderSum::oldest)};
};
template <>
struct Result<HeldBlock> {
    static constexpr const char* name = "HeldBlock";
    static constexpr std::tuple fields{field("block", &HeldBlock::block),   field("generation", &HeldBlock::generation),
                                       field("nbytes", &HeldBlock::nbytes), field("owner", &HeldBlock::owner),
                                       field("kind", &HeldBlock::kind),     field("age", &HeldBlock::age)};
};
template <>
struct Result<Holders> {
    static constexpr const char* name = "Holders";
    static constexpr std::tuple fields{field("sums", &Holders::sums), field("oldest", &Holders::oldest)};
};

namespace {

SegmentMetadata& require_open(SegmentMetadata& metadata) {
    if (!metadata.is_open()) raise(PyExc_ValueError, "the metadata of this segment is closed");
    return metadata;
}

class MetadataLock {
   public:
    explicit MetadataLock(SegmentMetadata& metadata) : metadata_(require_open(metadata)) {
        if (!metadata.lock_untrusted()) raise(errors.lock_busy, "the metadata of the segment is locked at the moment");
    }
    MetadataLock(const MetadataLock&) = delete;
    MetadataLock& operator=(const MetadataLock&) = delete;
    ~MetadataLock() { metadata_.unlock(); }

   private:
    SegmentMetadata& metadata_;
};

// --------------------------------------------------------------------------------------------------- life of a segment

std::unique_ptr<SegmentMetadata> create(const std::string& name, std::uint64_t segment, std::uint32_t owner,
                                        std::uint32_t generation, std::uint64_t bytes, bool dedicated,
                                        const nb::bytes& device) {
    if (device.size() != 0 && device.size() != sizeof MetadataHeader::device)
        throw nb::value_error("the UUID of a device has 16 bytes");
    const auto* uuid = device.size() != 0 ? static_cast<const std::uint8_t*>(device.data()) : nullptr;
    auto metadata = std::make_unique<SegmentMetadata>();
    if (const int error = metadata->create(name.c_str(), segment, owner, generation, bytes, dedicated, uuid))
        raise_os(error);
    return metadata;
}

std::unique_ptr<SegmentMetadata> found(int fd) {
    auto metadata = std::make_unique<SegmentMetadata>();
    const int error = metadata->open_found(fd);
    if (error == EINVAL) throw nb::value_error("the descriptor is not segment metadata of this layout version");
    if (error) raise_os(error);
    return metadata;
}

SegmentFacts facts(SegmentMetadata& self) {
    const MetadataHeader& h = require_open(self).header();
    const bool on_device = std::any_of(std::begin(h.device), std::end(h.device), [](std::uint8_t b) { return b != 0; });
    return {h.segment,
            h.owner,
            h.owner_generation,
            h.payload_bytes,
            self.shape().blocks == 1,
            h.retired.load() != 0,
            nb::bytes(h.device, on_device ? sizeof h.device : 0)};
}

void hand_out(SegmentMetadata& self, std::uint32_t slot) {
    if (!self.is_open() || self.shape().blocks != 1 || self.header().blocks_high.load() != 0)
        throw nb::value_error("only an unused dedicated segment is handed out whole");
    std::uint32_t reserved = 0;
    Refusal refusal;
    if (const int error = self.reserve_blocks(1, refusal)) raise_os(error);
    if (const int error = self.reserve_holds(&reserved, refusal)) raise_os(error);
    const MetadataLock locked(self);
    self.grow_holds(reserved);
    self.hand_out(0, 0, self.header().payload_bytes, slot);
}

void note_reserved(SegmentMetadata& self, int payload) {
    os::Facts facts;
    require_open(self);
    if (const int error = os::facts_of(payload, &facts)) raise_os(error);
    self.header().reserved_bytes.store(facts.reserved, std::memory_order_relaxed);
}

SegmentStats stats(SegmentMetadata& self) {
    const MetadataHeader& h = require_open(self).header();
    return {h.live_blocks.load(), h.live_bytes.load(), h.reserved_bytes.load(), holder_slot(h.lock)};
}

// --------------------------------------------------------------------------------------------------------------- holds

std::uint32_t release_holds(SegmentMetadata& self, std::uint32_t slot, Group& group, bool rebuild) {
    const MetadataLock locked(self);
    // If this manager was stopped and replaced, the slot may already belong to another client. If it was not replaced
    // yet, no other manager can release the slot's holds here while this one has the lock.
    if (!group.leads()) raise(PyExc_PermissionError, "this manager has been replaced");
    return self.release_holds_of(slot, rebuild);
}

std::uint32_t expire_tickets(SegmentMetadata& self, std::uint32_t seconds) {
    const std::uint32_t now = os::monotonic_seconds();
    if (now < seconds) return 0;
    const MetadataLock locked(self);
    return self.expire_tickets(now - seconds);
}

std::optional<std::uint64_t> live(SegmentMetadata& self, std::uint32_t block, std::uint32_t generation) {
    const std::uint64_t size = require_open(self).live_size(block, generation);
    return size ? std::optional{size} : std::nullopt;
}

HoldKinds count_holds(SegmentMetadata& self) {
    const HoldCounts found = require_open(self).count_holds();
    const std::uint32_t now = os::monotonic_seconds();
    const double age = found.oldest_ticket < now ? now - found.oldest_ticket : 0;
    return {found.client, found.ticket, found.message, found.name, age};
}

struct FoundHold {
    std::uint64_t word;
    std::uint32_t since;
};

// Copies the holds under the lock, to be processed without it.
std::vector<FoundHold> copy_holds(SegmentMetadata& metadata, std::uint32_t limit) {
    std::vector<FoundHold> holds;
    // Allocate first, since nothing may allocate under the lock.
    const std::uint32_t seen = std::min(require_open(metadata).header().holds_high.load(), metadata.shape().holds);
    holds.reserve(std::min(seen + 1024, limit));
    const MetadataLock locked(metadata);
    const std::uint32_t high = std::min(metadata.header().holds_high.load(), metadata.shape().holds);
    for (std::uint32_t i = 0; i < high; ++i) {
        const std::uint64_t word = metadata.has_hold(i) ? metadata.hold(i).word.load() : 0;
        if (word == 0) continue;
        if (holds.size() == holds.capacity()) raise(errors.lock_busy, "the segment has too many holds to list");
        holds.push_back({word, metadata.hold(i).since.load(std::memory_order_relaxed)});
    }
    return holds;
}

double age_of(std::uint32_t now, std::uint32_t since) {
    return now >= since ? now - since : 0;
}

std::vector<BlockFacts> list_blocks(SegmentMetadata& metadata, std::uint32_t limit) {
    std::map<std::uint32_t, BlockFacts> blocks;
    const std::uint32_t now = os::monotonic_seconds();
    for (const auto& [word, since] : copy_holds(metadata, limit)) {
        const std::uint32_t index = block_of(word);
        if (index >= metadata.shape().blocks || !metadata.has_record(index)) continue;
        const BlockRecord& r = metadata.block(index);
        auto& found = blocks[index];
        if (found.holds.empty()) found = {index, r.offset, r.size.load(), r.generation.load(), {}};
        found.holds.push_back({owner_of(word), static_cast<std::uint32_t>(kind_of(word)), age_of(now, since)});
    }
    std::vector<BlockFacts> list;
    list.reserve(blocks.size());
    for (auto& [index, found] : blocks) list.push_back(std::move(found));
    return list;
}

// ------------------------------------------------------------------------------------------------------------ watching

SegmentObservation observe_segment(int fd) {
    Observation seen;
    int error = 0;
    {
        const GilRelease released;
        error = observe(fd, seen);
    }
    if (error == EINVAL) throw nb::value_error("the descriptor is not segment metadata of this layout version");
    if (error) raise_os(error);
    return {seen.segment,
            seen.payload_bytes,
            seen.live_bytes,
            seen.reserved_bytes,
            seen.owner,
            seen.live_blocks,
            seen.dedicated,
            nb::bytes(seen.blocks.data(), seen.blocks.size() * sizeof(ObservedBlock)),
            std::move(seen.holders)};
}

// Divides `rows` among holders: each gets all that it has, or an equal part of what smaller holders leave.
std::vector<std::size_t> divide(std::size_t rows, const std::vector<std::size_t>& counts) {
    std::vector<std::size_t> order(counts.size()), parts(counts.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return counts[a] < counts[b]; });
    std::size_t left = order.size();
    for (const std::size_t i : order) {
        parts[i] = std::min(counts[i], rows / left--);
        rows -= parts[i];
    }
    return parts;
}

Holders list_holders(SegmentMetadata& metadata, std::uint32_t limit, std::uint32_t rows) {
    const std::uint32_t now = os::monotonic_seconds();
    using Holder = std::pair<std::uint32_t, HoldKind>;
    std::map<Holder, std::vector<FoundHold>> found;
    std::unordered_map<std::uint32_t, std::uint32_t> holds_of;  // blocks
    for (const FoundHold& hold : copy_holds(metadata, limit)) {
        const std::uint32_t index = block_of(hold.word);
        if (index >= metadata.shape().blocks || !metadata.has_record(index)) continue;
        found[{owner_of(hold.word), kind_of(hold.word)}].push_back(hold);
        ++holds_of[index];
    }
    std::vector<std::size_t> counts;
    for (const auto& [holder, holds] : found)
        if (holder.second != HoldKind::ticket) counts.push_back(holds.size());
    const std::vector<std::size_t> parts = divide(rows, counts);
    Holders listed;
    std::size_t next = 0;
    for (auto& [holder, holds] : found) {
        const auto& [owner, kind] = holder;
        const auto size_of = [&](const FoundHold& hold) { return metadata.block(block_of(hold.word)).size.load(); };
        HolderSum sum{owner, static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(holds.size()), 0, 0, 0};
        for (const FoundHold& hold : holds) {
            sum.nbytes += size_of(hold);
            if (holds_of[block_of(hold.word)] == 1) sum.unshared_nbytes += size_of(hold);
            sum.oldest = std::max(sum.oldest, age_of(now, hold.since));
        }
        listed.sums.push_back(sum);
        const std::size_t part = kind == HoldKind::ticket ? std::min<std::size_t>(rows, holds.size()) : parts[next++];
        const auto end = holds.begin() + static_cast<std::ptrdiff_t>(part);
        std::partial_sort(holds.begin(), end, holds.end(),
                          [](const FoundHold& a, const FoundHold& b) { return a.since < b.since; });
        for (auto hold = holds.begin(); hold != end; ++hold) {
            const std::uint32_t index = block_of(hold->word);
            listed.oldest.push_back({index, metadata.block(index).generation.load(), size_of(*hold), owner, sum.kind,
                                     age_of(now, hold->since)});
        }
    }
    return listed;
}

void add_holds(nb::class_<SegmentMetadata>& type) {
    type.def("release_holds", &release_holds, nb::arg("slot"), nb::arg("group"), nb::arg("rebuild") = false)
        .def("expire_tickets", &expire_tickets, nb::arg("seconds"))
        .def("live", &live, nb::arg("block"), nb::arg("generation"))
        .def_prop_ro("is_kept", [](SegmentMetadata& self) { return require_open(self).is_kept_untrusted(); })
        .def("count_holds", &count_holds)
        .def("blocks", &list_blocks, nb::arg("limit") = kArenaHolds)
        .def("holders", &list_holders, nb::arg("limit"), nb::arg("rows"));
}

}  // namespace

void add_segment(nb::module_& m) {
    add_result<SegmentFacts>(m);
    add_result<SegmentStats>(m);
    add_result<HoldFacts>(m);
    add_result<HoldKinds>(m);
    add_result<BlockFacts>(m);
    add_result<ObservedHolder>(m);
    add_result<SegmentObservation>(m);
    m.def("observe_segment", &observe_segment, nb::arg("fd"));
    add_result<HolderSum>(m);
    add_result<HeldBlock>(m);
    add_result<Holders>(m);
    nb::class_<SegmentMetadata> type(m, "SegmentMetadata", nb::is_final());
    type.def_static("create", &create, nb::arg("name"), nb::arg("segment"), nb::arg("owner"), nb::arg("generation"),
                    nb::arg("payload_bytes"), nb::arg("dedicated"), nb::arg("device") = nb::bytes("", 0))
        .def_static("found", &found, nb::arg("fd"))
        .def_prop_ro("fd", &SegmentMetadata::fd)
        .def_prop_ro("facts", &facts)
        .def("hand_out", &hand_out, nb::arg("slot"))
        .def_prop_ro("is_lent", [](SegmentMetadata& self) { return self.is_open() && self.header().lent.load() != 0; })
        .def(
            "has_ended",
            [](SegmentMetadata& self, Group& group) {
                return self.is_open() && group.has_ended(self.header().sealed.load());
            },
            nb::arg("group"))
        .def("retire", [](SegmentMetadata& self) { require_open(self).header().retired.store(1); })
        .def("stats", &stats)
        .def("note_reserved", &note_reserved, nb::arg("payload"))
        .def("close", &SegmentMetadata::close);
    add_holds(type);
}

}  // namespace shmtensor
