// The graph of recorded operations, and the pass through it that computes gradients. Independent of tensors and Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <vector>

namespace shmtensor::graph {

struct Node;
using Gradient = void*;  // nullptr: none, same as zeros

// An input of an operation: the node of the operation that made it, and the index among the outputs of that operation.
struct Edge {
    Node* to;          // nullptr: the input needs no gradient
    const void* form;  // the evaluator's description of the input
    std::uint32_t output;
};

// A recorded operation.
struct Node {
    std::uint64_t sequence;  // later operations have larger numbers
    Edge* edges;             // one for each input
    std::uint32_t edge_count, output_count;
    bool interrupted;  // another thread's pass was in this node when the process was forked
};

// Computes with gradients. It owns the gradients passed to it.
class Evaluator {
   public:
    virtual ~Evaluator() = default;
    // Called when a node has all gradients of its outputs; may replace them. False: an error, such as a node that is
    // `interrupted`.
    virtual bool prepare(Node& node, Gradient* outputs) = 0;
    // Compute the gradients of a node's inputs from those of its outputs, and take ownership of the latter. False: an
    // error.
    virtual bool run(Node& node, Gradient* outputs, Gradient* inputs) = 0;
    // Receive the gradient of the target with this index; the caller keeps ownership.
    virtual void capture(std::size_t target, Gradient gradient) = 0;
    // sum += more; takes ownership of `more`. False: an error.
    virtual bool add(Gradient& sum, Gradient more) = 0;
    virtual void drop(Gradient gradient) = 0;
};

// One backward pass from some outputs. Each node runs once, when it has all its gradients; later nodes run first.
class Pass {
   public:
    explicit Pass(Evaluator& evaluator) : evaluator_(evaluator) {}
    Pass(const Pass&) = delete;
    ~Pass();
    // Add an output from which the pass starts; takes ownership of its gradient. False: an error.
    bool add_root(Node& node, std::uint32_t output, Gradient gradient);
    // Add an output whose gradient is captured. If there are targets, only nodes that lead to one are run.
    void add_target(Node& node, std::uint32_t output);
    // False: an error of the evaluator.
    bool run();
    // Marks all nodes of the pass as interrupted, except the leaves, which other graphs share.
    void interrupt();

   private:
    struct State {
        Node* node = nullptr;
        std::uint32_t missing = 0;  // edges to it whose gradients have not arrived
        bool found = false, needed = false, is_root = false;
        Gradient one = nullptr;         // of its output, if it has a single one
        std::vector<Gradient> several;  // of its outputs otherwise
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
