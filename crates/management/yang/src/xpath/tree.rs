//! The nodes of data in document order: a node comes before those inside of it.

use super::parse::{Axis, Test};
use crate::xml::Element;

/// The number of the root, whose children are the elements of the data.
pub(super) const ROOT: u32 = 0;

#[derive(Debug)]
enum Kind<'a> {
    Root,
    /// An element, and its index among those of the same parent.
    Element(&'a Element, usize),
    Text(&'a str),
}

#[derive(Debug)]
struct Node<'a> {
    kind: Kind<'a>,
    parent: u32,
    /// The number behind the last node inside.
    end: u32,
}

/// The nodes of data.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(data: &'a [Element]) -> Tree<'a> {
        let mut tree = Tree { nodes: Vec::new() };
        let root = tree.add(Kind::Root, ROOT);
        tree.add_all(data, root);
        tree.close(root);
        tree
    }

    fn add(&mut self, kind: Kind<'a>, parent: u32) -> u32 {
        let number = self.nodes.len() as u32;
        self.nodes.push(Node {
            kind,
            parent,
            end: number + 1,
        });
        number
    }

    fn add_all(&mut self, elements: &'a [Element], parent: u32) {
        for (place, element) in elements.iter().enumerate() {
            let node = self.add(Kind::Element(element, place), parent);
            if !element.text.is_empty() {
                self.add(Kind::Text(&element.text), node);
            }
            self.add_all(&element.children, node);
            self.close(node);
        }
    }

    fn close(&mut self, node: u32) {
        let end = self.nodes.len() as u32;
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.end = end;
        }
    }

    fn node(&self, number: u32) -> &Node<'a> {
        &self.nodes[number as usize]
    }

    fn end(&self, number: u32) -> u32 {
        self.node(number).end
    }

    /// Returns the parent; `None` for the root.
    fn parent(&self, number: u32) -> Option<u32> {
        (number != ROOT).then(|| self.node(number).parent)
    }

    /// Returns the element of a node; `None` for the root and for a text.
    pub(super) fn element(&self, number: u32) -> Option<&'a Element> {
        match self.node(number).kind {
            Kind::Element(element, _) => Some(element),
            Kind::Root | Kind::Text(_) => None,
        }
    }

    /// Returns the indices of the elements from the data down to that of a node; a text is part of its element.
    pub(super) fn place(&self, number: u32) -> Vec<usize> {
        let mut path = Vec::new();
        let mut at = Some(number);
        while let Some(number) = at {
            if let Kind::Element(_, place) = self.node(number).kind {
                path.push(place);
            }
            at = self.parent(number);
        }
        path.reverse();
        path
    }

    /// Appends the text of a node and of all nodes inside (XPath 1.0, section 5), and returns the number of nodes.
    pub(super) fn text(&self, number: u32, out: &mut String) -> u64 {
        let end = self.end(number);
        for node in &self.nodes[number as usize..end as usize] {
            if let Kind::Text(text) = node.kind {
                out.push_str(text);
            }
        }
        u64::from(end - number)
    }

    pub(super) fn is_match(&self, number: u32, test: &Test) -> bool {
        match (test, &self.node(number).kind) {
            (Test::Any, _) | (Test::Text, Kind::Text(_)) => true,
            (Test::Element { namespace, name }, Kind::Element(element, _)) => {
                namespace
                    .as_ref()
                    .is_none_or(|wanted| *wanted == element.namespace)
                    && name.as_ref().is_none_or(|wanted| *wanted == element.name)
            }
            _ => false,
        }
    }

    fn children(&self, number: u32) -> impl Iterator<Item = u32> {
        self.in_turn(number + 1, self.end(number))
    }

    /// Returns the siblings from a node on.
    fn in_turn(&self, first: u32, end: u32) -> impl Iterator<Item = u32> {
        let next = move |number: &u32| Some(self.end(*number)).filter(|next| *next < end);
        std::iter::successors(Some(first).filter(|first| *first < end), next)
    }

    fn ancestors(&self, number: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(self.parent(number), |number| self.parent(*number))
    }

    /// Appends the nodes of an axis in its order, and returns the number of nodes that it looked at.
    pub(super) fn walk(&self, axis: Axis, number: u32, out: &mut Vec<u32>) -> u64 {
        let before = out.len();
        match axis {
            Axis::Nothing => {}
            Axis::Itself => out.push(number),
            Axis::Parent => out.extend(self.parent(number)),
            Axis::Ancestor => out.extend(self.ancestors(number)),
            Axis::AncestorOrSelf => {
                out.push(number);
                out.extend(self.ancestors(number));
            }
            Axis::Child => out.extend(self.children(number)),
            Axis::Descendant => out.extend(number + 1..self.end(number)),
            Axis::DescendantOrSelf => out.extend(number..self.end(number)),
            Axis::Following => out.extend(self.end(number)..self.nodes.len() as u32),
            Axis::FollowingSibling => {
                if let Some(parent) = self.parent(number) {
                    out.extend(self.in_turn(self.end(number), self.end(parent)));
                }
            }
            Axis::Preceding => {
                let all = (1..number).rev();
                out.extend(all.filter(|before| self.end(*before) <= number));
                return u64::from(number);
            }
            Axis::PrecedingSibling => {
                if let Some(parent) = self.parent(number) {
                    out.extend(self.children(parent).take_while(|sibling| *sibling < number));
                    out[before..].reverse();
                }
            }
        }
        (out.len() - before) as u64
    }
}
