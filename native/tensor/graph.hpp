// The graph of recorded operations, and the pass through it that computes gradients. It knows neither tensors nor
// Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <vector>

namespace shmtensor::graph {

struct Node;
using Gradient = void*;  // nullptr: none, which counts as zeros

// An input of an operation: the node of the operation that made it, and which of the outputs of that one it is.
struct Edge {
    Node* to;          // nullptr: the input needs no gradient
    const void* form;  // what the evaluator knows of the input
    std::uint32_t output;
};

// A recorded operation.
struct Node {
    std::uint64_t sequence;  // later operations have larger numbers
    Edge* edges;             // one for each input
    std::uint32_t edge_count, output_count;
    bool interrupted;  // a pass of another thread was going through it when this process was forked
};

// What computes with gradients. It owns those that it has taken.
class Evaluator {
   public:
    virtual ~Evaluator() = default;
    // All gradients of the outputs of a node have come; they may be replaced. False: an error, as of a node that is
    // `interrupted`.
    virtual bool prepare(Node& node, Gradient* outputs) = 0;
    // The gradients of the inputs of a node, of those of its outputs, which it takes. False: an error.
    virtual bool run(Node& node, Gradient* outputs, Gradient* inputs) = 0;
    // The gradient of the target of this number, which stays the caller's.
    virtual void capture(std::size_t target, Gradient gradient) = 0;
    // sum += more, which it takes. False: an error.
    virtual bool add(Gradient& sum, Gradient more) = 0;
    virtual void drop(Gradient gradient) = 0;
};

// One pass from some outputs backward. Each node runs once, when all its gradients have come; later ones run first.
class Pass {
   public:
    explicit Pass(Evaluator& evaluator) : evaluator_(evaluator) {}
    Pass(const Pass&) = delete;
    ~Pass();
    // An output from which gradients start; takes the gradient. False: an error.
    bool add_root(Node& node, std::uint32_t output, Gradient gradient);
    // An output whose gradient is captured. With targets, only nodes that lead to one are run.
    void add_target(Node& node, std::uint32_t output);
    // False: an error of the evaluator.
    bool run();
    // Marks all nodes that it goes through as interrupted, but not those at its ends: leaves, which other graphs share.
    void interrupt();

   private:
    struct State {
        Node* node = nullptr;
        std::uint32_t missing = 0;  // edges to it whose gradients have not come
        bool found = false, needed = false, is_root = false;
        Gradient one = nullptr;         // of its output, if it has one
        std::vector<Gradient> several;  // of its outputs, if not
        Gradient* outputs() { return node->output_count == 1 ? &one : several.data(); }
    };
    struct Target {
        std::uint32_t output;
        std::size_t number;
    };
    struct Earlier {
        bool operator()(const State* a, const State* b) const { return a->node->sequence < b->node->sequence; }
    };

    State& state_of(Node& node);
    void discover(State& root);
    bool finish(State& state);
    bool deliver(const Edge& edge, Gradient gradient);

    Evaluator& evaluator_;
    std::unordered_map<Node*, State> states_;
    std::unordered_multimap<Node*, Target> targets_;
    std::vector<State*> roots_;
    std::priority_queue<State*, std::vector<State*>, Earlier> ready_;
};

}  // namespace shmtensor::graph
