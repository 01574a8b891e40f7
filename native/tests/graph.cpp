// The pass through a graph, against sums over all paths: random graphs, targets, errors at each step, a long chain.
//
//   graph [GRAPHS] [SEED]
//
// A gradient is a number on the heap, and each edge multiplies by a factor. A count shows gradients that were not
// dropped.
#include "tensor/graph.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

using namespace shmtensor::graph;

namespace {

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "graph: %s\n", what);
    std::abort();
}

using Number = std::uint64_t;  // modulo 2^64, so that sums over paths are exact

// A graph. Inputs of a node come from nodes with smaller numbers.
struct Graph {
    struct Vertex {
        Node node{};
        std::vector<Edge> edges;
        std::vector<Number> factors;  // factors[edge * outputs + output]
    };
    std::vector<std::unique_ptr<Vertex>> vertices;

    Vertex& add(std::uint32_t outputs) {
        vertices.push_back(std::make_unique<Vertex>());
        Vertex& made = *vertices.back();
        made.node.sequence = vertices.size();
        made.node.output_count = outputs;
        return made;
    }
    void connect(Vertex& vertex, std::vector<Edge> edges, std::mt19937_64& random) {
        vertex.edges = std::move(edges);
        vertex.node.edges = vertex.edges.data();
        vertex.node.edge_count = static_cast<std::uint32_t>(vertex.edges.size());
        vertex.factors.resize(vertex.edges.size() * vertex.node.output_count);
        for (Number& one : vertex.factors) one = random();
    }
    Vertex& of(const Node& node) { return *vertices[node.sequence - 1]; }
};

// The gradients of all outputs of all nodes, computed in reverse order of the nodes.
std::vector<std::vector<Number>> expected(Graph& graph, const std::vector<std::pair<Edge, Number>>& roots) {
    std::vector<std::vector<Number>> sums;
    sums.reserve(graph.vertices.size());
    for (const auto& vertex : graph.vertices) sums.emplace_back(vertex->node.output_count);
    for (const auto& [edge, number] : roots) sums[edge.to->sequence - 1][edge.output] += number;
    for (std::size_t at = graph.vertices.size(); at-- > 0;) {
        const Graph::Vertex& vertex = *graph.vertices[at];
        for (std::size_t edge = 0; edge < vertex.edges.size(); ++edge) {
            if (!vertex.edges[edge].to) continue;
            for (std::size_t out = 0; out < vertex.node.output_count; ++out)
                sums[vertex.edges[edge].to->sequence - 1][vertex.edges[edge].output] +=
                    vertex.factors[edge * vertex.node.output_count + out] * sums[at][out];
        }
    }
    return sums;
}

class Numbers final : public Evaluator {
   public:
    explicit Numbers(Graph& graph) : graph_(graph), seen(graph.vertices.size()) {
        for (const auto& vertex : graph.vertices) seen[vertex->node.sequence - 1].resize(vertex->node.output_count);
    }
    Gradient make(Number number) { return ++live, new Number(number); }

    bool prepare(Node& node, Gradient* outputs) override {
        if (!step() || node.interrupted) return false;
        prepared.push_back(node.sequence);
        for (std::uint32_t i = 0; i < node.output_count; ++i)
            seen[node.sequence - 1][i] = outputs[i] ? *static_cast<Number*>(outputs[i]) : 0;
        return true;
    }
    bool run(Node& node, Gradient* outputs, Gradient* inputs) override {
        ran.push_back(node.sequence);
        const Graph::Vertex& vertex = graph_.of(node);
        const bool ok = step();
        for (std::uint32_t edge = 0; edge < node.edge_count; ++edge) {
            if (!ok && edge == node.edge_count / 2) break;  // an error halfway
            if (!node.edges[edge].to && edge % 2 == 0) continue;
            Number sum = 0;
            for (std::uint32_t out = 0; out < node.output_count; ++out)
                if (outputs[out])
                    sum += vertex.factors[edge * node.output_count + out] * *static_cast<Number*>(outputs[out]);
            inputs[edge] = make(sum);
        }
        for (std::uint32_t out = 0; out < node.output_count; ++out)
            if (outputs[out]) drop(std::exchange(outputs[out], nullptr));
        return ok;
    }
    void capture(std::size_t target, Gradient gradient) override {
        if (captured.size() <= target) captured.resize(target + 1);
        captured[target] = gradient ? *static_cast<Number*>(gradient) : 0;
    }
    bool add(Gradient& sum, Gradient more) override {
        const bool ok = step();
        if (ok) *static_cast<Number*>(sum) += *static_cast<Number*>(more);
        drop(more);
        return ok;
    }
    void drop(Gradient gradient) override {
        --live;
        delete static_cast<Number*>(gradient);
    }

