//! Subtree filters (RFC 6241, section 6).
//!
//! A filter is compared with the data level by level. At each level its elements are of three kinds:
//!
//! | element of the filter | name in the RFC | selects |
//! | --- | --- | --- |
//! | `<name>br0</name>` | content match | the siblings, if the data has this value; nothing otherwise |
//! | `<port/>` | selection | the whole element |
//! | `<port><mtu/></port>` | containment | what the elements inside select |
//!
//! The keys of a selected entry are always part of the result, which the RFC permits (section 6.2.5).

use std::collections::BTreeMap;

use crate::xml::Element;

/// The selected part of an element.
#[derive(Debug, Clone)]
pub(crate) enum Selection {
    All,
    /// Some of the elements inside, by index.
    Part(BTreeMap<usize, Selection>),
}

impl Default for Selection {
    fn default() -> Selection {
        Selection::Part(BTreeMap::new())
    }
}

impl Selection {
    /// Adds the element at these indices, from the outermost on, with all inside of it.
    pub(crate) fn insert(&mut self, place: &[usize]) {
        match (&mut *self, place) {
            (Selection::All, _) => {}
            (_, []) => *self = Selection::All,
            (Selection::Part(parts), [first, rest @ ..]) => parts.entry(*first).or_default().insert(rest),
        }
    }

    /// Returns the selected part of data.
    pub(crate) fn of(&self, data: &[Element]) -> Vec<Element> {
        match self {
            Selection::All => data.to_vec(),
            Selection::Part(parts) => taken(data, 0, parts),
        }
    }

    fn merge(&mut self, other: Selection) {
        match (&mut *self, other) {
            (Selection::All, _) => {}
            (_, Selection::All) => *self = Selection::All,
            (Selection::Part(mine), Selection::Part(theirs)) => {
                for (index, selection) in theirs {
                    match mine.get_mut(&index) {
                        Some(present) => present.merge(selection),
                        None => drop(mine.insert(index, selection)),
                    }
                }
            }
        }
    }
}

/// Returns the part of the data that a filter selects; an empty filter selects nothing.
pub fn subtree(data: &[Element], filter: &[Element]) -> Vec<Element> {
    match siblings(data, filter) {
        Some(selection) if !filter.is_empty() => selection.of(data),
        _ => Vec::new(),
    }
}

fn is_match(filter: &Element, data: &Element) -> bool {
    let own_attributes = filter
        .attributes
        .iter()
        .any(|attribute| !attribute.is_declaration());
    // An element without a namespace stands for any (section 6.2.1). The data has no attributes to match.
    filter.name == data.name
        && (filter.namespace.is_empty() || filter.namespace == data.namespace)
        && !own_attributes
}

fn is_content_match(filter: &Element) -> bool {
    filter.children.is_empty() && !filter.trimmed().is_empty()
}

/// Returns the selection among siblings; `None` if a content match fails.
fn siblings(data: &[Element], filter: &[Element]) -> Option<Selection> {
    let (contents, others): (Vec<&Element>, Vec<&Element>) =
        filter.iter().partition(|one| is_content_match(one));
    let mut parts = BTreeMap::new();
    for content in &contents {
        let mut found = false;
        for (index, element) in data.iter().enumerate() {
            let equal = element.children.is_empty() && element.trimmed() == content.trimmed();
            if is_match(content, element) && equal {
                parts.insert(index, Selection::All);
                found = true;
            }
        }
        if !found {
            return None;
        }
    }
    if others.is_empty() && !contents.is_empty() {
        return Some(Selection::Part(
            (0..data.len()).map(|index| (index, Selection::All)).collect(),
        ));
    }
    for wanted in others {
        for (index, element) in data
            .iter()
            .enumerate()
            .filter(|(_, element)| is_match(wanted, element))
        {
            let selection = match wanted.children.is_empty() {
                true => Some(Selection::All),
                false => siblings(&element.children, &wanted.children),
            };
            let Some(selection) = selection else { continue };
            if matches!(&selection, Selection::Part(parts) if parts.is_empty()) {
                continue;
            }
            match parts.get_mut(&index) {
                Some(present) => present.merge(selection),
                None => drop(parts.insert(index, selection)),
            }
        }
    }
    Some(Selection::Part(parts))
}

