// Statistics of a store, for its clients and the manager.
#pragma once

#include <cstdint>

#include "ipc/store.hpp"
#include "python/results.hpp"

namespace shmtensor {

struct StoreFacts {
    std::uint64_t objects, nbytes, max_bytes, evicted, expired, reserved_bytes, spilled, spilled_nbytes,
        max_spilled_bytes, dropped;
    bool evicts;
};
template <>
struct Result<StoreFacts> {
    static constexpr const char* name = "StoreFacts";
    static constexpr std::tuple fields{field("objects", &StoreFacts::objects),
                                       field("nbytes", &StoreFacts::nbytes),
                                       field("max_bytes", &StoreFacts::max_bytes),
                                       field("evicted", &StoreFacts::evicted),
                                       field("expired", &StoreFacts::expired),
                                       field("reserved_bytes", &StoreFacts::reserved_bytes),
                                       field("spilled", &StoreFacts::spilled),
                                       field("spilled_nbytes", &StoreFacts::spilled_nbytes),
                                       field("max_spilled_bytes", &StoreFacts::max_spilled_bytes),
                                       field("dropped", &StoreFacts::dropped),
                                       field("evicts", &StoreFacts::evicts)};
};

// A racy snapshot. pre: the ring is a store.
inline StoreFacts store_facts(const Ring& ring) {
    const StoreHeader& h = Store::header_of(ring);
    return {.objects = h.objects.load(),
            .nbytes = h.bytes.load(),
            .max_bytes = h.max_bytes.load(),
            .evicted = h.evicted.load(),
            .expired = h.expired.load(),
            .reserved_bytes = ring.header().reserved_bytes.load(),
            .spilled = h.spilled.load(),
            .spilled_nbytes = h.spilled_bytes.load(),
            .max_spilled_bytes = h.max_spilled_bytes.load(),
            .dropped = h.dropped.load(),
            .evicts = h.evicts != 0};
}

}  // namespace shmtensor
