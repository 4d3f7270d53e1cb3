//! XML elements of a message, read with bounds and written again.
//!
//! Document type definitions and processing instructions are refused, so that the only entities are the five of XML and
//! character references: nothing expands.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;

/// The depth limit of elements. The deepest path of the module has 8.
pub const DEPTH_MAX: usize = 64;
/// The limit of the number of elements of a message.
pub const ELEMENTS_MAX: usize = 400_000;
/// The limit of the number of attributes of an element.
const ATTRIBUTES_MAX: usize = 64;

/// An element with its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    /// The namespace; empty for none.
    pub namespace: String,
    /// The name without a prefix.
    pub name: String,
    /// The attributes, declarations of namespaces among them.
    pub attributes: Vec<Attribute>,
    /// The text between the tags, joined.
    pub text: String,
    /// The elements inside.
    pub children: Vec<Element>,
    /// The number of the first elements inside that are the keys of a list entry; 0 in a message that was read.
    pub keys: usize,
}

/// An attribute of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The name as written, with its prefix.
    pub written: String,
    /// The namespace; empty for none.
    pub namespace: String,
    /// The name without a prefix.
    pub name: String,
    pub value: String,
}

/// The reason why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// The bytes are not UTF-8.
    #[error("the message is not UTF-8 (RFC 6241, section 3)")]
    Utf8,
    /// The text is not well formed.
    #[error("the message is not well-formed XML: {0}")]
    Syntax(String),
    /// A document type definition, a processing instruction or an unknown entity.
    #[error("{0}: not allowed in a message; expected elements and text alone")]
    Forbidden(&'static str),
    /// Too deep, too many elements or attributes.
    #[error("the message exceeds a limit: expected at most {0}")]
    Limit(String),
}

impl Attribute {
    /// Returns true if the attribute declares a namespace.
    pub fn is_declaration(&self) -> bool {
        self.namespace == XMLNS
    }
}

impl Element {
    /// Returns an element of a namespace without content.
    pub fn new(namespace: &str, name: &str) -> Element {
        Element {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Element::default()
        }
    }

