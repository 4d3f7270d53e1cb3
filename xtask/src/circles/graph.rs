//! Strongly connected components of a directed graph (Tarjan, "Depth-first search and linear graph algorithms", 1972).

use std::collections::{BTreeMap, BTreeSet};

/// The successors of each node.
pub(super) type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the components of more than one node, each in order of its names.
pub(super) fn circles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let mut search = Search {
        graph,
        states: BTreeMap::new(),
        stack: Vec::new(),
        circles: Vec::new(),
    };
    for node in graph.keys() {
        if !search.states.contains_key(node.as_str()) {
            search.visit(node);
        }
    }
    search.circles
}

/// The state of a visited node.
struct State {
    /// The number of nodes that were visited before this one.
    index: usize,
    is_on_stack: bool,
}

struct Search<'a> {
    graph: &'a Graph,
    states: BTreeMap<&'a str, State>,
    /// Visited nodes whose component is not complete.
    stack: Vec<&'a str>,
    circles: Vec<BTreeSet<String>>,
}

impl<'a> Search<'a> {
    /// Visits `node` and all nodes that are reachable from it. Returns the lowest index that is reachable.
    /// The recursion is as deep as the longest path, at most the number of files of a crate.
    fn visit(&mut self, node: &'a str) -> usize {
        let index = self.states.len();
        let mut low = index;
        self.states.insert(
            node,
            State {
                index,
                is_on_stack: true,
            },
        );
        self.stack.push(node);
        for next in self.graph.get(node).into_iter().flatten() {
            let reachable = match self.states.get(next.as_str()) {
                None => self.visit(next),
                Some(state) if state.is_on_stack => state.index,
                Some(_) => continue,
            };
            low = low.min(reachable);
        }
        if low == index {
            self.complete(node);
        }
        low
    }

    /// Removes the component with the first visited node `root` from the stack.
    fn complete(&mut self, root: &str) {
        let mut component = BTreeSet::new();
        while let Some(node) = self.stack.pop() {
            if let Some(state) = self.states.get_mut(node) {
                state.is_on_stack = false;
            }
            component.insert(node.to_owned());
            if node == root {
                break;
            }
        }
        if component.len() > 1 {
            self.circles.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph
                .entry((*from).to_owned())
                .or_default()
                .insert((*to).to_owned());
        }
        graph
    }

    fn names(circles: &[BTreeSet<String>]) -> Vec<String> {
        let join =
            |circle: &BTreeSet<String>| circle.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        circles.iter().map(join).collect()
    }

    #[test]
    fn a_graph_without_circles_has_none() {
        assert!(circles(&graph(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])).is_empty());
    }

    #[test]
    fn circles_that_meet_are_one_and_those_apart_are_several() {
        let graph = graph(&[
            ("a", "b"),
            ("b", "a"),
            ("b", "c"),
            ("c", "b"),
            ("c", "d"),
            ("d", "e"),
            ("e", "f"),
            ("f", "d"),
        ]);
        assert_eq!(names(&circles(&graph)), ["d e f", "a b c"]);
    }

    #[test]
    fn the_components_are_those_of_a_search_of_all_paths() {
        // The test covers all 2^12 graphs of four nodes without loops.
        let nodes = ["a", "b", "c", "d"];
        let pairs: Vec<(&str, &str)> = nodes
            .iter()
            .flat_map(|from| nodes.iter().map(move |to| (*from, *to)))
            .filter(|(from, to)| from != to)
            .collect();
        for bits in 0_u32..1 << pairs.len() {
            let edges: Vec<(&str, &str)> = pairs
                .iter()
                .enumerate()
                .filter(|(index, _)| bits >> index & 1 == 1)
                .map(|(_, pair)| *pair)
                .collect();
            // The transitive closure (Warshall).
            let index = |name: &str| nodes.iter().position(|node| *node == name).unwrap();
            let mut reaches = [[false; 4]; 4];
            for (from, to) in &edges {
                reaches[index(from)][index(to)] = true;
            }
            for (middle, from, to) in (0..64).map(|n| (n / 16, n / 4 % 4, n % 4)) {
                reaches[from][to] |= reaches[from][middle] && reaches[middle][to];
            }
            let expected: BTreeSet<BTreeSet<String>> = nodes
                .iter()
                .map(|node| {
                    let one = index(node);
                    let both = |other: &usize| *other == one || reaches[one][*other] && reaches[*other][one];
                    (0..4).filter(both).map(|other| nodes[other].to_owned()).collect()
                })
                .filter(|component: &BTreeSet<String>| component.len() > 1)
                .collect();
            let found: BTreeSet<BTreeSet<String>> = circles(&graph(&edges)).into_iter().collect();
            assert_eq!(found, expected, "{edges:?}");
        }
    }
}
