#include "tensor/random.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace shmtensor::random {
namespace {

constexpr std::size_t kShift = 397;
constexpr std::size_t kBlock = 512;  // draws taken at a time: they stay in the L1 cache
constexpr double kUnit = 1.0 / 4294967296.0;
constexpr double kPi = std::numbers::pi;

constexpr std::uint32_t twist(std::uint32_t high, std::uint32_t low) {
    const std::uint32_t mixed = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (mixed >> 1) ^ ((0u - (low & 1u)) & 0x9908b0dfu);
}

constexpr std::uint32_t temper(std::uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

}  // namespace

void Twister::seed(std::uint64_t value) {
    initial_seed_ = value;
    words_[0] = static_cast<std::uint32_t>(value);
    for (std::uint32_t i = 1; i < kWords; ++i) words_[i] = 1812433253u * (words_[i - 1] ^ (words_[i - 1] >> 30)) + i;
    next_ = kWords;
    normal_x_ = normal_y_ = normal_rho_ = 0;
    normal_is_valid_ = false;
}

void Twister::save(State* state) const {
    *state = State{};
    state->initial_seed = initial_seed_;
    state->left = static_cast<std::int32_t>(kWords + 1 - next_);
    state->seeded = 1;
    state->next = next_;
    std::copy(words_, words_ + kWords, state->words);
    state->normal_x = normal_x_;
    state->normal_y = normal_y_;
    state->normal_rho = normal_rho_;
    state->normal_is_valid = normal_is_valid_;
}

bool Twister::restore(const State& state) {
    const bool renewed = state.left == 1 && state.next == 0;  // TH after seeding
    if (state.seeded != 1 || state.left < 1 || state.next > kWords || state.normal_is_valid < 0 ||
        state.normal_is_valid > 1 || (!renewed && static_cast<std::uint64_t>(state.left) + state.next != kWords + 1))
        return false;
    std::uint64_t all = 0;
    for (const std::uint64_t word : state.words) all |= word;
    // A state of zeros (of the first word, only the highest bit counts) would yield zeros for ever.
    std::uint64_t any = state.words[0] & 0x80000000u;
    for (std::size_t i = 1; i < kWords; ++i) any |= state.words[i];
    if (all >> 32 || !any) return false;
    if (state.normal_is_valid && !(state.normal_x >= 0 && state.normal_x < 1 && state.normal_y >= 0 &&
                                   state.normal_y < 1 && state.normal_rho >= 0 && std::isfinite(state.normal_rho)))
        return false;
    initial_seed_ = state.initial_seed;
    for (std::size_t i = 0; i < kWords; ++i) words_[i] = static_cast<std::uint32_t>(state.words[i]);
    next_ = renewed ? kWords : state.next;
    normal_x_ = state.normal_x;
    normal_y_ = state.normal_y;
    normal_rho_ = state.normal_rho;
    normal_is_valid_ = state.normal_is_valid == 1;
    return true;
}

void Twister::renew() {
    std::uint32_t* const w = words_;
    std::size_t i = 0;
    for (; i < kWords - kShift; ++i) w[i] = w[i + kShift] ^ twist(w[i], w[i + 1]);
    for (; i < kWords - 1; ++i) w[i] = w[i + kShift - kWords] ^ twist(w[i], w[i + 1]);
    w[i] = w[kShift - 1] ^ twist(w[i], w[0]);
    next_ = 0;
}

std::uint32_t Twister::draw() {
    if (next_ >= kWords) renew();
    return temper(words_[next_++]);
}

void Twister::draws(std::uint32_t* out, std::size_t count) {
    while (count > 0) {
        if (next_ >= kWords) renew();
        const std::size_t now = std::min(count, kWords - next_);
        for (std::size_t i = 0; i < now; ++i) out[i] = temper(words_[next_ + i]);
        next_ += now;
        out += now;
        count -= now;
    }
}

template <class Formula>
void Twister::each(double* out, std::size_t count, Formula formula) {
    std::uint32_t drawn[kBlock];
    while (count > 0) {
        const std::size_t now = std::min(count, kBlock);
        draws(drawn, now);
        for (std::size_t i = 0; i < now; ++i) out[i] = formula(drawn[i] * kUnit);
        out += now;
        count -= now;
    }
}

void Twister::uniform(double* out, std::size_t count, double a, double b) {
    each(out, count, [=](double u) { return u * (b - a) + a; });
}

void Twister::normal(double* out, std::size_t count, double mean, double stdv) {
    const auto first = [=](double x, double rho) { return rho * std::cos(2. * kPi * x) * stdv + mean; };
    const auto second = [=](double x, double rho) { return rho * std::sin(2. * kPi * x) * stdv + mean; };
    const auto radius = [](double y) { return std::sqrt(-2. * std::log(1.0 - y)); };
    if (count > 0 && normal_is_valid_) {
        *out++ = second(normal_x_, normal_rho_);
        --count;
        normal_is_valid_ = false;
    }
    std::uint32_t drawn[kBlock];
    static_assert(kBlock % 2 == 0);
    while (count > 0) {
        const std::size_t now = std::min(count + count % 2, kBlock);
        draws(drawn, now);
        double x = 0, y = 0, rho = 0;
        for (std::size_t i = 0; i < now; i += 2) {
            x = drawn[i] * kUnit;
            y = drawn[i + 1] * kUnit;
            rho = radius(y);
            out[i] = first(x, rho);
            if (i + 1 < count) out[i + 1] = second(x, rho);
        }
        normal_x_ = x;
        normal_y_ = y;
        normal_rho_ = rho;
        normal_is_valid_ = now > count;
        const std::size_t given = std::min(now, count);
        out += given;
        count -= given;
    }
}

void Twister::log_normal(double* out, std::size_t count, double mean, double stdv) {
    for (std::size_t at = 0; at < count; at += kBlock) {
        const std::size_t now = std::min(count - at, kBlock);
        normal(out + at, now, mean, stdv);
        for (std::size_t i = at; i < at + now; ++i) out[i] = std::exp(out[i]);
    }
}

void Twister::exponential(double* out, std::size_t count, double lambda, double) {
    each(out, count, [=](double u) { return -1. / lambda * std::log(1 - u); });
}

void Twister::cauchy(double* out, std::size_t count, double median, double sigma) {
    each(out, count, [=](double u) { return median + sigma * std::tan(kPi * (u - 0.5)); });
}

void Twister::geometric(double* out, std::size_t count, double p, double) {
    const double log_p = std::log(p);
    each(out, count, [=](double u) { return std::trunc(std::log(1 - u) / log_p) + 1; });
}

void Twister::bernoulli(double* out, std::size_t count, double p, double) {
    each(out, count, [=](double u) { return u <= p ? 1.0 : 0.0; });
}

std::uint64_t Twister::below(std::uint64_t range) {
    if (range != 0 && range <= std::uint64_t{1} << 32) return draw() % range;
    const std::uint64_t high = draw();
    const std::uint64_t both = high << 32 | draw();
    return range == 0 ? both : both % range;
}

void Twister::integers(std::int64_t* out, std::size_t count, std::uint64_t range, std::uint64_t low) {
    if (range == 0 || range > std::uint64_t{1} << 32) {
        for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::int64_t>(below(range) + low);
        return;
    }
    const auto put = [&](auto modulo) {
        std::uint32_t drawn[kBlock];
        for (std::size_t at = 0; at < count; at += kBlock) {
            const std::size_t now = std::min(count - at, kBlock);
            draws(drawn, now);
            for (std::size_t i = 0; i < now; ++i) out[at + i] = static_cast<std::int64_t>(modulo(drawn[i]) + low);
        }
    };
    const auto narrow = static_cast<std::uint32_t>(range);  // 2^32 is 0 here
    if ((narrow & (narrow - 1)) == 0)
        put([mask = narrow - 1](std::uint32_t drawn) { return std::uint64_t{drawn & mask}; });
    else
        put([narrow](std::uint32_t drawn) { return std::uint64_t{drawn % narrow}; });
}

void Twister::permutation(std::int64_t* out, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::int64_t>(i);
    for (std::size_t i = 0; i + 1 < count; ++i) std::swap(out[i], out[i + below(count - i)]);
}

}  // namespace shmtensor::random
