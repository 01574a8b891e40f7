// TH's random generator: the Mersenne Twister MT19937 (Matsumoto and Nishimura), and TH's distributions.
//
// Independent of Python. Not thread-safe: the caller holds a lock. Filling with n values takes the same draws as n
// single calls, and gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shmtensor::random {

constexpr std::size_t kWords = 624;

// A saved generator, with the layout of Torch7's THGenerator on a 64-bit machine.
struct State {
    std::uint64_t initial_seed;
    std::int32_t left;            // draws until the words are renewed, including that one
    std::int32_t seeded;          // 1
    std::uint64_t next;           // the word of the next draw; left + next == kWords + 1, or 1 and 0
    std::uint64_t words[kWords];  // of 32 bits each
    double normal_x, normal_y, normal_rho;
    std::int32_t normal_is_valid;  // the second value of the pair has not been returned yet
    std::int32_t unused;
};
static_assert(sizeof(State) == 5048);

class Twister {
   public:
    explicit Twister(std::uint64_t seed_value) { seed(seed_value); }

    void seed(std::uint64_t value);  // uses the lower 32 bits
    std::uint64_t initial_seed() const { return initial_seed_; }
    void save(State* state) const;
    bool restore(const State& state);  // false, and nothing changes: not a valid state

    std::uint32_t draw();

    // u is a draw times 2^-32.
    void uniform(double* out, std::size_t count, double a, double b);           // u * (b - a) + a
    void normal(double* out, std::size_t count, double mean, double stdv);      // Box-Muller, two draws for two values
    void log_normal(double* out, std::size_t count, double mean, double stdv);  // exp(normal)
    void exponential(double* out, std::size_t count, double lambda, double);    // -1 / lambda * ln(1 - u)
    void cauchy(double* out, std::size_t count, double median, double sigma);   // median + sigma * tan(pi * (u - 0.5))
    void geometric(double* out, std::size_t count, double p, double);           // trunc(ln(1 - u) / ln(p)) + 1
    void bernoulli(double* out, std::size_t count, double p, double);           // u <= p
    // low + draw % range, wrapping around; a range of 0 stands for 2^64. Above 2^32, a value takes two draws, the upper
    // half first.
    void integers(std::int64_t* out, std::size_t count, std::uint64_t range, std::uint64_t low);
    void permutation(std::int64_t* out, std::size_t count);  // of 0 .. count - 1

   private:
    void renew();
    void draws(std::uint32_t* out, std::size_t count);
    template <class Formula>
    void each(double* out, std::size_t count, Formula formula);
    std::uint64_t below(std::uint64_t range);

    std::uint32_t words_[kWords];
    std::size_t next_;  // kWords: renew the words first
    std::uint64_t initial_seed_;
    double normal_x_, normal_y_, normal_rho_;
    bool normal_is_valid_;
};

}  // namespace shmtensor::random