fn taken(data: &[Element], keys: usize, parts: &BTreeMap<usize, Selection>) -> Vec<Element> {
    let mut result = Vec::new();
    for (index, element) in data.iter().enumerate() {
        match parts.get(&index) {
            Some(Selection::All) => result.push(element.clone()),
            Some(Selection::Part(inner)) => result.push(Element {
                children: taken(&element.children, element.keys, inner),
                namespace: element.namespace.clone(),
                name: element.name.clone(),
                keys: element.keys,
                ..Element::default()
            }),
            None if index < keys => result.push(element.clone()),
            None => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Vec<Element> {
        let text = r#"<data xmlns="urn:d"><users><user><name>root</name><type>superuser</type><group>0</group></user>
            <user><name>fred</name><type>admin</type><group>7</group></user></users><other>1</other></data>"#;
        let mut children = Element::parse(text.as_bytes()).unwrap().children;
        fn bare(element: &mut Element) {
            element.attributes.clear();
            element.text = element.trimmed().to_owned();
            element.keys = usize::from(element.name == "user");
            element.children.iter_mut().for_each(bare);
        }
        children.iter_mut().for_each(bare);
        children
    }

    fn select(filter: &str) -> String {
        let filter = Element::parse(format!("<filter>{filter}</filter>").as_bytes()).unwrap();
        let selected = subtree(&data(), &filter.children);
        let text: String = selected.iter().map(ToString::to_string).collect();
        text.replace(" xmlns=\"urn:d\"", "")
    }

    #[test]
    fn the_examples_of_rfc_6241_section_6_4_select_what_they_say() {
        let root = "<user><name>root</name><type>superuser</type><group>0</group></user>";
        let fred = "<user><name>fred</name><type>admin</type><group>7</group></user>";
        let users = |inner: &str| format!("<users>{inner}</users>");
        // 6.4.2, an empty filter.
        assert_eq!(select(""), "");
        // 6.4.3, a whole subtree.
        assert_eq!(
            select(r#"<users xmlns="urn:d"/>"#),
            users(&format!("{root}{fred}"))
        );
        // 6.4.4, one element of each entry.
        assert_eq!(
            select(r#"<users xmlns="urn:d"><user><name/></user></users>"#),
            users("<user><name>root</name></user><user><name>fred</name></user>")
        );
        // 6.4.5, one entry.
        assert_eq!(
            select(r#"<users xmlns="urn:d"><user><name>fred</name></user></users>"#),
            users(fred)
        );
        // 6.4.6, some elements of an entry.
        assert_eq!(
            select(r#"<users xmlns="urn:d"><user><name>fred</name><type/></user></users>"#),
            users("<user><name>fred</name><type>admin</type></user>")
        );
        // 6.4.7, several subtrees.
        assert_eq!(
            select(
                r#"<users xmlns="urn:d"><user><name>root</name><group/></user><user><name>fred</name><type/></user></users>"#
            ),
            users(
                "<user><name>root</name><group>0</group></user><user><name>fred</name><type>admin</type></user>"
            )
        );
    }

    #[test]
    fn keys_come_with_an_entry_and_other_namespaces_select_nothing() {
        assert_eq!(
            select("<users><user><group/></user></users>"),
            "<users><user><name>root</name><group>0</group></user><user><name>fred</name><group>7</group></user></users>"
        );
        assert_eq!(select(r#"<users xmlns="urn:e"/>"#), "");
        assert_eq!(select(r#"<users><user><name>nobody</name></user></users>"#), "");
        assert_eq!(select(r#"<users><user a="1"/></users>"#), "");
        assert_eq!(select("<other/>"), "<other>1</other>");
    }
}