    std::vector<std::uint64_t> prepared, ran;
    std::vector<std::optional<Number>> captured;
    std::int64_t live = 0, steps = 0, fails_at = -1;

   private:
    bool step() { return steps++ != fails_at; }
    Graph& graph_;

   public:
    std::vector<std::vector<Number>> seen;
};

Graph random_graph(std::mt19937_64& random) {
    Graph graph;
    const std::size_t count = 1 + random() % 40;
    for (std::size_t i = 0; i < count; ++i) {
        Graph::Vertex& vertex = graph.add(random() % 4 == 0 ? static_cast<std::uint32_t>(1 + random() % 3) : 1);
        std::vector<Edge> edges;
        const std::size_t inputs = i < 2 ? 0 : random() % 4 + (random() % 16 == 0 ? 20 : 0);
        for (std::size_t k = 0; k < inputs; ++k) {
            Node* to = random() % 5 == 0 ? nullptr : &graph.vertices[random() % i]->node;
            edges.push_back({to, nullptr, to ? static_cast<std::uint32_t>(random() % to->output_count) : 0});
        }
        graph.connect(vertex, std::move(edges), random);
    }
    return graph;
}

Edge random_output(Graph& graph, std::mt19937_64& random) {
    Node& node = graph.vertices[random() % graph.vertices.size()]->node;
    return {&node, nullptr, static_cast<std::uint32_t>(random() % node.output_count)};
}

// Which nodes get a gradient, and which lead to a target.
std::vector<bool> reached(Graph& graph, const std::vector<std::pair<Edge, Number>>& roots) {
    std::vector<bool> found(graph.vertices.size());
    for (const auto& root : roots) found[root.first.to->sequence - 1] = true;
    for (std::size_t at = graph.vertices.size(); at-- > 0;)
        for (const Edge& edge : graph.vertices[at]->edges)
            if (found[at] && edge.to) found[edge.to->sequence - 1] = true;
    return found;
}
std::vector<bool> leading(Graph& graph, const std::vector<Edge>& targets) {
    std::vector<bool> found(graph.vertices.size());
    for (const auto& vertex : graph.vertices) {
        for (const Edge& edge : vertex->edges)
            if (edge.to && (found[edge.to->sequence - 1])) found[vertex->node.sequence - 1] = true;
        for (const Edge& target : targets)
            if (target.to == &vertex->node) found[vertex->node.sequence - 1] = true;
    }
    return found;
}

// Runs a pass; returns whether it succeeded.
bool run(Numbers& numbers, const std::vector<std::pair<Edge, Number>>& roots, const std::vector<Edge>& targets) {
    Pass pass(numbers);
    for (const auto& [edge, number] : roots)
        if (!pass.add_root(*edge.to, edge.output, numbers.make(number))) return false;
    for (const Edge& target : targets) pass.add_target(*target.to, target.output);
    return pass.run();
}