    /// Returns the element with text.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Element {
        self.text = text.into();
        self
    }

    /// Returns the element with another one inside, after those that it has.
    #[must_use]
    pub fn with(mut self, child: Element) -> Element {
        self.children.push(child);
        self
    }

    /// Returns the element inside with this name, in the namespace of this one.
    pub fn child(&self, name: &str) -> Option<&Element> {
        let is_it = |child: &&Element| child.name == name && child.namespace == self.namespace;
        self.children.iter().find(is_it)
    }

    /// Returns the value of an attribute by its namespace and name.
    pub fn attribute(&self, namespace: &str, name: &str) -> Option<&str> {
        let is_it = |attribute: &&Attribute| attribute.namespace == namespace && attribute.name == name;
        self.attributes
            .iter()
            .find(is_it)
            .map(|attribute| attribute.value.as_str())
    }

    /// Returns the text without the white space around it.
    pub fn trimmed(&self) -> &str {
        self.text.trim()
    }

    /// Reads the one element of a message.
    ///
    /// # Errors
    /// [`XmlError`].
    pub fn parse(bytes: &[u8]) -> Result<Element, XmlError> {
        let text = std::str::from_utf8(bytes).map_err(|_| XmlError::Utf8)?;
        let mut reader = NsReader::from_str(text);
        let mut open: Vec<Element> = Vec::new();
        let mut root = None;
        let mut count = 0;
        loop {
            let event = reader.read_event().map_err(syntax)?;
            match event {
                Event::Start(tag) => {
                    count += 1;
                    within(open.len() < DEPTH_MAX, || format!("{DEPTH_MAX} levels"))?;
                    within(count <= ELEMENTS_MAX, || format!("{ELEMENTS_MAX} elements"))?;
                    single(root.is_none())?;
                    open.push(started(&reader, &tag)?);
                }
                Event::Empty(tag) => {
                    count += 1;
                    within(count <= ELEMENTS_MAX, || format!("{ELEMENTS_MAX} elements"))?;
                    single(root.is_none())?;
                    let element = started(&reader, &tag)?;
                    close(element, &mut open, &mut root);
                }
                Event::End(_) => {
                    let element = open
                        .pop()
                        .ok_or_else(|| XmlError::Syntax("an end tag too many".to_owned()))?;
                    close(element, &mut open, &mut root);
                }
                Event::Text(text) => push_text(&mut open, &text.xml10_content().map_err(syntax)?)?,
                Event::CData(text) => push_text(&mut open, &text.xml10_content().map_err(syntax)?)?,
                Event::GeneralRef(reference) => {
                    let character = resolved(&reference)?;
                    push_text(&mut open, character.encode_utf8(&mut [0; 4]))?;
                }
                Event::Comment(_) | Event::Decl(_) => {}
                Event::PI(_) => return Err(XmlError::Forbidden("a processing instruction")),
                Event::DocType(_) => return Err(XmlError::Forbidden("a document type definition")),
                Event::Eof => break,
            }
        }
        match root {
            Some(root) if open.is_empty() => Ok(root),
            _ => Err(XmlError::Syntax("expected one whole element".to_owned())),
        }
    }

    /// Appends the element as XML. `outer` is the default namespace at this place.
    pub fn write(&self, outer: &str, out: &mut String) {
        out.push('<');
        out.push_str(&self.name);
        let declares = self.namespace != outer;
        if declares && !self.attributes.iter().any(|a| a.written == "xmlns") {
            out.push_str(" xmlns=\"");
            escape(&self.namespace, out);
            out.push('"');
        }
        for attribute in &self.attributes {
            out.push(' ');
            out.push_str(&attribute.written);
            out.push_str("=\"");
            escape(&attribute.value, out);
            out.push('"');
        }
        if self.text.is_empty() && self.children.is_empty() {
            out.push_str("/>");
            return;
        }
        out.push('>');
        escape(&self.text, out);
        for child in &self.children {
            child.write(&self.namespace, out);
        }
        out.push_str("</");
        out.push_str(&self.name);
        out.push('>');
    }
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        self.write("", &mut text);
        f.write_str(&text)
    }
}

fn syntax(error: impl std::fmt::Display) -> XmlError {
    XmlError::Syntax(error.to_string().chars().take(200).collect())
}

fn within(holds: bool, limit: impl Fn() -> String) -> Result<(), XmlError> {
    match holds {
        true => Ok(()),
        false => Err(XmlError::Limit(limit())),
    }
}

fn single(is_first: bool) -> Result<(), XmlError> {
    match is_first {
        true => Ok(()),
        false => Err(XmlError::Syntax("expected one element, found more".to_owned())),
    }
}

fn close(element: Element, open: &mut [Element], root: &mut Option<Element>) {
    match open.last_mut() {
        Some(outer) => outer.children.push(element),
        None => *root = Some(element),
    }
}

fn push_text(open: &mut [Element], text: &str) -> Result<(), XmlError> {
    match open.last_mut() {
        Some(element) => {
            element.text.push_str(text);
            Ok(())
        }
        None if text.trim().is_empty() => Ok(()),
        None => Err(XmlError::Syntax("text outside of the element".to_owned())),
    }
}

fn resolved(reference: &BytesRef<'_>) -> Result<char, XmlError> {
    if let Some(character) = reference.resolve_char_ref().map_err(syntax)? {
        return Ok(character);
    }
    match reference.decode().map_err(syntax)?.as_ref() {
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "amp" => Ok('&'),
        "apos" => Ok('\''),
        "quot" => Ok('"'),
        _ => Err(XmlError::Forbidden("an entity other than the five of XML")),
    }
}

