#include "tensor/graph.hpp"

#include <utility>

namespace shmtensor::graph {

Pass::~Pass() {
    for (auto& [node, state] : states_)
        for (std::uint32_t i = 0; i < node->output_count; ++i)
            if (Gradient left = std::exchange(state.outputs()[i], nullptr)) evaluator_.drop(left);
}

Pass::State& Pass::state_of(Node& node) {
    State& state = states_[&node];
    if (!state.node) {
        state.node = &node;
        if (node.output_count != 1) state.several.resize(node.output_count);
    }
    return state;
}

bool Pass::add_root(Node& node, std::uint32_t output, Gradient gradient) {
    State& state = state_of(node);
    if (!std::exchange(state.is_root, true)) roots_.push_back(&state);
    Gradient& sum = state.outputs()[output];
    if (sum) return evaluator_.add(sum, gradient);
    sum = gradient;
    return true;
}

void Pass::add_target(Node& node, std::uint32_t output) {
    targets_.emplace(&node, Target{output, targets_.size()});
}

// Finds every node reachable from `root`, and counts the edges to each. A node is needed if it is a target or leads to
// one.
void Pass::discover(State& root) {
    if (root.found) return;
    std::vector<std::pair<State*, std::uint32_t>> path{{&root, 0}};
    root.found = true;
    while (!path.empty()) {
        State& state = *path.back().first;
        if (path.back().second < state.node->edge_count) {
            Node* to = state.node->edges[path.back().second++].to;
            if (!to) continue;
            State& next = state_of(*to);
            ++next.missing;
            if (!std::exchange(next.found, true)) path.emplace_back(&next, 0);
            continue;
        }
        state.needed = targets_.empty() || targets_.contains(state.node);
        for (std::uint32_t i = 0; i < state.node->edge_count && !state.needed; ++i)
            if (Node* to = state.node->edges[i].to) state.needed = states_.at(to).needed;
        path.pop_back();
    }
}

bool Pass::run() {
    for (State* root : roots_) discover(*root);
    for (State* root : roots_)
        if (root->missing == 0 && root->needed) ready_.push(root);
    while (!ready_.empty()) {
        State& state = *ready_.top();
        ready_.pop();
        if (!finish(state)) return false;
    }
    return true;
}

// Runs a node that has all its gradients, and passes on the gradients of its inputs.
bool Pass::finish(State& state) {
    Node& node = *state.node;
    Gradient* outputs = state.outputs();
    bool any = false;
    for (std::uint32_t i = 0; i < node.output_count; ++i) any = any || outputs[i];
    if ((any || node.interrupted) && !evaluator_.prepare(node, outputs)) return false;
    const auto [first, last] = targets_.equal_range(&node);
    for (auto target = first; target != last; ++target)
        evaluator_.capture(target->second.number, outputs[target->second.output]);
    bool runs = targets_.empty();
    for (std::uint32_t i = 0; i < node.edge_count && !runs; ++i)
        if (Node* to = node.edges[i].to) runs = states_.at(to).needed;
    if (!runs) return true;
    constexpr std::uint32_t kFew = 8;
    Gradient few[kFew] = {};
    std::vector<Gradient> many(node.edge_count > kFew ? node.edge_count : 0);
    Gradient* inputs = many.empty() ? few : many.data();
    bool ok = !any || evaluator_.run(node, outputs, inputs);
    for (std::uint32_t i = 0; i < node.edge_count; ++i) {
        if (ok)
            ok = deliver(node.edges[i], inputs[i]);
        else if (inputs[i])
            evaluator_.drop(inputs[i]);
    }
    return ok;
}

bool Pass::deliver(const Edge& edge, Gradient gradient) {
    if (!edge.to) {
        if (gradient) evaluator_.drop(gradient);
        return true;
    }
    State& state = states_.at(edge.to);
    Gradient& sum = state.outputs()[edge.output];
    if (!state.needed) {
        if (gradient) evaluator_.drop(gradient);
    } else if (!sum) {
        sum = gradient;
    } else if (gradient && !evaluator_.add(sum, gradient)) {
        return false;
    }
    if (--state.missing == 0 && state.needed) ready_.push(&state);
    return true;
}

void Pass::interrupt() {
    for (auto& [node, state] : states_)
        if (node->edge_count != 0) node->interrupted = true;
}

}  // namespace shmtensor::graph
