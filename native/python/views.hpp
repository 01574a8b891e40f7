// A block with the rights of its receivers: `_native.View`. See docs/sharing.md.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

#include "python/objects.hpp"

namespace shmtensor {

enum class ViewKind {
    lent = 1,      // the block's own bytes; receivers get readonly
    readonly = 2,  // read-only pages; receivers get the same
    frozen = 3,    // read-only pages; receivers get personal ones
    personal = 4,  // bytes of this process alone, initially a copy of the block's
};

// The base of a NumPy array is either this or, if it has all rights, the Block itself.
struct PyView {
    // `number`: of a ViewKind. Raises ValueError: no such kind; OSError.
    PyView(nb::handle_t<PyBlock> from, int number);
    PyView(const PyView&) = delete;
    PyView& operator=(const PyView&) = delete;
    ~PyView();

    bool writable() const { return kind == ViewKind::lent || kind == ViewKind::personal; }
    // nullptr, or the client that this process may not use (a clone without the fork hooks).
    const Client* untouchable() const;

    ViewKind kind;
    std::byte* data = nullptr;
    std::uint64_t bytes;
    bool mapped = false;  // of a personal view: a private mapping of the segment, not a copy
    nb::object block;     // kept while the view lives; invalid if the bytes were copied

   private:
    int open(const Block& from);  // 0 or errno
    void count(int by);
};

// The object through which to use a block whose bytes were found in another way than by handle: the block itself, or a
// view with the least rights that any view in this process has; `readonly`: a read-only one. `data`: its bytes there.
// May raise.
nb::object view_of(nb::handle block, bool readonly, std::byte** data);

}  // namespace shmtensor
