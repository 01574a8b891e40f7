#include "python/objects.hpp"

#include "python/codec_memory.hpp"

namespace shmtensor {

nb::object wrapper_of(Block* block) {
    auto* known = static_cast<PyObject*>(block->wrapper);
    // One without references is on its way out: its weak references are being told just now.
    if (known && Py_REFCNT(known) > 0) {
        nb::object wrapper = nb::borrow(nb::handle(known));
        block->client->release(block);  // the wrapper is a user already
        return wrapper;
    }
    // Made inside its Python object: without an allocation of its own, and no look whether there is an object for it.
    nb::object wrapper = nb::inst_alloc(reinterpret_cast<PyObject*>(block_type));
    auto* made = new (nb::inst_ptr<PyBlock>(wrapper)) PyBlock(block);
    nb::inst_mark_ready(wrapper);
    block->wrapper = made->wrapper = wrapper.ptr();
    return wrapper;
}

}  // namespace shmtensor
