//! Port names in the text of flows and packets.

use crate::view::Port;

/// Returns the text with port names replaced by port numbers in `in_port=NAME`, `out_port=NAME` and `output:NAME`. A
/// valid port name is neither a number nor the name of a reserved port.
pub(super) fn with_port_numbers(text: &str, ports: &[Port]) -> String {
    let number = |name: &str| {
        let port = ports.iter().find(|port| port.name == name);
        port.map(|port| port.number.to_string())
    };
    let item = |item: &str| {
        let named = ["in_port=", "out_port=", "output:"]
            .into_iter()
            .find_map(|key| Some(format!("{key}{}", number(item.strip_prefix(key)?)?)));
        // `actions=output:NAME` has no separator before `output`.
        named.or_else(|| {
            let (key, name) = item.split_once("=output:")?;
            Some(format!("{key}=output:{}", number(name)?))
        })
    };
    let separates = |c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')');
    text.split_inclusive(separates)
        .map(|piece| {
            let end = piece.trim_end_matches(separates).len();
            let (name, separator) = piece.split_at(end);
            item(name).map_or_else(|| piece.to_owned(), |item| item + separator)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ports_become_their_numbers_and_nothing_else_changes() {
        let port = |name: &str, number| Port {
            name: name.to_owned(),
            number,
            ..crate::fake::port()
        };
        let ports = [port("h1", 1), port("up link", 7), port("wan", 12)];
        for (text, expected) in [
            ("in_port=h1,tcp", "in_port=1,tcp"),
            ("in_port=wan actions=output:h1", "in_port=12 actions=output:1"),
            (
                "arp actions=output:h1,write_actions(output:wan,output:3)",
                "arp actions=output:1,write_actions(output:12,output:3)",
            ),
            ("out_port=wan, ip", "out_port=12, ip"),
            ("in_port=LOCAL,actions=NORMAL", "in_port=LOCAL,actions=NORMAL"),
            ("in_port=nobody", "in_port=nobody"),
        ] {
            assert_eq!(with_port_numbers(text, &ports), expected);
        }
    }
}
