// Kernels over windows, against sums over all elements, in buffers of exactly their size (for `make sanitize`).
//
//   windows [CASES] [SEED]
#include "tensor/windows.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <vector>

using namespace shmtensor::windows;

namespace {

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "windows: %s\n", what);
    std::abort();
}

using Random = std::mt19937_64;
using Position = std::array<std::ptrdiff_t, 3>;

std::ptrdiff_t between(Random& random, std::ptrdiff_t first, std::ptrdiff_t last) {
    return std::uniform_int_distribution<std::ptrdiff_t>(first, last)(random);
}

Axes random_axes(Random& random) {
    Axes axes{};
    const bool quads = random() % 4 == 0;
    for (std::size_t i = 0; i < 3; ++i) {
        Axis& one = axes[i];
        if (i == 0 && random() % 2)
            one = {1, 1, 1, 1, 1, 0};
        else
            one = {between(random, 1, 20), between(random, 1, 12), between(random, 1, 3),
                   between(random, 1, 3),  between(random, 1, 3),  between(random, -2, 3)};
        if (i == 2 && random() % 2) one.stride = 1, one.count = between(random, 1, 140);
        if (quads) one = i == 0 ? Axis{1, 1, 1, 1, 1, 0} : Axis{one.length + 1, (one.length + 1) / 2, 2, 2, 1, 0};
    }
    return axes;
}

template <class Work>
void each(const Position& sizes, Work&& work) {
    for (std::ptrdiff_t i = 0; i < sizes[0]; ++i)
        for (std::ptrdiff_t j = 0; j < sizes[1]; ++j)
            for (std::ptrdiff_t k = 0; k < sizes[2]; ++k) work(Position{i, j, k});
}

Position sizes_of(const Axes& axes, std::ptrdiff_t Axis::* what) {
    return {axes[0].*what, axes[1].*what, axes[2].*what};
}
std::size_t product(const Position& of) {
    return static_cast<std::size_t>(of[0] * of[1] * of[2]);
}
std::size_t flat(const Position& at, const Position& sizes) {
    return static_cast<std::size_t>((at[0] * sizes[1] + at[1]) * sizes[2] + at[2]);
}

// The index of a window's element in its plane.
std::optional<std::size_t> place_of(const Axes& axes, const Position& window, const Position& element) {
    Position at{};
    for (std::size_t i = 0; i < 3; ++i) {
        at[i] = window[i] * axes[i].stride + element[i] * axes[i].dilation - axes[i].before;
        if (at[i] < 0 || at[i] >= axes[i].length) return std::nullopt;
    }
    return flat(at, sizes_of(axes, &Axis::length));
}

template <class T>
std::vector<T> random_numbers(Random& random, std::size_t count) {
    std::vector<T> made(count);
    for (T& one : made) one = static_cast<T>(between(random, -3, 3));  // sums are exact, and many are equal
    return made;
}

template <class T>
void check_columns(Random& random, const Axes& axes) {
    const Position counts = sizes_of(axes, &Axis::count), sizes = sizes_of(axes, &Axis::size);
    const Shape shape{static_cast<std::size_t>(between(random, 1, 3)), static_cast<std::size_t>(between(random, 1, 3))};
    const std::size_t plane = product(sizes_of(axes, &Axis::length)), count = product(counts), size = product(sizes);
    const auto x = random_numbers<T>(random, shape.samples * shape.channels * plane),
               y = random_numbers<T>(random, shape.samples * shape.channels * size * count);
    std::vector<T> columns(y.size()), sums(x.size()), wanted(y.size()), wanted_sums(x.size()),
        scratch(scratch_size(axes, shape.samples));
    for (std::size_t n = 0; n < shape.samples; ++n)
        for (std::size_t c = 0; c < shape.channels; ++c)
            each(sizes, [&](const Position& element) {
                each(counts, [&](const Position& window) {
                    const auto place = place_of(axes, window, element);
                    if (!place) return;
                    const std::size_t at = (n * shape.channels + c) * plane + *place,
                                      to = ((c * size + flat(element, sizes)) * shape.samples + n) * count +
                                           flat(window, counts);
                    wanted[to] = x[at];
                    wanted_sums[at] += y[to];
                });
            });
    gather(axes, shape, x.data(), columns.data(), scratch.data());
    require(columns == wanted, "columns differ");
    scatter(axes, shape, y.data(), sums.data(), scratch.data());
    require(sums == wanted_sums, "sums differ");
}

template <class T>
void check_largest(Random& random, const Axes& axes) {
    const Position counts = sizes_of(axes, &Axis::count), sizes = sizes_of(axes, &Axis::size);
    const auto planes = static_cast<std::size_t>(between(random, 1, 3));
    const std::size_t plane = product(sizes_of(axes, &Axis::length)), count = product(counts);
    auto x = random_numbers<T>(random, planes * plane);
    const auto g = random_numbers<T>(random, planes * count);
    if (random() % 2) x[random() % x.size()] = static_cast<T>(NAN);
    std::vector<T> values(g.size()), back(x.size()), wanted(x.size());
    std::vector<std::int64_t> places(g.size());
    largest(axes, planes, x.data(), values.data(), nullptr);
    largest<T>(axes, planes, x.data(), nullptr, places.data());
    to_largest(axes, planes, x.data(), g.data(), back.data());
    for (std::size_t p = 0; p < planes; ++p)
        each(counts, [&](const Position& window) {
            std::optional<std::size_t> best;
            each(sizes, [&](const Position& element) {
                const auto place = place_of(axes, window, element);
                if (!place) return;
                const T one = x[p * plane + *place];
                if (!best || one > x[p * plane + *best] || std::isnan(one)) best = place;
            });
            const std::size_t at = p * count + flat(window, counts);
            require(places[at] == static_cast<std::int64_t>(best.value_or(0)), "places differ");
            if (!best) return;
            wanted[p * plane + *best] += g[at];
            const T value = x[p * plane + *best];
            require(values[at] == value || (std::isnan(values[at]) && std::isnan(value)), "the largest differ");
        });
    require(back == wanted, "gradients differ");
}

}  // namespace

int main(int count, char** arguments) {
    const int cases = count > 1 ? static_cast<int>(std::strtol(arguments[1], nullptr, 10)) : 2000;
    Random random(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0);
    for (int i = 0; i < cases; ++i) {
        const Axes axes = random_axes(random);
        check_columns<float>(random, axes);
        check_columns<double>(random, axes);
        check_largest<float>(random, axes);
        check_largest<double>(random, axes);
    }
    std::printf("%d cases: ok\n", cases);
}
