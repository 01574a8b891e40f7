// shmtensor._native: the Python bindings of the core. shmtensor/_native.pyi documents each name.
#include "python/module.hpp"

#include <nanobind/nanobind.h>

#include "base/layout.hpp"
#include "heap/heap.hpp"
#include "heap/protocol.hpp"
#include "python/autograd.hpp"
#include "python/errors.hpp"
#include "python/operation.hpp"
#include "python/tensors.hpp"

using namespace shmtensor;

namespace {

void add_constants(nb::module_& m) {
    m.attr("LAYOUT_VERSION") = kLayoutVersion;
    m.attr("PROTOCOL_VERSION") = kProtocolVersion;
    m.attr("PAGE") = kPage;
    m.attr("MAX_SLOTS") = kMaxSlots;
    m.attr("MAX_SEGMENT_BYTES") = kMaxSegmentBytes;
    m.attr("ARENA_BYTES") = kArenaBytes;
    m.attr("DEDICATED_FROM") = kDedicatedFrom;
    m.attr("DEVICE_ARENA_BYTES") = kDeviceArenaBytes;
    m.attr("DEVICE_DEDICATED_FROM") = kDeviceDedicatedFrom;
    m.attr("ARENA_HOLDS") = kArenaHolds;
    m.attr("DEDICATED_HOLDS") = kDedicatedHolds;
    m.attr("SLOT_FREE") = static_cast<int>(SlotState::free);
    m.attr("SLOT_GROUP") = static_cast<int>(SlotState::group);
    m.attr("SLOT_CLIENT") = static_cast<int>(SlotState::client);
    m.attr("SLOT_EMBRYO") = static_cast<int>(SlotState::embryo);
    m.attr("SLOT_DEAD") = static_cast<int>(SlotState::dead);
    m.attr("SEGMENT_ARENA") = static_cast<int>(SegmentKind::arena);
    m.attr("SEGMENT_DEDICATED") = static_cast<int>(SegmentKind::dedicated);
    m.attr("SEGMENT_RING") = static_cast<int>(SegmentKind::ring);
    m.attr("HOLD_CLIENT") = static_cast<int>(HoldKind::client);
    m.attr("HOLD_TICKET") = static_cast<int>(HoldKind::ticket);
    m.attr("HOLD_NAME") = static_cast<int>(HoldKind::name);
}

}  // namespace

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // clients live until the process ends
    add_constants(m);
    if (!load_errors(m.ptr())) throw nb::python_error();
    add_atomics(m);
    add_queue(m);
    add_broadcast(m);
    add_dlpack(m);
    add_random(m);
    add_ring(m);
    add_sync(m);
    add_system(m);
    add_group(m);
    add_segment(m);
    add_store(m);
    add_blocks(m);
    add_client(m);
    add_codec(m);
    add_gpu(m);
    add_training(m);
    add_layers(m);
    if (!add_tensors(m.ptr()) || !add_operations(m.ptr()) || !autograd::add_nodes(m.ptr()) ||
        !autograd::add_rules(m.ptr()) || !autograd::add_passes(m.ptr()))
        throw nb::python_error();
}
