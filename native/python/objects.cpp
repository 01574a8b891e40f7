#include "python/objects.hpp"

namespace shmtensor {

nb::object wrapper_of(Block* block) {
    auto* known = static_cast<PyObject*>(block->wrapper);
    // One without references is on its way out: its weak references are being told just now.
    if (known && Py_REFCNT(known) > 0) {
        nb::object wrapper = nb::borrow(nb::handle(known));
        block->client->release(block);  // the wrapper is a user already
        return wrapper;
    }
    auto* made = new PyBlock(block);
    nb::object wrapper = nb::cast(made, nb::rv_policy::take_ownership);
    block->wrapper = made->wrapper = wrapper.ptr();
    return wrapper;
}

}  // namespace shmtensor
