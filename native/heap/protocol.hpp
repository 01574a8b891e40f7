// The part of the protocol between clients and managers (docs/protocol.md) that native code needs: its version, which
// Python reads from here, and the two messages that fork hooks send. Little endian, like both supported architectures.
#pragma once

#include <cstdint>

#include "base/layout.hpp"

namespace shmtensor {

// Manager and client must agree on it exactly. Header, HELLO and ERROR never change; any other change of a message, and
// any new message, flag or error code, raises it by one.
constexpr std::uint32_t kProtocolVersion = 5;

struct EmbryoMessage {
    char magic[4] = {'S', 'H', 'M', 'T'};
    std::uint32_t type = 2, request = 0, body = 8;
    std::uint32_t slot, generation;
};
static_assert(sizeof(EmbryoMessage) == 24);
struct QuietHello {
    char magic[4] = {'S', 'H', 'M', 'T'};
    std::uint32_t type = 1, request = 0, body = 16;
    std::uint32_t protocol = kProtocolVersion, layout = kLayoutVersion, quiet = 1, reserved = 0;
};
static_assert(sizeof(QuietHello) == 32);

}  // namespace shmtensor
