// The binding of codec.hpp: values as messages, and as bytes with tickets.
#include <nanobind/nanobind.h>

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "python/codec.hpp"
#include "python/codec_memory.hpp"
#include "python/module.hpp"
#include "python/objects.hpp"
#include "python/results.hpp"
#include "python/waits.hpp"

namespace shmtensor {

namespace {

struct Packed {
    nb::bytes body;
    nb::list blocks;
};
struct TicketedValue {
    nb::bytes body, tickets;
};

}  // namespace

template <>
struct Result<Packed> {
    static constexpr const char* name = "Packed";
    static constexpr std::tuple fields{field("body", &Packed::body), field("blocks", &Packed::blocks)};
};
template <>
struct Result<TicketedValue> {
    static constexpr const char* name = "TicketedValue";
    static constexpr std::tuple fields{field("body", &TicketedValue::body), field("tickets", &TicketedValue::tickets)};
};

namespace {

struct Bytes {
    explicit Bytes(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    Bytes(const Bytes&) = delete;
    ~Bytes() { PyBuffer_Release(&view); }
    Py_buffer view{};
};

// One block of a message that is sent as bytes; in shmtensor/ipc/codec.py, struct "<QIIII".
struct SentBlock {
    BlockName name;
    Ticket ticket;
};
static_assert(sizeof(SentBlock) == 24);

nb::bytes bytes_of(const std::vector<SentBlock>& blocks) {
    return nb::bytes(blocks.data(), blocks.size() * sizeof(SentBlock));
}

Packed pack(nb::handle client, nb::handle value) {
    EncodedValue encoded;
    if (!encode(client.ptr(), value.ptr(), encoded)) throw nb::python_error();
    nb::bytes body(encoded.body.data(), encoded.body.size());
    nb::list blocks;
    for (Block*& block : encoded.blocks) {
        PyObject* wrapper = take_wrapper(block);
        if (!wrapper) throw nb::python_error();
        blocks.append(nb::steal(wrapper));
    }
    return {body, blocks};
}

nb::object decoded(const Bytes& body, EncodedValue& encoded) {
    PyObject* value =
        decode(static_cast<const std::byte*>(body.view.buf), static_cast<std::size_t>(body.view.len), encoded.blocks);
    if (!value) throw nb::python_error();
    return nb::steal(value);
}

nb::object unpack(nb::handle body, const nb::list& blocks) {
    const Bytes bytes(body);
    EncodedValue encoded;
    for (const nb::handle wrapper : blocks) {
        Block* block = nb::cast<PyBlock&>(wrapper).block;
        encoded.blocks.push_back(block);
        block->client->share(*block);
    }
    return decoded(bytes, encoded);
}

TicketedValue pack_tickets(nb::handle client, nb::handle value) {
    EncodedValue encoded;
    if (!encode(client.ptr(), value.ptr(), encoded)) throw nb::python_error();
    nb::bytes body(encoded.body.data(), encoded.body.size());
    std::vector<SentBlock> sent;
    sent.reserve(encoded.blocks.size());
    // Hold the blocks until all have their ticket; after a failure, take back the tickets that were made.
    try {
        for (const Block* block : encoded.blocks) {
            PyClient& owner = *nb::inst_ptr<PyClient>(wrapper_of(*block->client));
            sent.push_back({block->name(), make_ticket(owner, *block, 0)});
        }
        return {body, bytes_of(sent)};
    } catch (...) {
        for (std::size_t i = 0; i < sent.size(); ++i) {
            Block* block = nullptr;
            Client& owner = *encoded.blocks[i]->client;
            if (owner.redeem(sent[i].name, sent[i].ticket, kSlice, &block) == Status::ok) owner.release(block);
        }
        throw;
    }
}

// Redeems every ticket, even if one of them or the body fails.
nb::object unpack_tickets(nb::handle object, nb::handle body, nb::handle list) {
    auto& self = nb::cast<PyClient&>(object);
    const Bytes bytes(body), packed(list);
    const auto* from = static_cast<const std::byte*>(packed.view.buf);
    const std::size_t count = static_cast<std::size_t>(packed.view.len) / sizeof(SentBlock);
    EncodedValue encoded;
    encoded.blocks.reserve(count);
    std::optional<nb::python_error> problem;
    for (std::size_t i = 0; i < count; ++i) {
        SentBlock sent;
        std::memcpy(&sent, from + i * sizeof sent, sizeof sent);
        Block* block = nullptr;
        try {
            retry_blocking(self, {.segment = sent.name.segment}, [&](unsigned patience) {
                return self.client.redeem(sent.name, sent.ticket, patience, &block);
            });
            encoded.blocks.push_back(block);
        } catch (nb::python_error& error) {
            if (!problem) problem.emplace(std::move(error));
        }
    }
    if (problem) throw std::move(*problem);
    return decoded(bytes, encoded);
}

}  // namespace

void add_codec(nb::module_& m) {
    load_block_types();
    add_result<Packed>(m);
    add_result<TicketedValue>(m);
    m.def("pack", &pack, nb::arg("client").none(), nb::arg("value").none());
    m.def("unpack", &unpack, nb::arg("body"), nb::arg("blocks"));
    m.def("pack_tickets", &pack_tickets, nb::arg("client").none(), nb::arg("value").none());
    m.def("unpack_tickets", &unpack_tickets, nb::arg("client"), nb::arg("body"), nb::arg("tickets"));
}

}  // namespace shmtensor
