// The elementwise part of one LSTM step, between the matrix products and the tanh, in one pass. The gates are input,
// forget, cell and output.
#pragma once

#include <cstddef>

namespace shmtensor::recurrent {

struct Shape {
    std::size_t rows, hidden;
};

// `gates`, (rows, 4 * hidden), has tanh(x / 2) of the input, forget and output gates, which becomes sigmoid(x), and
// tanh(x) of the cell gate. `state`, (rows, hidden), becomes forget * state + input * cell gate, and is copied to
// `copy`.
template <class T>
void lstm_step(const Shape& shape, T* gates, T* state, T* copy);

// The backward pass. `whole`: the gradient of the outputs; `tanh`: tanh of the cell state; `before`: the cell state
// before the step. `state`, the gradient of the cell state, becomes that of `before`; `into` gets those of the gates.
template <class T>
struct Back {
    const T *whole, *gates, *tanh, *before;
    T *state, *into;
};
template <class T>
void lstm_step_back(const Shape& shape, const Back<T>& arrays);

}  // namespace shmtensor::recurrent
