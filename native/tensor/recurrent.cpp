#include "tensor/recurrent.hpp"

namespace shmtensor::recurrent {

namespace {

template <class T>
void step_of_row(std::size_t hidden, T* __restrict gates, T* __restrict state, T* __restrict copy) {
    T *input = gates, *forget = gates + hidden, *cell = gates + 2 * hidden, *output = gates + 3 * hidden;
    const T half = T{1} / 2;
    for (std::size_t j = 0; j < hidden; ++j) {
        const T i = input[j] * half + half, f = forget[j] * half + half, next = f * state[j] + i * cell[j];
        input[j] = i;
        forget[j] = f;
        output[j] = output[j] * half + half;
        state[j] = copy[j] = next;
    }
}

template <class T>
void back_of_row(std::size_t hidden, const T* __restrict whole, const T* __restrict gates, const T* __restrict tanh,
                 const T* __restrict before, T* __restrict state, T* __restrict into) {
    const T *input = gates, *forget = gates + hidden, *cell = gates + 2 * hidden, *output = gates + 3 * hidden;
    for (std::size_t j = 0; j < hidden; ++j) {
        const T i = input[j], f = forget[j], c = cell[j], o = output[j], t = tanh[j], g = whole[j];
        const T of_state = state[j] + g * o * (1 - t * t);
        into[j] = of_state * c * i * (1 - i);
        into[hidden + j] = of_state * before[j] * f * (1 - f);
        into[2 * hidden + j] = of_state * i * (1 - c * c);
        into[3 * hidden + j] = g * t * o * (1 - o);
        state[j] = of_state * f;
    }
}

}  // namespace

template <class T>
void lstm_step(const Shape& shape, T* gates, T* state, T* copy) {
    for (std::size_t row = 0, at = 0; row < shape.rows; ++row, at += shape.hidden)
        step_of_row(shape.hidden, gates + 4 * at, state + at, copy + at);
}

template <class T>
void lstm_step_back(const Shape& shape, const Back<T>& all) {
    for (std::size_t row = 0, at = 0; row < shape.rows; ++row, at += shape.hidden)
        back_of_row(shape.hidden, all.whole + at, all.gates + 4 * at, all.tanh + at, all.before + at, all.state + at,
                    all.into + 4 * at);
}

template void lstm_step<float>(const Shape&, float*, float*, float*);
template void lstm_step_back<float>(const Shape&, const Back<float>&);
template void lstm_step<double>(const Shape&, double*, double*, double*);
template void lstm_step_back<double>(const Shape&, const Back<double>&);

}  // namespace shmtensor::recurrent
