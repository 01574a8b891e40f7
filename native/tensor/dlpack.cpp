#include "tensor/dlpack.hpp"

#include <algorithm>
#include <cstring>

namespace shmtensor::dlpack {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 47;  // user address space ends there

const DeviceName* find(const Device& device) {
    const auto* found =
        std::find_if(std::begin(kDevices), std::end(kDevices), [&](auto& d) { return d.type == device.type; });
    return found == std::end(kDevices) ? nullptr : found;
}

}  // namespace

bool Named::is_class(const char* class_name) const {
    const char* last = std::strrchr(class_name, '.');
    return std::strcmp(last ? last + 1 : class_name, name) == 0;
}

const char* name_of(const Device& device) {
    const DeviceName* known = find(device);
    return known ? known->name : "unknown";
}

bool is_memory(const Device& device) {
    const DeviceName* known = find(device);
    return known && known->is_memory;
}

std::string read_layout(const Tensor& tensor, std::int64_t width, Layout* layout) {
    Layout& l = *layout;
    if (tensor.axes < 0 || tensor.axes > kMaxAxes)
        return "it has " + std::to_string(tensor.axes) + " axes; there can be 0 to " + std::to_string(kMaxAxes);
    l.axes = tensor.axes;
    if (l.axes > 0 && !tensor.sizes) return "it has " + std::to_string(l.axes) + " axes and no sizes";

    std::int64_t bound = width;  // bytes, empty axes left out
    for (int i = l.axes - 1; i >= 0; --i) {
        const std::int64_t size = tensor.sizes[i];
        if (size < 0) return "axis " + std::to_string(i) + " has the size " + std::to_string(size);
        l.sizes[i] = size;
        l.steps[i] = bound;
        l.empty = l.empty || size == 0;
        if (__builtin_mul_overflow(bound, std::max<std::int64_t>(size, 1), &bound) || bound > kMaxBytes)
            return "its sizes make more bytes than can exist";
    }

    auto first = reinterpret_cast<std::uintptr_t>(tensor.data);
    if (!l.empty && first == 0) return "it has elements and no memory";
    if (__builtin_add_overflow(first, tensor.byte_offset, &first)) return "its byte_offset leads beyond all memory";
    l.data = tensor.data ? static_cast<std::byte*>(tensor.data) + tensor.byte_offset : nullptr;

    std::int64_t low = 0, high = l.empty ? 0 : width;
    for (int i = 0; !l.empty && tensor.strides && i < l.axes; ++i) {
        if (l.sizes[i] == 1) continue;
        std::int64_t step = 0, reach = 0;
        if (__builtin_mul_overflow(tensor.strides[i], width, &step) ||
            __builtin_mul_overflow(l.sizes[i] - 1, step, &reach) ||
            __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
            return "axis " + std::to_string(i) + " has the stride " + std::to_string(tensor.strides[i]) +
                   ", which leads beyond all memory";
        l.steps[i] = step;
    }
    if (!tensor.strides && !l.empty) high = bound;
    std::uintptr_t end = 0;
    if (low < -kMaxBytes || high > kMaxBytes || first < static_cast<std::uintptr_t>(-low) ||
        __builtin_add_overflow(first, static_cast<std::uintptr_t>(high), &end))
        return "its strides lead beyond all memory";
    l.low = l.data ? l.data + low : nullptr;
    l.span = static_cast<std::uint64_t>(high - low);
    return "";
}

}  // namespace shmtensor::dlpack
