// The memory layout of DLPack, by which array libraries in one process exchange arrays. Written from the specification
// of version 1.1; DLPack does not change the layout within a major version.
//
// A producer makes a managed tensor and passes it in a capsule. The consumer renames the capsule, and calls the deleter
// once, when it no longer uses the memory, from any thread, with or without the GIL. A capsule that was not consumed
// calls the deleter itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace shmtensor::dlpack {

constexpr std::uint32_t kMajor = 1, kMinor = 1;  // of another major version, only `version` and `deleter` are known
constexpr const char *kName = "dltensor", *kUsedName = "used_dltensor";
constexpr const char *kVersionedName = "dltensor_versioned", *kUsedVersionedName = "used_dltensor_versioned";

constexpr std::uint64_t kReadOnly = 1, kCopied = 2;  // flags

struct Version {
    std::uint32_t major, minor;
};

struct Device {
    std::int32_t type, number;
};
constexpr std::int32_t kCpu = 1;
struct DeviceName {
    std::int32_t type;
    const char* name;
    bool is_memory;  // host memory, in which a tensor can lie
};
// Managed memory of CUDA is not accepted: only the driver knows when it may be read.
constexpr DeviceName kDevices[] = {
    {1, "cpu", true},       {2, "cuda", false},          {3, "pinned (cuda)", true},
    {4, "opencl", false},   {7, "vulkan", false},        {8, "metal", false},
    {9, "vpi", false},      {10, "rocm", false},         {11, "pinned (rocm)", true},
    {12, "ext_dev", false}, {13, "cuda managed", false}, {14, "oneapi", false},
    {15, "webgpu", false},  {16, "hexagon", false},      {17, "maia", false},
};

struct DataType {
    std::uint8_t code, bits;
    std::uint16_t lanes;
};
// Element types of NumPy: by the letter of their kind, and bits.
struct Kind {
    std::uint8_t code;
    char letter;
};
constexpr Kind kKinds[] = {{0, 'i'}, {1, 'u'}, {2, 'f'}, {5, 'c'}, {6, 'b'}};
constexpr std::uint8_t kMaxBits = 64, kMaxComplexBits = 128;  // long double differs between machines
// Element types of the package ml_dtypes, by the name of their class. Messages identify them by their index here, so
// add new ones at the end.
struct Named {
    std::uint8_t code, bits;
    const char* name;

    bool is_class(const char* class_name) const;  // may be qualified with the module's name
};
constexpr Named kNamed[] = {
    {4, 16, "bfloat16"},          {7, 8, "float8_e3m4"},      {8, 8, "float8_e4m3"},
    {9, 8, "float8_e4m3b11fnuz"}, {10, 8, "float8_e4m3fn"},   {11, 8, "float8_e4m3fnuz"},
    {12, 8, "float8_e5m2"},       {13, 8, "float8_e5m2fnuz"}, {14, 8, "float8_e8m0fnu"},
};

struct Tensor {
    void* data;
    Device device;
    std::int32_t axes;
    DataType type;
    std::int64_t* sizes;
    std::int64_t* strides;      // elements; nullptr: contiguous, in C order
    std::uint64_t byte_offset;  // of the first element from `data`
};

struct Managed {
    Tensor tensor;
    void* context;  // the producer's
    void (*deleter)(Managed*);
};

struct ManagedVersioned {
    Version version;
    void* context;
    void (*deleter)(ManagedVersioned*);
    std::uint64_t flags;
    Tensor tensor;
};

static_assert(sizeof(Tensor) == 48 && offsetof(Tensor, axes) == 16 && offsetof(Tensor, type) == 20 &&
              offsetof(Tensor, sizes) == 24 && offsetof(Tensor, byte_offset) == 40);
static_assert(sizeof(Managed) == 64 && offsetof(Managed, deleter) == 56);
static_assert(sizeof(ManagedVersioned) == 80 && offsetof(ManagedVersioned, flags) == 24 &&
              offsetof(ManagedVersioned, tensor) == 32);

// ----------------------------------------------------------------------------------------------- consuming

constexpr int kMaxAxes = 64;

const char* name_of(const Device& device);  // "cuda"; "unknown"
bool is_memory(const Device& device);

// The checked layout of a tensor: sizes are at least 0, nothing overflows, and all elements lie between `low` and `low`
// + `span`. The steps of axes with at most one element, which have no effect, are set as in a contiguous array.
struct Layout {
    std::byte* data = nullptr;  // the first element; nullptr: there are no elements, and no memory
    int axes = 0;
    std::ptrdiff_t sizes[kMaxAxes];
    std::ptrdiff_t steps[kMaxAxes];  // bytes
    bool empty = false;
    std::byte* low = nullptr;
    std::uint64_t span = 0;  // bytes
};
// `width`: bytes of an element. Returns what is wrong with the tensor, or "".
std::string read_layout(const Tensor& tensor, std::int64_t width, Layout* layout);

}  // namespace shmtensor::dlpack
