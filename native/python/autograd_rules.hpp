// A gradient rule in C++: the values of a call that it keeps, and the functions that compute gradients from them.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "python/autograd.hpp"

namespace shmtensor::autograd {

// An argument of a function of a rule. The numbers are those of _tensor/rules.py.
struct Value {
    enum Kind : std::uint8_t { gradient = 0, result = 1, argument = 2, shape = 3, type = 4 } kind;
    std::uint16_t parameter;
};

// A function that computes the gradients of one input, or of several.
struct Part {
    PyObject* function;
    std::vector<std::uint16_t> inputs;  // by their index in Rule::inputs
    std::vector<std::uint16_t> values;  // by their index in Rule::values
    bool several;                       // it returns one gradient for each input
};

struct Rule {
    PyObject_HEAD PyObject *name, *parameters, *defaults, *synonyms;
    struct Lists {
        std::vector<std::uint16_t> inputs;  // parameters that have gradients
        std::vector<Value> values;
        std::vector<Part> parts;
    }* lists;
    int positional;  // parameters that may be given by position
    int rest;        // the parameter that takes all other positional arguments, or -1
    int sequence;    // the input that is a list of tensors, or -1: a parameter

    // An input has the edges [first_edge(), last_edge()) of a node: several if it is the list of tensors.
    std::uint32_t first_edge(std::uint16_t input, const Node& node) const {
        std::uint32_t at = 0;
        for (std::uint16_t i = 0; i < input; ++i) at += count(i, node);
        return at;
    }
    std::uint32_t last_edge(std::uint16_t input, const Node& node) const {
        return first_edge(input, node) + count(input, node);
    }

   private:
    std::uint32_t count(std::uint16_t input, const Node& node) const {
        const auto others = static_cast<std::uint32_t>(lists->inputs.size()) - 1;
        return lists->inputs[input] == sequence ? node.core.edge_count - others : 1;
    }
};

// calls: operations record where they were called, for errors of their gradients. numbers: NaN is such an error, too.
enum class Tracing : std::uint8_t { off, calls, numbers };
extern Tracing tracing;

// Maximum nesting of lists and tuples in an argument: that of NumPy.
constexpr int kLevels = 64;
// Changes of a tensor, or of all tensors in a tuple or list, since their counters were made. False with an exception
// set.
bool changes_of_all(PyObject* value, std::uint64_t* changes, int levels = kLevels);
// Whether the tensor's type can have gradients.
bool makes_gradients(PyObject* tensor);

}  // namespace shmtensor::autograd
