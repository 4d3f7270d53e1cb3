//! Addresses and ports of a header: values, ranges, lists, negations and variables.

use std::fmt;
use std::net::IpAddr;

use crate::limits;
use crate::refusal::Reason;
use crate::text::quote;

/// A set of values as a rule writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec<T> {
    /// All values.
    Any,
    /// The values from the first to the last, both included.
    Range(T, T),
    /// The value of a variable; the name is without the dollar sign.
    Variable(String),
    /// All values that are not in the set.
    Not(Box<Spec<T>>),
    /// The values in one of the sets, and in none of the negated ones.
    List(Vec<Spec<T>>),
}

/// A set of addresses.
pub type AddressSpec = Spec<IpAddr>;
/// A set of ports.
pub type PortSpec = Spec<u16>;

/// A value of a header: an address or a port.
pub trait Value: Copy + Ord + fmt::Display {
    /// The name of the value in messages.
    const WORD: &'static str;
    /// Parses an element of a list, a value or a range. Returns its first and last value.
    ///
    /// # Errors
    /// Returns the expected form.
    fn read(text: &str) -> Result<(Self, Self), Reason>;
    /// Prints a range in a form that [`Value::read`] reads.
    ///
    /// # Errors
    /// Fails if the formatter does.
    fn print(first: &Self, last: &Self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    /// Returns the index of the value's number space (0 for IPv4 and ports, 1 for IPv6), and the value as a
    /// number.
    fn to_space_and_number(self) -> (usize, u128);
    /// The largest number of each space.
    const LARGEST: [u128; 2];
}

const ADDRESS: &str = "an address, ADDRESS/PREFIX, FIRST-LAST, any, $VARIABLE, or a list of them in brackets";
const PORT: &str = "a port from 0 to 65535, FIRST:LAST, any, $VARIABLE, or a list of them in brackets";

/// Returns the first and the last address of a prefix.
fn prefix(address: IpAddr, len: u32) -> Option<(IpAddr, IpAddr)> {
    match address {
        IpAddr::V4(address) => {
            let host = 32u32.checked_sub(len)?;
            let mask = u32::MAX.checked_shl(host).unwrap_or(0);
            let bits = address.to_bits();
            Some((
                IpAddr::V4((bits & mask).into()),
                IpAddr::V4((bits | !mask).into()),
            ))
        }
        IpAddr::V6(address) => {
            let host = 128u32.checked_sub(len)?;
            let mask = u128::MAX.checked_shl(host).unwrap_or(0);
            let bits = address.to_bits();
            Some((
                IpAddr::V6((bits & mask).into()),
                IpAddr::V6((bits | !mask).into()),
            ))
        }
    }
}

impl Value for IpAddr {
    const WORD: &'static str = "address";
    const LARGEST: [u128; 2] = [u32::MAX as u128, u128::MAX];

    fn read(text: &str) -> Result<(IpAddr, IpAddr), Reason> {
        let wrong = || Reason::invalid(format!("{} is not an address", quote(text)), ADDRESS);
        let address = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| wrong());
        if let Some((network, len)) = text.split_once('/') {
            // A dotted network mask is converted to a prefix length.
            let network = address(network)?;
            let len = match len.parse::<std::net::Ipv4Addr>() {
                Ok(_) if network.is_ipv6() => return Err(wrong()),
                Ok(mask) if mask.to_bits().leading_ones() + mask.to_bits().trailing_zeros() >= 32 => {
                    mask.to_bits().leading_ones()
                }
                Ok(_) => return Err(wrong()),
                Err(_) => len.parse().map_err(|_| wrong())?,
            };
            return prefix(network, len).ok_or_else(wrong);
        }
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (address(first)?, address(last)?),
            None => (address(text)?, address(text)?),
        };
        (first <= last && first.is_ipv4() == last.is_ipv4())
            .then_some((first, last))
            .ok_or_else(wrong)
    }

    fn print(first: &IpAddr, last: &IpAddr, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if first == last {
            return write!(f, "{first}");
        }
        let bits = if first.is_ipv4() { 32 } else { 128 };
        match (0..bits).find(|len| prefix(*first, *len) == Some((*first, *last))) {
            Some(len) => write!(f, "{first}/{len}"),
            None => write!(f, "{first}-{last}"),
        }
    }

    fn to_space_and_number(self) -> (usize, u128) {
        match self {
            IpAddr::V4(address) => (0, u128::from(address.to_bits())),
            IpAddr::V6(address) => (1, address.to_bits()),
        }
    }
}

impl Value for u16 {
    const WORD: &'static str = "port";
    const LARGEST: [u128; 2] = [u16::MAX as u128, 0];

    fn read(text: &str) -> Result<(u16, u16), Reason> {
        let wrong = || Reason::invalid(format!("{} is not a port", quote(text)), PORT);
        let port = |text: &str, open: u16| match text.trim() {
            "" => Ok(open),
            text => text.parse::<u16>().map_err(|_| wrong()),
        };
        let (first, last) = match text.split_once([':', '-']) {
            Some((first, last)) if !(first.trim().is_empty() && last.trim().is_empty()) => {
                (port(first, 0)?, port(last, u16::MAX)?)
            }
            Some(_) => return Err(wrong()),
            None if text.is_empty() => return Err(wrong()),
            None => (port(text, 0)?, port(text, 0)?),
        };
        (first <= last).then_some((first, last)).ok_or_else(wrong)
    }

