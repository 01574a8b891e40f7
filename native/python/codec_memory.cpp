#include "python/codec_memory.hpp"

#include <nanobind/nanobind.h>

#include <atomic>
#include <new>
#include <utility>

#include "python/errors.hpp"
#include "python/objects.hpp"
#include "python/ref.hpp"
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

namespace {

bool allocate_only(PyObject* object, std::uint64_t bytes, Block** block, int device) {
    try {
        PyClient& client = *nb::inst_ptr<PyClient>(nb::handle(object));
        look_for_manager(client);
        *block = allocate(client, bytes, device);
        return true;
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    }
    return false;
}

std::atomic<std::uint32_t> sample_every{0}, until_sample{0};
PyObject* note_sample = nullptr;

bool allocate_sampled(PyObject* object, std::uint64_t bytes, Block** block, int device) {
    if (!allocate_only(object, bytes, block, device)) return false;
    if (until_sample.fetch_sub(1, std::memory_order_relaxed) != 1) return true;
    until_sample.store(sample_every.load(std::memory_order_relaxed), std::memory_order_relaxed);
    const Block& b = **block;
    const Ref note = Ref::to(note_sample);
    if (Ref(PyObject_CallFunction(note.get(), "KKII", static_cast<unsigned long long>(b.client->group().id()),
                                  static_cast<unsigned long long>(b.segment->id), b.index, b.generation)))
        return true;
    b.client->release(*block);
    *block = nullptr;
    return false;
}

}  // namespace

bool (*allocate_block)(PyObject*, std::uint64_t, Block**, int) = allocate_only;

void sample_blocks(std::uint32_t every, PyObject* note) {
    sample_every = until_sample = every;
    if (every != 0) Py_XSETREF(note_sample, Py_NewRef(note));
    allocate_block = every == 0 ? allocate_only : allocate_sampled;
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
    taken->client->release(taken);  // no wrapper releases it
    return nullptr;
}

}  // namespace shmtensor