void check_random(std::mt19937_64& random) {
    Graph graph = random_graph(random);
    const std::size_t root_count = 1 + random() % 3, target_count = 1 + random() % 3;
    std::vector<std::pair<Edge, Number>> roots;
    roots.reserve(root_count);
    for (std::size_t i = 0; i < root_count; ++i) roots.emplace_back(random_output(graph, random), random());
    const auto sums = expected(graph, roots);
    const auto comes_to = reached(graph, roots);

    Numbers all(graph);
    require(run(all, roots, {}), "a pass failed");
    require(all.live == 0, "gradients are left");
    std::vector<bool> done(graph.vertices.size());
    for (const std::uint64_t number : all.prepared) {
        require(!done[number - 1], "a node ran twice");
        done[number - 1] = true;
    }
    require(std::is_sorted(all.prepared.rbegin(), all.prepared.rend()), "an earlier node ran first");
    for (std::size_t at = 0; at < graph.vertices.size(); ++at) {
        require(comes_to[at] || !done[at], "a node without gradients ran");
        if (done[at]) require(all.seen[at] == sums[at], "a wrong gradient");
        if (!done[at])
            for (const Number one : sums[at]) require(one == 0, "a node did not run");
    }

    std::vector<Edge> targets;
    targets.reserve(target_count);
    for (std::size_t i = 0; i < target_count; ++i) targets.push_back(random_output(graph, random));
    const auto leads = leading(graph, targets);
    Numbers some(graph);
    require(run(some, roots, targets), "a pass with targets failed");
    require(some.live == 0, "gradients are left by a pass with targets");
    for (std::size_t i = 0; i < targets.size(); ++i) {
        const Number found = i < some.captured.size() ? some.captured[i].value_or(0) : 0;
        require(found == sums[targets[i].to->sequence - 1][targets[i].output], "a wrong gradient of a target");
    }
    for (const std::uint64_t number : some.ran) {
        bool below = false;
        for (const Edge& edge : graph.vertices[number - 1]->edges)
            below = below || (edge.to && leads[edge.to->sequence - 1]);
        require(below, "a node ran that leads to no target");
    }

    for (std::int64_t at = 0; at < all.steps; ++at) {
        Numbers failing(graph);
        failing.fails_at = at;
        require(!run(failing, roots, {}), "an error was lost");
        require(failing.live == 0, "gradients are left after an error");
    }
}

void check_interrupted() {
    std::mt19937_64 random(1);  // NOLINT(bugprone-random-generator-seed): every run has the same graphs
    Graph graph;
    graph.connect(graph.add(1), {}, random);
    graph.connect(graph.add(1), {{&graph.vertices[0]->node, nullptr, 0}}, random);
    graph.connect(graph.add(1), {{&graph.vertices[0]->node, nullptr, 0}}, random);
    const Edge left{&graph.vertices[1]->node, nullptr, 0}, right{&graph.vertices[2]->node, nullptr, 0};
    Numbers numbers(graph);
    Pass pass(numbers);
    require(pass.add_root(*left.to, 0, numbers.make(1)) && pass.run(), "a pass failed");
    pass.interrupt();
    require(!graph.vertices[0]->node.interrupted && left.to->interrupted && !right.to->interrupted, "the wrong nodes");
    Numbers later(graph);
    require(run(later, {{right, 1}}, {}), "a node that was not interrupted did not run");
    require(!run(later, {{left, 1}}, {}) && later.live == 0, "an interrupted node ran");
}

void check_long_chain() {
    std::mt19937_64 random(1);  // NOLINT(bugprone-random-generator-seed): every run has the same graphs
    Graph graph;
    graph.connect(graph.add(1), {}, random);
    Number product = 1;
    for (int i = 0; i < 1'000'000; ++i) {
        Node& below = graph.vertices.back()->node;
        Graph::Vertex& vertex = graph.add(1);
        graph.connect(vertex, {{&below, nullptr, 0}}, random);
        product *= vertex.factors[0];
    }
    Numbers numbers(graph);
    require(run(numbers, {{{&graph.vertices.back()->node, nullptr, 0}, 1}}, {}), "a long pass failed");
    require(numbers.seen[0][0] == product && numbers.live == 0, "a wrong gradient of a long chain");
}

}  // namespace

int main(int count, char** arguments) {
    const int graphs = count > 1 ? static_cast<int>(std::strtol(arguments[1], nullptr, 10)) : 3000;
    std::mt19937_64 random(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0);
    for (int i = 0; i < graphs; ++i) check_random(random);
    check_interrupted();
    check_long_chain();
    std::printf("%d graphs: ok\n", graphs);
}
