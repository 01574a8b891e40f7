// The binding of codec.hpp, and what the codec needs of the other bindings, without nanobind in what it sees.
#include <nanobind/nanobind.h>

#include "codec.hpp"
#include "module.hpp"

namespace shmtensor {

PyTypeObject* block_type = nullptr;
PyObject* message_damaged = nullptr;

Client* client_of(PyObject* object) {
    PyClient* client = nullptr;
    if (!nb::try_cast(nb::handle(object), client) || !client) {
        PyErr_Format(PyExc_TypeError, "a shmtensor client is needed, not %.100s", Py_TYPE(object)->tp_name);
        return nullptr;
    }
    if (!client->client.may_touch()) {
        set_not_held(client->client);
        return nullptr;
    }
    return &client->client;
}

Block* block_of(PyObject* block) {
    return nb::inst_ptr<PyBlock>(nb::handle(block))->block;
}

bool allocate_block(PyObject* object, std::uint64_t bytes, Block** block) {
    try {
        auto& self = *nb::inst_ptr<PyClient>(nb::handle(object));
        insist(self, object, [&](unsigned patience) { return self.client.allocate(bytes, patience, block); }, 0, bytes);
        return true;
    } catch (nb::python_error& error) {
        error.restore();
        return false;
    }
}

PyObject* take_face(Block*& block) {
    auto* known = static_cast<PyObject*>(block->face);
    if (known && Py_REFCNT(known) > 0) return Py_NewRef(known);
    try {
        return face_of(std::exchange(block, nullptr)).release().ptr();
    } catch (nb::python_error& error) {
        error.restore();
        return nullptr;
    }
}

namespace {
struct Bytes {
    explicit Bytes(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    Bytes(const Bytes&) = delete;
    ~Bytes() { PyBuffer_Release(&view); }
    Py_buffer view{};
};
}  // namespace

void add_codec(nb::module_& m) {
    block_type = reinterpret_cast<PyTypeObject*>(nb::type<PyBlock>().ptr());
    message_damaged = nb::module_::import_("shmtensor.errors").attr("MessageDamaged").inc_ref().ptr();

    m.def(
        "pack",
        [](nb::handle client, nb::handle value) {
            Parcel parcel;
            if (!encode(client.ptr(), value.ptr(), parcel)) throw nb::python_error();
            nb::bytes body(parcel.body.data(), parcel.body.size());
            nb::list blocks;
            for (Block*& block : parcel.blocks) blocks.append(nb::steal(take_face(block)));
            return nb::make_tuple(body, blocks);
        },
        nb::arg("client").none(), nb::arg("value").none());
    m.def(
        "unpack",
        [](nb::handle body, nb::list blocks) {
            Bytes bytes(body);
            Parcel parcel;
            for (const nb::handle face : blocks) {
                Block* block = nb::cast<PyBlock&>(face).block;
                parcel.blocks.push_back(block);
                block->client->share(*block);
            }
            PyObject* value = decode(static_cast<const std::byte*>(bytes.view.buf),
                                     static_cast<std::size_t>(bytes.view.len), parcel.blocks);
            if (!value) throw nb::python_error();
            return nb::steal(value);
        },
        nb::arg("body"), nb::arg("blocks"));
}

}  // namespace shmtensor
