// A group with a ring, and the manager's part: the base of the programs that test rings, broadcasts and stores.
#pragma once

#include <sys/mman.h>

#include <deque>
#include <new>

#include "ipc/ring.hpp"
#include "world.hpp"

namespace world {

struct RingWorld {
    Group group;
    std::deque<Arena> arenas;  // number i + 1
    os::Descriptor ring_file;
    std::byte* ring_at = nullptr;
    Ring ring;

    explicit RingWorld(int count) {
        want(group.create(7) == 0, "group.create");
        for (int i = 0; i < count; ++i) arenas.emplace_back(static_cast<std::uint64_t>(i) + 1, 0);
        int fd = -1;
        want(os::memfd("ring", kRingBytes, &fd) == 0, "memfd");
        ring_file = os::Descriptor(fd);
        want(os::map_shared(fd, kRingBytes, &ring_at) == 0, "map");
        want(os::reserve(ring_file, ring_at, 0, kFirstRingBytes) == 0, "reserve");
        Ring::make(ring_at, kFirstRing);
        want(ring.open(ring_at, kRingBytes, ring_file), "ring.open");
    }
    ~RingWorld() { os::unmap(ring_at, kRingBytes); }
    RingWorld(const RingWorld&) = delete;

    struct ManagerLookup final : SegmentLookup {
        explicit ManagerLookup(RingWorld& w) : world(w) {}
        SegmentMetadata* find(std::uint64_t segment) override {
            return segment >= 1 && segment <= world.arenas.size() ? &world.arenas[segment - 1].metadata : nullptr;
        }
        RingWorld& world;
    };

    std::uint32_t claim() {
        const std::uint32_t slot = group.claim(SlotState::client, 1, 1, 0);
        want(slot != kNone, "claim");
        return slot;
    }
    // As the manager reclaims a dead client: undo first, then release.
    void reclaim(std::uint32_t slot) {
        ManagerLookup all(*this);
        for (int tries = 0; ring.has_transfer_of(slot); ++tries) {
            want(tries < 5000, "a dead client's transfer cannot be undone");
            if (ring.undo_transfers(slot, all) != RingStatus::ok) ::usleep(1000);
        }
        for (Arena& arena : arenas) arena.release_holds_of(slot);
        set_state(group, slot, SlotState::free);
    }
};

// Memory that all processes of a program share, zeroed.
template <class Board>
class SharedBoard {
   public:
    SharedBoard() {
        void* at = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        want(at != MAP_FAILED, "mmap");
        board_ = static_cast<Board*>(at);
    }
    ~SharedBoard() { ::munmap(board_, sizeof(Board)); }
    SharedBoard(const SharedBoard&) = delete;
    Board* operator->() const { return board_; }

   private:
    Board* board_;
};

struct ClientLookup final : SegmentLookup {
    explicit ClientLookup(Client& c) : client(c) {}
    SegmentMetadata* find(std::uint64_t segment) override { return client.find(segment); }
    Client& client;
};

// One process at the ring.
struct RingMember {
    std::uint32_t slot;
    Connection connection;
    Client client;
    Ring ring;
    ClientLookup lookup{client};

    // `owned`: the arena that it allocates from, 0: none
    RingMember(RingWorld& w, std::uint32_t s, int owned)
        : slot(s), client(w.group, s, std::exchange(connection.ours, -1)) {
        for (std::size_t i = 0; i < w.arenas.size(); ++i) w.arenas[i].add_to(client, static_cast<int>(i) + 1 == owned);
        want(ring.open(w.ring_at, kRingBytes, w.ring_file), "open");
    }
};

}  // namespace world
