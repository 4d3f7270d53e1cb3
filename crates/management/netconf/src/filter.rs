//! Filters of data: subtrees (RFC 6241, section 6), or an XPath expression (section 8.9).

use millrace_yang::filter::subtree;
use millrace_yang::xml::{Attribute, Element};
use millrace_yang::xpath::{XPath, XPathError};

use crate::reply::RpcError;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Filter {
    Subtree(Vec<Element>),
    XPath(XPath),
}

impl Filter {
    /// Returns the filter of an operation; `None` without one. `outer` are the attributes around the operation.
    pub(crate) fn of(operation: &Element, outer: &[Attribute]) -> Result<Option<Filter>, Vec<RpcError>> {
        let Some(filter) = operation.child("filter") else {
            return Ok(None);
        };
        match attribute(filter, "type").unwrap_or("subtree") {
            "subtree" => Ok(Some(Filter::Subtree(filter.children.clone()))),
            "xpath" => {
                let Some(select) = attribute(filter, "select") else {
                    let error = RpcError::new(
                        "protocol",
                        "missing-attribute",
                        "filter: expected the attribute select",
                    );
                    return Err(vec![
                        error
                            .with_info("bad-attribute", "select")
                            .with_info("bad-element", "filter"),
                    ]);
                };
                let all = [outer, &operation.attributes, &filter.attributes];
                let namespaces: Vec<(&str, &str)> = all.into_iter().flatten().filter_map(declared).collect();
                XPath::parse(select, &namespaces)
                    .map(|path| Some(Filter::XPath(path)))
                    .map_err(|error| vec![refused(&error)])
            }
            other => {
                let other: String = other.chars().take(64).collect();
                let message = format!("filter type `{other}`: expected subtree or xpath");
                Err(vec![
                    RpcError::new("protocol", "bad-attribute", message)
                        .with_info("bad-attribute", "type")
                        .with_info("bad-element", "filter"),
                ])
            }
        }
    }

    /// Returns the part of data that the filter selects.
    pub(crate) fn apply(&self, data: &[Element]) -> Result<Vec<Element>, Vec<RpcError>> {
        match self {
            Filter::Subtree(filter) => Ok(subtree(data, filter)),
            Filter::XPath(path) => path.select(data).map_err(|error| vec![refused(&error)]),
        }
    }
}

/// Returns an attribute of the filter, with any namespace: clients write it with that of NETCONF, or with none.
fn attribute<'a>(filter: &'a Element, name: &str) -> Option<&'a str> {
    let is_it = |attribute: &&Attribute| attribute.name == name && !attribute.is_declaration();
    filter
        .attributes
        .iter()
        .find(is_it)
        .map(|attribute| attribute.value.as_str())
}

/// Returns the prefix and the namespace that an attribute declares.
fn declared(attribute: &Attribute) -> Option<(&str, &str)> {
    let prefix = attribute.written.strip_prefix("xmlns:")?;
    Some((prefix, &attribute.value))
}

/// Returns the error of an expression that is wrong, or whose value is no set of nodes (section 8.9.5.2).
fn refused(error: &XPathError) -> RpcError {
    RpcError::new("protocol", "invalid-value", format!("filter select: {error}"))
        .with_info("bad-attribute", "select")
        .with_info("bad-element", "filter")
}