fn started(reader: &NsReader<&[u8]>, tag: &BytesStart<'_>) -> Result<Element, XmlError> {
    let (resolved, local) = reader.resolver().resolve_element(tag.name());
    let mut element = Element::new(&namespace(&resolved)?, &utf8(local.as_ref())?);
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(syntax)?;
        within(element.attributes.len() < ATTRIBUTES_MAX, || {
            format!("{ATTRIBUTES_MAX} attributes of an element")
        })?;
        let written = utf8(attribute.key.as_ref())?;
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(syntax)?
            .into_owned();
        let (namespace, name) = if attribute.key.as_namespace_binding().is_some() {
            (XMLNS.to_owned(), written.clone())
        } else {
            let (resolved, local) = reader.resolver().resolve_attribute(attribute.key);
            (namespace(&resolved)?, utf8(local.as_ref())?)
        };
        element.attributes.push(Attribute {
            written,
            namespace,
            name,
            value,
        });
    }
    Ok(element)
}

/// The namespace of declarations of namespaces ("Namespaces in XML 1.0", section 3).
pub const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

fn namespace(resolved: &ResolveResult<'_>) -> Result<String, XmlError> {
    match resolved {
        ResolveResult::Bound(namespace) => utf8(namespace.as_ref()),
        ResolveResult::Unbound => Ok(String::new()),
        ResolveResult::Unknown(prefix) => Err(XmlError::Syntax(format!(
            "the prefix `{}` is not declared",
            String::from_utf8_lossy(prefix)
                .chars()
                .take(64)
                .collect::<String>()
        ))),
    }
}

fn utf8(bytes: &[u8]) -> Result<String, XmlError> {
    let text = std::str::from_utf8(bytes).map_err(|_| XmlError::Utf8)?;
    Ok(text.to_owned())
}

/// Appends text with the characters replaced that XML reserves, and without those that XML 1.0 does not have.
fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\r' => out.push_str("&#13;"),
            '\t' | '\n' => out.push(character),
            control if control < ' ' => out.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_keeps_namespaces_attributes_and_text() {
        let text = r#"<?xml version="1.0"?><a:x xmlns:a="urn:a" xmlns="urn:b" a:k="1 &lt; 2"><y>t&#65;&amp;<![CDATA[<]]></y><!-- c --></a:x>"#;
        let element = Element::parse(text.as_bytes()).unwrap();
        assert_eq!(
            (element.namespace.as_str(), element.name.as_str()),
            ("urn:a", "x")
        );
        assert_eq!(element.attribute("urn:a", "k"), Some("1 < 2"));
        let inner = &element.children[0];
        assert_eq!((inner.namespace.as_str(), inner.text.as_str()), ("urn:b", "tA&<"));
    }

    #[test]
    fn a_written_element_is_read_as_the_same() {
        let inner = Element::new("urn:b", "y").with_text("<&\">\t");
        let element = Element::new("urn:a", "x")
            .with(Element::new("urn:a", "z"))
            .with(inner);
        let mut read = Element::parse(element.to_string().as_bytes()).unwrap();
        fn bare(element: &mut Element) {
            element.attributes.clear();
            element.children.iter_mut().for_each(bare);
        }
        bare(&mut read);
        assert_eq!(read, element);
    }

    #[test]
    fn nothing_expands_and_depth_is_bounded() {
        let bomb = r#"<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><x>&b;</x>"#;
        assert_eq!(
            Element::parse(bomb.as_bytes()),
            Err(XmlError::Forbidden("a document type definition"))
        );
        assert!(Element::parse(b"<x>&b;</x>").is_err());
        let deep = format!("{}{}", "<x>".repeat(100), "</x>".repeat(100));
        assert!(matches!(Element::parse(deep.as_bytes()), Err(XmlError::Limit(_))));
        for bad in [
            "",
            "<x>",
            "</x>",
            "<x/><y/>",
            "<x/>t",
            "<p:x/>",
            "<x a=1/>",
            "<?p?><x/>",
        ] {
            assert!(Element::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(Element::parse(b"<x>\xff</x>"), Err(XmlError::Utf8));
    }
}
