#include "python/codec_memory.hpp"

#include <nanobind/nanobind.h>

#include <new>
#include <utility>

#include "python/errors.hpp"
#include "python/objects.hpp"
#include "python/views.hpp"
#include "python/waits.hpp"

namespace shmtensor {

PyTypeObject *block_type = nullptr, *view_type = nullptr;

void load_block_types() {
    block_type = reinterpret_cast<PyTypeObject*>(nb::type<PyBlock>().ptr());
    view_type = reinterpret_cast<PyTypeObject*>(nb::type<PyView>().ptr());
}

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
        PyClient& client = *nb::inst_ptr<PyClient>(nb::handle(object));
        look_for_manager(client);
        *block = allocate(client, bytes);
        return true;
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    }
    return false;
}

PyObject* take_wrapper(Block*& block) {
    auto* known = static_cast<PyObject*>(block->wrapper);
    if (known && Py_REFCNT(known) > 0) return Py_NewRef(known);
    Block* const taken = std::exchange(block, nullptr);
    try {
        return wrapper_of(taken).release().ptr();
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    }
    taken->client->release(taken);  // no wrapper will
    return nullptr;
}

}  // namespace shmtensor
