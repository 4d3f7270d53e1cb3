//! The keyword `modbus` of Suricata: unit, function, and the addresses and values that a request reads or writes.
//!
//! Addresses are those of the protocol data unit, from 0 (Modbus Application Protocol V1.1b3, section 4.4).

/// The parts of a Modbus message that rules test.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) unit: u8,
    pub(super) function: u8,
    /// The bytes after the function code.
    pub(super) data: &'a [u8],
}

/// The coils or registers that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access<'a> {
    is_write: bool,
    table: &'static str,
    first: u16,
    count: u16,
    /// The values that are written.
    values: Values<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values<'a> {
    None,
    One(u16),
    /// One bit for each coil; the first coil is the lowest bit.
    Bits(&'a [u8]),
    /// Two bytes for each register.
    Registers(&'a [u8]),
}

impl Values<'_> {
    /// Returns the number of values.
    fn len(self) -> usize {
        match self {
            Values::None => 0,
            Values::One(_) => 1,
            Values::Bits(bytes) => 8 * bytes.len(),
            Values::Registers(bytes) => bytes.len() / 2,
        }
    }

    fn at(self, index: usize) -> Option<u16> {
        match self {
            Values::None => None,
            Values::One(value) => (index == 0).then_some(value),
            Values::Bits(bytes) => bytes
                .get(index / 8)
                .map(|byte| u16::from(byte >> (index % 8) & 1)),
            Values::Registers(bytes) => {
                let pair = bytes.get(2 * index..2 * index + 2)?;
                Some(u16::from_be_bytes([pair[0], pair[1]]))
            }
        }
    }
}

fn word(data: &[u8], at: usize) -> Option<u16> {
    let pair = data.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

impl<'a> Message<'a> {
    /// Returns the accesses of the request (Modbus Application Protocol V1.1b3, section 6); function 23 reads
    /// and writes.
    fn accesses(&self) -> impl Iterator<Item = Access<'a>> {
        let data = self.data;
        let read = |table, at: usize| {
            Some(Access {
                is_write: false,
                table,
                first: word(data, at)?,
                count: word(data, at + 2)?,
                values: Values::None,
            })
        };
        let write = |table, at: usize, count: Option<u16>, values| {
            Some(Access {
                is_write: true,
                table,
                first: word(data, at)?,
                count: count?,
                values,
            })
        };
        let rest = |at: usize| data.get(at..).unwrap_or_default();
        let both = match self.function {
            1 => [read("coils", 0), None],
            2 => [read("discretes", 0), None],
            3 => [read("holding", 0), None],
            4 => [read("input", 0), None],
            // A coil is switched on by 0xff00.
            5 => [
                write(
                    "coils",
                    0,
                    Some(1),
                    Values::One(u16::from(word(data, 2) == Some(0xff00))),
                ),
                None,
            ],
            6 => [
                write(
                    "holding",
                    0,
                    Some(1),
                    word(data, 2).map_or(Values::None, Values::One),
                ),
                None,
            ],
            15 => [write("coils", 0, word(data, 2), Values::Bits(rest(5))), None],
            16 => [
                write("holding", 0, word(data, 2), Values::Registers(rest(5))),
                None,
            ],
            22 => [write("holding", 0, Some(1), Values::None), None],
            23 => [
                read("holding", 0),
                write("holding", 4, word(data, 6), Values::Registers(rest(9))),
            ],
            _ => [None, None],
        };
        both.into_iter().flatten()
    }
}

/// Returns the first and the last number of a range: `N`, `<N`, `>N` or `A<>B`.
fn bounds(range: &str) -> Option<(u16, u16)> {
    let parse = |text: &str| text.trim().parse::<u16>().ok();
    if let Some((low, high)) = range.split_once("<>") {
        return Some((parse(low)?.checked_add(1)?, parse(high)?.checked_sub(1)?));
    }
    match (range.strip_prefix('<'), range.strip_prefix('>')) {
        (Some(bound), _) => Some((0, parse(bound)?.checked_sub(1)?)),
        (_, Some(bound)) => Some((parse(bound)?.checked_add(1)?, u16::MAX)),
        _ => parse(range).map(|number| (number, number)),
    }
}

/// Returns true if a number is in a range.
fn is_in(range: &str, number: u16) -> bool {
    bounds(range).is_some_and(|(first, last)| (first..=last).contains(&number))
}

impl Access<'_> {
    /// Returns true if an address in a range is accessed, and a value in a range is written there. The cost
    /// grows with the number of values in the message, not with the number of addresses.
    fn holds(&self, address: Option<&str>, written: Option<&str>) -> bool {
        // The indexes of the accessed addresses. Addresses beyond the last one are treated as the last one.
        let (mut first, mut end) = (0, usize::from(self.count));
        if let Some(address) = address {
            let Some((low, high)) = bounds(address).filter(|(_, high)| *high >= self.first) else {
                return false;
            };
            first = usize::from(low.saturating_sub(self.first));
            if high < u16::MAX {
                end = end.min(usize::from(high - self.first) + 1);
            }
        }
        let Some(written) = written else {
            return first < end;
        };
        let mut values = (first..end.min(self.values.len())).filter_map(|index| self.values.at(index));
        bounds(written).is_some_and(|(low, high)| values.any(|value| (low..=high).contains(&value)))
    }
}