    fn print(first: &u16, last: &u16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (first, last) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, &u16::MAX) => write!(f, "{first}:"),
            (0, last) => write!(f, ":{last}"),
            (first, last) => write!(f, "{first}:{last}"),
        }
    }

    fn to_space_and_number(self) -> (usize, u128) {
        (0, u128::from(self))
    }
}

impl<T: Value> Spec<T> {
    /// Parses a set. A list may lack its brackets, as in `10.0.0.0/8,192.0.2.1`.
    ///
    /// # Errors
    /// Returns the text that is not an element, or the limit on lists that is exceeded.
    pub fn parse(text: &str) -> Result<Spec<T>, Reason> {
        let (mut elements, text) = (0, text.trim());
        match parts(text)?.as_slice() {
            [_] => parse(text, 0, &mut elements),
            several => {
                let items = several.iter().map(|part| parse(part, 1, &mut elements));
                items.collect::<Result<_, _>>().map(Spec::List)
            }
        }
    }

    /// Returns true if the set names a variable.
    pub fn has_variable(&self) -> bool {
        match self {
            Spec::Variable(_) => true,
            Spec::Not(inner) => inner.has_variable(),
            Spec::List(items) => items.iter().any(Spec::has_variable),
            Spec::Any | Spec::Range(..) => false,
        }
    }
}

const FORM: &str = "ELEMENT, !ELEMENT or [ELEMENT, ELEMENT…]";

/// Returns the parts of a text between the commas outside of brackets, without the blanks around them.
fn parts(text: &str) -> Result<Vec<&str>, Reason> {
    let (mut items, mut level, mut start) = (Vec::new(), 0usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' => level += 1,
            ']' if level == 0 => return Err(Reason::invalid("a bracket closes that was not opened", FORM)),
            ']' => level -= 1,
            ',' if level == 0 => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(text[start..].trim());
    Ok(items)
}

fn parse<T: Value>(text: &str, depth: usize, elements: &mut usize) -> Result<Spec<T>, Reason> {
    let limit = |unit, limit| Err(Reason::Limit { unit, limit });
    if depth > limits::NESTING {
        return limit("nested lists and negations", limits::NESTING);
    }
    *elements += 1;
    if *elements > limits::LIST_LEN {
        return limit("elements in a list of addresses or ports", limits::LIST_LEN);
    }
    if text.eq_ignore_ascii_case("any") {
        return Ok(Spec::Any);
    }
    if let Some(rest) = text.strip_prefix('!') {
        return Ok(Spec::Not(Box::new(parse(rest.trim(), depth + 1, elements)?)));
    }
    if let Some(name) = text.strip_prefix('$') {
        let is_name = !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        return match is_name {
            true => Ok(Spec::Variable(name.to_owned())),
            false => Err(Reason::invalid(
                format!("{} is not a variable", quote(text)),
                "$ with letters, digits, _ or - after it",
            )),
        };
    }
    let Some(inner) = text.strip_prefix('[') else {
        let (first, last) = T::read(text)?;
        return Ok(Spec::Range(first, last));
    };
    let Some(inner) = inner.strip_suffix(']') else {
        return Err(Reason::invalid(
            format!("{} has no closing bracket", quote(text)),
            FORM,
        ));
    };
    let parts = parts(inner)?;
    let items = parts.into_iter().map(|part| parse(part, depth + 1, elements));
    items.collect::<Result<_, _>>().map(Spec::List)
}

impl<T: Value> fmt::Display for Spec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Any => f.write_str("any"),
            Spec::Range(first, last) => T::print(first, last, f),
            Spec::Variable(name) => write!(f, "${name}"),
            Spec::Not(inner) => write!(f, "!{inner}"),
            Spec::List(items) => {
                f.write_str("[")?;
                for (at, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if at == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_lack_its_brackets() {
        let spec = |text: &str| AddressSpec::parse(text).map(|spec| spec.to_string());
        assert_eq!(
            spec("10.0.0.0/8,![192.0.2.1,192.0.2.2], $NET").as_deref(),
            Ok("[10.0.0.0/8,![192.0.2.1,192.0.2.2],$NET]")
        );
        assert_eq!(
            PortSpec::parse("80,8000:").map(|spec| spec.to_string()),
            Ok("[80,8000:]".to_owned())
        );
        for wrong in [
            "10.0.0.1,",
            ",",
            "10.0.0.1]",
            "[10.0.0.1],[10.0.0.2",
            "10.0.0.1,x",
        ] {
            assert!(spec(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_dotted_mask_belongs_to_ipv4() {
        assert!(<IpAddr as Value>::read("10.0.0.0/255.255.0.0").is_ok());
        assert!(<IpAddr as Value>::read("2001:db8::/255.255.0.0").is_err());
        assert!(<IpAddr as Value>::read("2001:db8::/32").is_ok());
    }
}
