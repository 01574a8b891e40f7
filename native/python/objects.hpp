// Clients and blocks as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <utility>

#include "heap/client.hpp"

namespace shmtensor {

namespace nb = nanobind;

// _native.Block: one user of a Block.
struct PyBlock {
    explicit PyBlock(Block* held) : block(held) {}
    PyBlock(const PyBlock&) = delete;
    PyBlock& operator=(const PyBlock&) = delete;
    ~PyBlock() {
        if (block->wrapper == wrapper) block->wrapper = nullptr;
        block->client->release(block);
    }
    Block* block;
    PyObject* wrapper = nullptr;  // itself
};

// _native.Client
struct PyClient {
    PyClient(nb::object group_object, Group& group, std::uint32_t slot, int connection, std::uint32_t epoch,
             nb::object segments, nb::object mappings, nb::object manager)
        : keep(std::move(group_object)),
          need_segment(std::move(segments)),
          need_mapping(std::move(mappings)),
          need_manager(std::move(manager)),
          client(group, slot, connection, epoch) {}
    nb::object keep;
    nb::object need_segment;
    nb::object need_mapping;
    nb::object need_manager;
    std::uint64_t asked = 0;  // when need_manager was last called; ns
    Client client;
};

// The only wrapper of a block; takes over the user that the core returned.
nb::object wrapper_of(Block* block);
// The wrapper of a client.
inline nb::handle wrapper_of(const Client& client) {
    return static_cast<PyObject*>(client.wrapper);
}

}  // namespace shmtensor
