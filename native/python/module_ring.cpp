// The manager's view of a ring (ring.hpp): making it, inspecting it, undoing transfers of dead clients. Never waits.
#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/os.hpp"
#include "ipc/reach.hpp"
#include "ipc/ring.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/results.hpp"
#include "python/store_facts.hpp"

namespace shmtensor {
namespace {

struct RingFacts {
    std::uint32_t messages;
    std::uint64_t put_bytes, got_bytes, capacity_bytes, reserved_bytes;
    std::uint32_t max_messages;
    std::uint64_t max_bytes;
    std::uint32_t peak_messages, kind;
    std::uint32_t put_messages, got_messages;
    std::uint32_t put_lock_slot, get_lock_slot;
};

}  // namespace

template <>
struct Result<RingFacts> {
    static constexpr const char* name = "RingFacts";
    static constexpr std::tuple fields{field("messages", &RingFacts::messages),
                                       field("put_bytes", &RingFacts::put_bytes),
                                       field("got_bytes", &RingFacts::got_bytes),
                                       field("capacity_bytes", &RingFacts::capacity_bytes),
                                       field("reserved_bytes", &RingFacts::reserved_bytes),
                                       field("max_messages", &RingFacts::max_messages),
                                       field("max_bytes", &RingFacts::max_bytes),
                                       field("peak_messages", &RingFacts::peak_messages),
                                       field("kind", &RingFacts::kind),
                                       field("put_messages", &RingFacts::put_messages),
                                       field("got_messages", &RingFacts::got_messages),
                                       field("put_lock_slot", &RingFacts::put_lock_slot),
                                       field("get_lock_slot", &RingFacts::get_lock_slot)};
};

namespace {

// The metadata of some segments. A segment that is gone (None) has no holds, so its metadata is empty.
class ManagerLookup final : public SegmentLookup {
   public:
    explicit ManagerLookup(const nb::dict& metadata) {
        for (const auto& [segment, of] : metadata) {
            SegmentMetadata* known = of.is_none() ? &none_ : nb::cast<SegmentMetadata*>(of);
            if (known != &none_ && !known->is_open()) known = &none_;
            metadata_.emplace(nb::cast<std::uint64_t>(segment), known);
        }
    }
    SegmentMetadata* find(std::uint64_t segment) override {
        const auto found = metadata_.find(segment);
        return found == metadata_.end() ? nullptr : found->second;
    }

   private:
    SegmentMetadata none_;
    std::unordered_map<std::uint64_t, SegmentMetadata*> metadata_;
};

class RingMemory {
   public:
    explicit RingMemory(int fd) { map(fd); }
    RingMemory(int fd, std::uint32_t number) {
        if (number < kFirstRing || number > kLastRing) throw nb::value_error("no ring can have this number");
        std::byte* at = nullptr;
        if (const int error = os::map_shared(fd, kFirstRingBytes, &at)) raise_os(error);
        Refusal refusal;
        os::Descriptor file(fd);
        const int error = limits::reserve(file, at, 0, kFirstRingBytes, refusal);
        file.release();  // the caller owns it
        if (!error) Ring::make(at, number);
        os::unmap(at, kFirstRingBytes);
        if (error) raise_os(error);
        map(fd);
    }
    RingMemory(const RingMemory&) = delete;
    ~RingMemory() { close(); }

    Ring& ring() {
        if (!at_) throw nb::value_error("this ring is closed");
        return ring_;
    }
    void close() {
        if (at_) os::unmap(at_, kRingBytes);
        at_ = nullptr;
        file_.release();  // the caller owns it
    }

   private:
    void map(int fd) {
        os::Facts facts;
        if (const int error = os::facts_of(fd, &facts)) raise_os(error);
        if (facts.bytes != kRingBytes) throw nb::value_error("the descriptor is not a ring: it has another size");
        if (const int error = os::map_shared(fd, kRingBytes, &at_)) raise_os(error);
        file_ = os::Descriptor(fd);
        if (ring_.open(at_, kRingBytes, file_)) return;
        close();
        throw nb::value_error("the descriptor is not a ring of this layout version");
    }

    std::byte* at_ = nullptr;
    os::Descriptor file_;
    Ring ring_;
};

RingFacts stats(RingMemory& self) {
    const RingHeader& h = self.ring().header();
    return {.messages = self.ring().size(),
            .put_bytes = h.tail.bytes.load(),
            .got_bytes = h.head.bytes.load(),
            .capacity_bytes = std::uint64_t{h.capacity.load()} * kRingUnit,
            .reserved_bytes = h.reserved_bytes.load(),
            .max_messages = h.max_messages.load(),
            .max_bytes = h.max_bytes.load(),
            .peak_messages = h.peak_messages.load(),
            .kind = h.kind.load(),
            .put_messages = count_of(h.tail.at.word.load()),
            .got_messages = count_of(h.head.at.word.load()),
            .put_lock_slot = holder_slot(h.tail.lock),
            .get_lock_slot = holder_slot(h.head.lock)};
}

void watch(RingMemory& self, std::uint64_t inode) {
    self.ring().header().event.store(inode);
    self.ring().header().watched.store(1);
}

void undo_transfers(RingMemory& self, std::uint32_t slot, const nb::dict& metadata) {
    ManagerLookup lookup(metadata);
    if (self.ring().undo_transfers(slot, lookup) != RingStatus::ok)
        raise(errors.lock_busy, "the ring is locked at the moment, or needs the metadata of more segments");
}

std::size_t end_rings(Group& group, const nb::list& pairs) {
    std::vector<Reached> rings;
    for (const nb::handle pair : pairs) {
        auto& metadata = nb::cast<SegmentMetadata&>(pair[1]);
        if (!metadata.is_open()) throw nb::value_error("the metadata of this segment is closed");
        rings.push_back({&nb::cast<RingMemory&>(pair[0]).ring(), &metadata});
    }
    return end_unreached(group, rings);
}

}  // namespace

void add_ring(nb::module_& m) {
    add_result<RingFacts>(m);
    m.attr("RING_BYTES") = kRingBytes;
    m.attr("FIRST_RING_BYTES") = kFirstRingBytes;
    m.attr("FIRST_RING") = kFirstRing;
    m.attr("LAST_RING") = kLastRing;
    m.attr("HOLD_MESSAGE") = static_cast<int>(HoldKind::message);

    nb::class_<RingMemory>(m, "RingMemory", nb::is_final())
        .def(nb::init<int>(), nb::arg("fd"))
        .def_static(
            "make", [](int fd, std::uint32_t number) { return std::make_unique<RingMemory>(fd, number); },
            nb::arg("fd"), nb::arg("number"))
        .def_prop_ro("number", [](RingMemory& self) { return self.ring().number(); })
        .def("size", [](RingMemory& self) { return self.ring().size(); })
        .def("stats", &stats)
        .def("store_facts", [](RingMemory& self) { return store_facts(self.ring()); })
        .def_prop_ro("event", [](RingMemory& self) { return self.ring().header().event.load(); })
        .def("watch", &watch, nb::arg("event"))
        .def(
            "names", [](RingMemory& self, std::uint32_t slot) { return self.ring().has_transfer_of(slot); },
            nb::arg("slot"))
        .def(
            "segments_to_undo", [](RingMemory& self, std::uint32_t slot) { return self.ring().segments_to_undo(slot); },
            nb::arg("slot"))
        .def("undo_transfers", &undo_transfers, nb::arg("slot"), nb::arg("metadata"))
        .def("close", &RingMemory::close);
    m.def("end_unreached", &end_rings, nb::arg("group"), nb::arg("rings"));
}

}  // namespace shmtensor
