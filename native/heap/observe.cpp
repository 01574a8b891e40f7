#include "heap/observe.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "base/os.hpp"

namespace shmtensor {
namespace {

// The structs of layout.hpp as plain bytes, since atomics cannot be copied.
struct CopiedHold {
    std::uint64_t word;
    std::uint32_t mark, since;
};
static_assert(sizeof(CopiedHold) == sizeof(Hold));
struct CopiedBlock {
    std::uint64_t offset, size;
    std::uint32_t generation, count, next, where;
};
static_assert(sizeof(CopiedBlock) == sizeof(BlockRecord));

template <class Entry>
int copy_table(int fd, std::size_t table, std::uint32_t entries, std::vector<Entry>& to) {
    to.resize(entries);
    return os::read_at(fd, table, entries * sizeof(Entry), to.data());
}

bool is_better(std::uint32_t kind, std::uint32_t since, const ObservedBlock& than) {
    constexpr auto client = static_cast<std::uint32_t>(HoldKind::client);
    const bool was_client = (than.holder & 0xff) == client;
    return (kind == client) != was_client ? kind == client : since < than.since;
}

}  // namespace

int observe(int fd, Observation& found) {
    found = {};
    alignas(MetadataHeader) std::byte page[sizeof(MetadataHeader)];
    os::Facts facts;
    if (const int error = os::facts_of(fd, &facts)) return error;
    if (const int error = os::read_at(fd, 0, sizeof page, page)) return error;
    const auto& h = *reinterpret_cast<const MetadataHeader*>(page);
    const Shape shape = shape_of(h.dedicated != 0);
    if (h.magic != kMetadataMagic || h.version != kLayoutVersion || facts.bytes != shape.bytes) return EINVAL;
    found.segment = h.segment;
    found.payload_bytes = h.payload_bytes;
    found.owner = h.owner;
    found.dedicated = h.dedicated != 0;
    found.live_blocks = h.live_blocks.load(std::memory_order_relaxed);
    found.live_bytes = h.live_bytes.load(std::memory_order_relaxed);
    found.reserved_bytes = h.reserved_bytes.load(std::memory_order_relaxed);

    std::vector<CopiedHold> holds;
    std::vector<CopiedBlock> records;
    const std::uint32_t holds_high = std::min(h.holds_high.load(std::memory_order_relaxed), shape.holds);
    const std::uint32_t blocks_high = std::min(h.blocks_high.load(std::memory_order_relaxed), shape.blocks);
    if (const int error = copy_table(fd, shape.holds_at, holds_high, holds)) return error;
    if (const int error = copy_table(fd, shape.blocks_at, blocks_high, records)) return error;

    found.blocks.resize(blocks_high);
    std::map<std::pair<std::uint32_t, std::uint32_t>, ObservedHolder> holders;
    ObservedHolder* last = nullptr;  // neighbours often have the same owner
    std::uint32_t end = 0;
    for (const CopiedHold& hold : holds) {
        const std::uint32_t index = block_of(hold.word), owner = owner_of(hold.word);
        const auto kind = static_cast<std::uint32_t>(kind_of(hold.word));
        if (hold.word == 0 || index >= blocks_high) continue;
        const CopiedBlock& record = records[index];
        if (record.offset > h.payload_bytes || record.size > h.payload_bytes - record.offset) continue;
        ObservedBlock& block = found.blocks[index];
        if (block.holds == 0 || is_better(kind, hold.since, block)) {
            block.holder = owner << 8 | kind;
            block.since = hold.since;
        }
        block.offset = static_cast<std::uint32_t>(record.offset / kLine);
        block.size = record.size;
        ++block.holds;
        end = std::max(end, index + 1);
        if (last == nullptr || last->owner != owner || last->kind != kind) {
            last = &holders[{owner, kind}];
            if (last->blocks == 0) *last = {owner, kind, 0, 0, hold.since};
        }
        ++last->blocks;
        last->bytes += record.size;
        last->since = std::min(last->since, hold.since);
    }
    found.blocks.resize(end);
    found.holders.reserve(holders.size());
    for (const auto& [key, holder] : holders) found.holders.push_back(holder);
    return 0;
}

}  // namespace shmtensor
