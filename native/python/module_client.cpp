// The binding of client.hpp: _native.Client.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "heap/client.hpp"
#include "python/codec_memory.hpp"
#include "python/errors.hpp"
#include "python/module.hpp"
#include "python/objects.hpp"
#include "python/results.hpp"
#include "python/waits.hpp"

namespace shmtensor {

template <>
struct Result<Ticket> {
    static constexpr const char* name = "Ticket";
    static constexpr std::tuple fields{field("hold", &Ticket::hold), field("mark", &Ticket::mark)};
};
template <>
struct Result<EmbryoSlot> {
    static constexpr const char* name = "EmbryoSlot";
    static constexpr std::tuple fields{field("slot", &EmbryoSlot::slot), field("generation", &EmbryoSlot::generation),
                                       field("socket", &EmbryoSlot::socket)};
};
template <>
struct Result<Client::Stats> {
    static constexpr const char* name = "ClientStats";
    static constexpr std::tuple fields{
        field("mapped", &Client::Stats::mapped),     field("owned", &Client::Stats::owned),
        field("blocks", &Client::Stats::blocks),     field("nbytes", &Client::Stats::bytes),
        field("reserved", &Client::Stats::reserved), field("free", &Client::Stats::free)};
};

namespace {

void make_client(nb::pointer_and_handle<PyClient> self, const nb::object& group, std::uint32_t slot, int connection,
                 std::uint32_t epoch, nb::object need_segment, nb::object need_mapping, nb::object need_manager) {
    new (self.p) PyClient(group, nb::cast<Group&>(group), slot, connection, epoch, std::move(need_segment),
                          std::move(need_mapping), std::move(need_manager));
    self.h.inc_ref();  // blocks point to it: it lives as long as the process
    self.p->client.wrapper = self.h.ptr();
}

void add_mapped(PyClient& self, std::uint64_t id, int control, int payload, std::uint64_t bytes, int kind, bool owned) {
    const int error = self.client.add_segment(id, control, payload, bytes, static_cast<SegmentKind>(kind), owned);
    if (error == EINVAL) throw nb::value_error("the descriptors are not the segment that was announced");
    if (error) raise_os(error);
}

bool add_mapped_on_device(PyClient& self, std::uint64_t id, int control, int payload, std::uint64_t bytes, int kind,
                          bool owned, int device, std::uint64_t address) {
    if (device < 0) throw nb::value_error("the number of a device must be at least 0");
    const int error = self.client.add_device_segment(id, control, payload, bytes, static_cast<SegmentKind>(kind), owned,
                                                     device, address);
    if (error == EINVAL) throw nb::value_error("the descriptor is not the metadata of the segment that was announced");
    if (error != 0 && error != EEXIST) raise_os(error);
    return error == 0;
}

// -------------------------------------------------------------------------------------------------------------- blocks

// Functions that are called often take the object unconverted: a conversion would cost a table lookup.
PyClient& self_of(nb::handle object) {
    return *nb::inst_ptr<PyClient>(object);
}

nb::object allocate_checked(nb::handle object, std::uint64_t bytes, int device) {
    if (bytes == 0 || bytes > kMaxSegmentBytes)
        raise(PyExc_ValueError,
              "a block has 1 to " + std::to_string(kMaxSegmentBytes) + " bytes, not " + std::to_string(bytes));
    Block* block = nullptr;
    if (!allocate_block(object.ptr(), bytes, &block, device)) throw nb::python_error();
    return wrapper_of(block);
}

nb::object attach(nb::handle object, std::uint64_t segment, std::uint32_t index, std::uint32_t generation) {
    PyClient& self = self_of(object);
    Block* block = nullptr;
    retry_blocking(self, {.segment = segment}, [&](unsigned patience) {
        return self.client.attach({segment, index, generation}, patience, &block);
    });
    return wrapper_of(block);
}

Ticket ticket(nb::handle object, PyBlock& block, std::uint32_t owner) {
    PyClient& self = self_of(object);
    if (block.block->client != &self.client) throw nb::value_error("the block belongs to another client");
    if (owner >= kMaxSlots) throw nb::value_error("no such slot");
    return make_ticket(self, *block.block, owner);
}

nb::object redeem(nb::handle object, std::uint64_t segment, std::uint32_t index, std::uint32_t generation,
                  std::uint32_t hold, std::uint32_t mark) {
    PyClient& self = self_of(object);
    Block* block = nullptr;
    retry_blocking(self, {.segment = segment}, [&](unsigned patience) {
        return self.client.redeem({segment, index, generation}, {hold, mark}, patience, &block);
    });
    return wrapper_of(block);
}

nb::object receive(nb::handle object, std::uint64_t segment, std::uint32_t index, std::uint32_t generation,
                   std::uint32_t hold) {
    PyClient& self = self_of(object);
    Block* block = nullptr;
    retry_blocking(self, {.segment = segment},
                   [&](unsigned) { return self.client.receive({segment, index, generation, hold, 0}, &block); });
    return wrapper_of(block);
}

void add_block_calls(nb::class_<PyClient>& type) {
    type.def("allocate", &allocate_checked, nb::arg("nbytes"), nb::arg("device") = kHost)
        .def("attach", &attach, nb::arg("segment"), nb::arg("index"), nb::arg("generation"))
        .def(
            "keep",
            [](nb::handle object, PyBlock& block, bool kept) {
                PyClient& self = *nb::inst_ptr<PyClient>(object);
                retry_blocking(self, {},
                               [&](unsigned patience) { return self.client.keep(*block.block, kept, patience); });
            },
            nb::arg("block"), nb::arg("kept") = true)
        .def("ticket", &ticket, nb::arg("block"), nb::arg("owner") = 0)
        .def("redeem", &redeem, nb::arg("segment"), nb::arg("index"), nb::arg("generation"), nb::arg("hold"),
             nb::arg("mark"))
        .def("receive", &receive, nb::arg("segment"), nb::arg("index"), nb::arg("generation"), nb::arg("hold"));
}

// ---------------------------------------------------------------------------------------------------- the whole client

EmbryoSlot embryo(PyClient& self) {
    EmbryoSlot made;
    if (!self.client.may_touch()) raise_not_held(self.client);
    if (const int error = self.client.embryo(&made)) raise_os(error);
    return made;
}

std::uint64_t trim(PyClient& self) {
    std::uint64_t bytes = 0;
    Status status;
    {
        const GilRelease released;
        status = self.client.trim(&bytes);
    }
    if (status != Status::ok) raise_status(status, self.client);
    return bytes;
}

void close(PyClient& self) {
    if (!self.client.close()) throw nb::value_error("blocks of this client are still in use; drop them first");
}

}  // namespace

void add_client(nb::module_& m) {
    add_result<Ticket>(m);
    add_result<EmbryoSlot>(m);
    add_result<Client::Stats>(m);
    nb::class_<PyClient> type(m, "Client", nb::is_final());
    type.def("__init__", &make_client, nb::arg("group"), nb::arg("slot"), nb::arg("connection"), nb::arg("epoch"),
             nb::arg("need_segment"), nb::arg("need_mapping"), nb::arg("need_manager"))
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
        .def("add_segment", &add_mapped, nb::arg("segment"), nb::arg("control"), nb::arg("payload"),
             nb::arg("payload_bytes"), nb::arg("kind"), nb::arg("owned"))
        .def("add_device_segment", &add_mapped_on_device, nb::arg("segment"), nb::arg("control"), nb::arg("payload"),
             nb::arg("payload_bytes"), nb::arg("kind"), nb::arg("owned"), nb::arg("device"), nb::arg("address"))
        .def("device_segments", [](PyClient& self) { return self.client.device_segments(); })
        .def(
            "give_up_unused", [](PyClient& self, int device) { return self.client.give_up_unused(device); },
            nb::arg("device"))
        .def("take_unmapped", [](PyClient& self) { return self.client.take_unmapped(); })
        .def(
            "device_stats", [](PyClient& self, int device) { return self.client.device_stats(device); },
            nb::arg("device"))
        .def("lost", [](PyClient& self) { return self.client.lost(); });
    add_block_calls(type);
    type.def("embryo", &embryo)
        .def("trim", &trim)
        .def("finish_releases",
             [](PyClient& self) {
                 const GilRelease released;
                 self.client.finish_releases();
             })
        .def("stats", [](PyClient& self) { return self.client.stats(); })
        .def("check_invariants", [](PyClient& self) { require_sound(self.client.check()); })
        .def("close", &close);
}

}  // namespace shmtensor
