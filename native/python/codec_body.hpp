// The body of a message:
//
//   body     = 1 value                             a value that needs no pickle
//            | 2 count buffer* length stream       a pickle and its out-of-band buffers
//   buffer   = 0 length bytes                      read-only
//            | 1 length bytes                      writable
//            | 2 block                             all of a block of shared memory
//            | 3 block                             the same, a copy made for this message
//   value    = tag ...                             one byte, see Tag; + 0x80: a later reference names it
//   array    = type form size*                     type: as in ArrayView; form: axes in bits 0-5, bits 6 and 7 by tag;
//                                                  arrays with 64 axes are pickled
//
// Numbers (counts, lengths, sizes, numbers of blocks, offsets) are LEB128; other fields are little endian, without
// padding. A reference names an earlier value by the offset of its tag in the body. A reader checks each length and
// number before use, so that a damaged body causes only an error.
#pragma once

#include <bit>
#include <cstdint>

#include "python/ref.hpp"

namespace shmtensor::codec {

static_assert(std::endian::native == std::endian::little);

enum : std::uint8_t { kPlain = 1, kPickled = 2 };  // first byte: the version of the body, and its kind
enum : std::uint8_t { kReadOnly = 0, kWritable = 1, kShared = 2, kCopied = 3 };  // of a buffer

enum class Tag : std::uint8_t {
    reference,  // offset
    none,
    no,
    yes,
    small,    // int8
    integer,  // int64
    real,     // float64
    complex,  // 2 float64
    text1,    // length in code points, which have 1, 2 or 4 bytes
    text2,
    text4,
    bytes,          // length
    tuple,          // count value*
    list,           // count value*
    dict,           // count (key value)*
    tensor,         // array block offset, strides in bytes as zigzag (form bit 6); form bit 7: 0
    small_array,    // array, elements; form bit 6: Fortran order
    array,          // array block; form bit 6: Fortran order
    device_tensor,  // as tensor; then timeline, point (docs/gpu.md)
    end
};
constexpr std::uint8_t kReferred = 0x80;
constexpr std::uint8_t kBit6 = 0x40, kBit7 = 0x80, kAxes = 0x3f;

constexpr int kDepth = 32;  // levels of nested containers; deeper ones are pickled

// A function of shmtensor.ipc.codec, looked up at first use.
PyObject* python_part(PyObject** known, const char* name);

}  // namespace shmtensor::codec
