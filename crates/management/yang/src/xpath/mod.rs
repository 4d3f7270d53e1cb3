//! XPath 1.0 over data: the filters of type `xpath` (RFC 6241, section 8.9).
//!
//! ```text
//!  text --token--> tokens --parse--> expression --evaluate--> nodes of the tree --> the selected elements, with ancestors and keys
//!                                                    ^
//!                           elements --tree--> nodes in document order
//! ```
//!
//! The language is that of W3C's recommendation of 1999, with its axes, operators and functions; data has neither attributes nor
//! comments, so their tests match nothing. A name without a prefix matches in any namespace, as in a subtree filter, where XPath
//! would take it for one of no namespace, which no data has. Work is counted and bounded: an expression is a program of an unknown client.

mod error;
mod evaluate;
mod function;
mod parse;
mod token;
mod tree;
mod value;

use crate::filter::Selection;
use crate::xml::Element;

pub use error::{LENGTH_MAX, WORK_MAX, XPathError};
use evaluate::Evaluation;
use parse::Expression;
use tree::Tree;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct XPath(Expression);

impl XPath {
    /// Reads an expression. `namespaces` are prefixes with their namespaces; the last one of a prefix counts.
    ///
    /// # Errors
    /// [`XPathError`].
    pub fn parse(text: &str, namespaces: &[(&str, &str)]) -> Result<XPath, XPathError> {
        if text.len() > LENGTH_MAX {
            return Err(XPathError::TooLong(format!("{LENGTH_MAX} bytes")));
        }
        Ok(XPath(parse::parse(text, namespaces)?))
    }

    /// Returns the selected elements with all inside of them, below their ancestors, with the keys of entries.
    ///
    /// # Errors
    /// [`XPathError::NotNodes`], [`XPathError::TooMuchWork`].
    pub fn select(&self, data: &[Element]) -> Result<Vec<Element>, XPathError> {
        let tree = Tree::new(data);
        let mut selection = Selection::default();
        for node in self.nodes(&tree)? {
            selection.insert(&tree.place(node));
        }
        Ok(selection.of(data))
    }

    /// Returns the nodes that are the value of the expression, in document order.
    fn nodes(&self, tree: &Tree<'_>) -> Result<Vec<u32>, XPathError> {
        Evaluation::new(tree, WORK_MAX).nodes(&self.0)
    }
}

#[cfg(test)]
mod tests;
