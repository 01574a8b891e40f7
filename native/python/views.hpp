// A block as its receivers may use it: `_native.View`. See docs/sharing.md.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

#include "python/objects.hpp"

namespace shmtensor {

enum class ViewKind {
    lent = 1,      // the block's own bytes; receivers get readonly
    readonly = 2,  // pages that cannot be written; receivers get the same
    frozen = 3,    // pages that cannot be written; receivers get personal ones
    personal = 4,  // bytes of this process alone, which begin as the block's
};

// A NumPy array has either this as its base, or, where it aliases with all rights, the Block itself.
struct PyView {
    // `number`: of a ViewKind. Raises ValueError: there is none; OSError.
    PyView(nb::handle_t<PyBlock> from, int number);
    PyView(const PyView&) = delete;
    PyView& operator=(const PyView&) = delete;
    ~PyView();

    bool writable() const { return kind == ViewKind::lent || kind == ViewKind::personal; }
    // nullptr, or whose memory this is, of which a clone without the fork hooks holds nothing.
    const Client* untouchable() const;

    ViewKind kind;
    std::byte* data = nullptr;
    std::uint64_t bytes;
    bool mapped = false;  // a personal one: pages of the segment's, and no copy
    nb::object block;     // kept while the view lives; invalid where the bytes were copied

   private:
    int open(const Block& from);  // 0 or errno
    void count(int by);
};

// A block as it is to be used by somebody who came upon its bytes in another way than by handle: itself, or a view with
// the least rights that anything here has to it; `readonly`: one that cannot be written. `data`: its bytes there. May
// raise.
nb::object view_of(nb::handle block, bool readonly, std::byte** data);

}  // namespace shmtensor
