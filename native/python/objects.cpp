#include "python/objects.hpp"

#include "python/codec_memory.hpp"

namespace shmtensor {

nb::object wrapper_of(Block* block) {
    auto* known = static_cast<PyObject*>(block->wrapper);
    // A wrapper without references is being destroyed: its weak references are being cleared.
    if (known && Py_REFCNT(known) > 0) {
        nb::object wrapper = nb::borrow(nb::handle(known));
        block->client->release(block);  // the wrapper already is a user
        return wrapper;
    }
    // Constructed in place in its Python object: no separate allocation, and no lookup of an existing object.
    nb::object wrapper = nb::inst_alloc(reinterpret_cast<PyObject*>(block_type));
    auto* made = new (nb::inst_ptr<PyBlock>(wrapper)) PyBlock(block);
    nb::inst_mark_ready(wrapper);
    block->wrapper = made->wrapper = wrapper.ptr();
    return wrapper;
}

}  // namespace shmtensor