/// Returns true if a function is of a category (Modbus Application Protocol V1.1b3, section 4.1), or has the
/// number.
fn is_function(name: &str, function: u8) -> bool {
    let is_assigned = matches!(function, 1..=8 | 11 | 12 | 15..=17 | 20..=24 | 43);
    let is_reserved = matches!(function, 9 | 10 | 13 | 14 | 41 | 42 | 90 | 91 | 125..=127);
    let is_user = matches!(function, 65..=72 | 100..=110);
    let is_public = matches!(function, 1..=127) && !is_user && !is_reserved;
    match name {
        "all" => true,
        "assigned" => is_assigned,
        "unassigned" => is_public && !is_assigned,
        "public" => is_public,
        "user" => is_user,
        "reserved" => is_reserved,
        number => number.parse() == Ok(function),
    }
}

/// Returns true if a message satisfies the value of the keyword; the compiler has checked the form of the
/// value.
pub(super) fn holds(value: &str, message: Message<'_>) -> bool {
    let mut access: Option<(&str, Option<&str>)> = None;
    let (mut address, mut written) = (None, None);
    for part in value.split(',') {
        let mut words = part.split_whitespace();
        let (Some(key), Some(first)) = (words.next(), words.next()) else {
            return false;
        };
        let is_true = match key {
            "unit" => is_in(first, message.unit.into()),
            "function" => match first.strip_prefix('!') {
                Some(name) => !is_function(name, message.function),
                None => is_function(first, message.function),
            },
            // The first word of a diagnostic is its sub-function (Modbus Application Protocol V1.1b3, section
            // 6.8).
            "subfunction" => word(message.data, 0).is_some_and(|number| first.parse() == Ok(number)),
            "access" => {
                access = Some((first, words.next()));
                true
            }
            "address" => {
                address = Some(first);
                true
            }
            "value" => {
                written = Some(first);
                true
            }
            _ => false,
        };
        if !is_true {
            return false;
        }
    }
    let Some((kind, table)) = access else {
        return true;
    };
    message.accesses().any(|access| {
        let is_asked =
            access.is_write == (kind == "write") && table.is_none_or(|table| table == access.table);
        is_asked && access.holds(address, written)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_is_compared_with_the_request() {
        let message = |function, data: &'static [u8]| Message {
            unit: 7,
            function,
            data,
        };
        let read_holding = message(3, b"\x00\x6b\x00\x03");
        let write_coils = message(15, b"\x00\x13\x00\x0a\x02\xcd\x01");
        let write_register = message(6, b"\x00\x01\x00\x03");
        let diagnostic = message(8, b"\x00\x04\x00\x00");
        let both = message(23, b"\x00\x03\x00\x06\x00\x0e\x00\x01\x02\x00\xff");
        for (value, message, expected) in [
            ("function 3", read_holding, true),
            ("function !3", read_holding, false),
            ("function public", read_holding, true),
            ("function user", read_holding, false),
            ("function 8,subfunction 4", diagnostic, true),
            ("function 8,subfunction 5", diagnostic, false),
            ("unit 7", read_holding, true),
            ("unit >7", read_holding, false),
            ("unit 7,function 6", write_register, true),
            ("access read", read_holding, true),
            ("access write", read_holding, false),
            ("access read holding", read_holding, true),
            ("access read input", read_holding, false),
            ("access read holding,address 109", read_holding, true),
            ("access read holding,address 110", read_holding, false),
            ("access read holding,address 100<>108", read_holding, true),
            ("access write holding,address 1,value 3", write_register, true),
            ("access write holding,address 1,value >3", write_register, false),
            // Coils 19, 21, 22, 25, 26 and 27 are switched on.
            ("access write coils,address 20,value 1", write_coils, false),
            ("access write coils,address 20,value 0", write_coils, true),
            ("access write coils,address 27,value 1", write_coils, true),
            ("access read holding,address 8", both, true),
            ("access write holding,address 14,value 255", both, true),
        ] {
            assert_eq!(holds(value, message), expected, "{value}");
        }
    }

    /// Compares one index after the other.
    fn holds_slowly(access: &Access<'_>, address: Option<&str>, written: Option<&str>) -> bool {
        (0..access.count).any(|index| {
            let is_at = |range| is_in(range, access.first.saturating_add(index));
            let has_value = |range| {
                let value = access.values.at(usize::from(index));
                value.is_some_and(|value| is_in(range, value))
            };
            address.is_none_or(is_at) && written.is_none_or(has_value)
        })
    }

    #[test]
    fn ranges_are_compared_as_one_address_after_the_other_would_be() {
        let ranges = [
            None,
            Some("0"),
            Some("<3"),
            Some("<0"),
            Some(">65533"),
            Some(">65535"),
            Some("1<>4"),
            Some("3<>4"),
            Some("65535"),
        ];
        let values = [
            Values::None,
            Values::One(3),
            Values::Bits(&[0x20, 0x01]),
            Values::Registers(&[0, 2, 0, 3, 0xff, 0xff, 0]),
        ];
        for (first, count) in [
            (0, 0),
            (0, 1),
            (0, 20),
            (2, 3),
            (3, 65535),
            (65530, 20),
            (65535, 1),
        ] {
            for values in values {
                let access = Access {
                    is_write: true,
                    table: "coils",
                    first,
                    count,
                    values,
                };
                for address in ranges {
                    for written in ranges {
                        let expected = holds_slowly(&access, address, written);
                        let found = access.holds(address, written);
                        assert_eq!(found, expected, "{access:?} {address:?} {written:?}");
                    }
                }
            }
        }
    }
}
