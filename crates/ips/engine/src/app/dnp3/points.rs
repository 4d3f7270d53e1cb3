//! The objects of DNP3 (IEEE 1815-2012, annex A): their sizes, and the values of their points by name.
//!
//! ```text
//!  range 3..5, no prefix     | point 3 | point 4 | point 5 |
//!  count 2, index of 1 byte  | 7 | point 7 | 9 | point 9 |
//! ```

use crate::app::record::{Dnp3Objects, Fields};

/// Largest number of points of a header that are shown.
const POINTS: usize = 1024;
/// Flags that most objects have, from the lowest bit on.
const COMMON: [&str; 5] = ["online", "restart", "comm_lost", "remote_forced", "local_forced"];

/// A part of an object.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// [`COMMON`], and these for the three high bits.
    Flags([&'static str; 3]),
    /// The flags of a double-bit input: its state has the two high bits.
    DoubleBit,
    /// The control code of a relay output block.
    ControlCode,
    /// A status in seven bits, and the name of the high bit.
    Status(&'static str),
    Unsigned(&'static str, usize),
    Signed(&'static str, usize),
    Float32,
    Float64,
    Text(usize),
}

const BINARY: Part = Part::Flags(["chatter_filter", "reserved", "state"]);
const OUTPUT: Part = Part::Flags(["reserved0", "reserved1", "state"]);
const COUNTER: Part = Part::Flags(["rollover", "discontinuity", "reserved0"]);
const ANALOG: Part = Part::Flags(["over_range", "reference_err", "reserved0"]);
/// Milliseconds since 1970, in 48 bits.
const TIME: Part = Part::Unsigned("timestamp", 6);
const COUNT32: Part = Part::Unsigned("count", 4);
const COUNT16: Part = Part::Unsigned("count", 2);
const VALUE32: Part = Part::Signed("value", 4);
const VALUE16: Part = Part::Signed("value", 2);
const CONTROL_STATUS: Part = Part::Unsigned("control_status", 1);

impl Part {
    fn size(self) -> usize {
        match self {
            Part::Flags(_) | Part::DoubleBit | Part::ControlCode | Part::Status(_) => 1,
            Part::Unsigned(_, size) | Part::Signed(_, size) | Part::Text(size) => size,
            Part::Float32 => 4,
            Part::Float64 => 8,
        }
    }

    /// Adds the values of the part, which has as many bytes as [`Part::size`] says.
    fn write(self, bytes: &[u8], out: &mut Fields) {
        let first = bytes.first().copied().unwrap_or_default();
        let bit = |at: usize| first >> at & 1;
        match self {
            Part::Flags(high) => {
                for (at, name) in COMMON.into_iter().chain(high).enumerate() {
                    out.number(name, bit(at));
                }
            }
            Part::DoubleBit => {
                for (at, name) in COMMON.into_iter().chain(["chatter_filter"]).enumerate() {
                    out.number(name, bit(at));
                }
                out.number("state", first >> 6);
            }
            Part::ControlCode => {
                out.number("opcode", first & 0xf)
                    .number("qu", bit(4))
                    .number("cr", bit(5))
                    .number("tcc", first >> 6);
            }
            Part::Status(high) => {
                out.number("status_code", first & 0x7f).number(high, bit(7));
            }
            Part::Unsigned(name, _) => {
                out.number(name, little_endian(bytes));
            }
            Part::Signed(name, size) => {
                let unused = 64 - 8 * size as u32;
                out.signed(name, (little_endian(bytes) << unused).cast_signed() >> unused);
            }
            Part::Float32 => {
                let bits = little_endian(bytes) as u32;
                out.float("value", f32::from_bits(bits).into());
            }
            Part::Float64 => {
                out.float("value", f64::from_bits(little_endian(bytes)));
            }
            Part::Text(_) => {
                out.text("data", bytes);
            }
        }
    }
}

/// The form of an object without its prefix.
#[derive(Debug, Clone)]
enum Form {
    Parts(Vec<Part>),
    /// Objects of this many bits lie side by side.
    Bits(u64),
}

/// Returns a number in bytes with the lowest first, at most eight.
pub(super) fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the form of an object; `None` for one whose size varies, or that the standard does not define.
fn form(group: u8, variation: u8) -> Option<Form> {
    let parts = match (group, variation) {
        (1 | 10 | 80, 1) | (12, 3) => return Some(Form::Bits(1)),
        (3, 1) => return Some(Form::Bits(2)),
        // Classes have no data, and neither has variation 0, which asks for any variation.
        (60, _) | (_, 0) => vec![],
        (1, 2) | (2, 1) => vec![BINARY],
        (2, 2) => vec![BINARY, TIME],
        (2, 3) => vec![BINARY, Part::Unsigned("timestamp", 2)],
        (3, 2) | (4, 1) => vec![Part::DoubleBit],
        (4, 2) => vec![Part::DoubleBit, TIME],
        (4, 3) => vec![Part::DoubleBit, Part::Unsigned("relative_time_ms", 2)],
        (10, 2) | (11, 1) => vec![OUTPUT],
        (11, 2) => vec![OUTPUT, TIME],
        (12, 1 | 2) => vec![
            Part::ControlCode,
            Part::Unsigned("count", 1),
            Part::Unsigned("ontime", 4),
            Part::Unsigned("offtime", 4),
            Part::Status("reserved"),
        ],
        (13, 1) => vec![Part::Status("commanded_state")],
        (13, 2) => vec![Part::Status("commanded_state"), TIME],
        // Counters, and their frozen values: 32 and 16 bits, with flag or without.
        (20..=23, 1 | 3) => vec![COUNTER, COUNT32],
        (20..=23, 2 | 4) => vec![COUNTER, COUNT16],
        (20, 5 | 7) | (21, 9 | 11) => vec![COUNT32],
        (20, 6 | 8) | (21, 10 | 12) => vec![COUNT16],
        (21..=23, 5 | 7) => vec![COUNTER, COUNT32, TIME],
        (21..=23, 6 | 8) => vec![COUNTER, COUNT16, TIME],
        // Analog values: integers of 32 and 16 bits, floating point of 32 and 64.
        (30, 3) | (31, 5) => vec![VALUE32],
        (30, 4) | (31, 6) => vec![VALUE16],
        (30, 5) | (31, 7) => vec![ANALOG, Part::Float32],
        (30, 6) | (31, 8) => vec![ANALOG, Part::Float64],
        (30 | 31, 1) | (32 | 33 | 42, 1) | (40, 1) => vec![ANALOG, VALUE32],
        (30 | 31, 2) | (32 | 33 | 42, 2) | (40, 2) => vec![ANALOG, VALUE16],
        (31, 3) | (32 | 33 | 42, 3) => vec![ANALOG, VALUE32, TIME],
        (31, 4) | (32 | 33 | 42, 4) => vec![ANALOG, VALUE16, TIME],
        (32 | 33 | 42, 5) | (40, 3) => vec![ANALOG, Part::Float32],
        (32 | 33 | 42, 6) | (40, 4) => vec![ANALOG, Part::Float64],
        (32 | 33 | 42, 7) => vec![ANALOG, Part::Float32, TIME],
        (32 | 33 | 42, 8) => vec![ANALOG, Part::Float64, TIME],
        (34, 1) => vec![Part::Unsigned("deadband_value", 2)],
        (34, 2) => vec![Part::Unsigned("deadband_value", 4)],
        (34, 3) => vec![Part::Float32],
        (41, 1) => vec![VALUE32, CONTROL_STATUS],
        (41, 2) => vec![VALUE16, CONTROL_STATUS],
        (41, 3) => vec![Part::Float32, CONTROL_STATUS],
        (41, 4) => vec![Part::Float64, CONTROL_STATUS],
        (43, 1) => vec![Part::Status("reserved"), VALUE32],
        (43, 2) => vec![Part::Status("reserved"), VALUE16],
        (43, 3) => vec![Part::Status("reserved"), VALUE32, TIME],
        (43, 4) => vec![Part::Status("reserved"), VALUE16, TIME],
        (43, 5) => vec![Part::Status("reserved"), Part::Float32],
        (43, 6) => vec![Part::Status("reserved"), Part::Float64],
        (43, 7) => vec![Part::Status("reserved"), Part::Float32, TIME],
        (43, 8) => vec![Part::Status("reserved"), Part::Float64, TIME],
        // Times and delays.
        (50, 1 | 3) | (51, 1 | 2) => vec![TIME],
        (50, 2) => vec![TIME, Part::Unsigned("interval", 4)],
        (50, 4) => vec![
            TIME,
            Part::Unsigned("interval_count", 4),
            Part::Unsigned("interval_units", 1),
        ],
        (52, 1) => vec![Part::Unsigned("delay_secs", 2)],
        (52, 2) => vec![Part::Unsigned("delay_ms", 2)],
        // The variation of a string is its size.
        (110..=113, size) => vec![Part::Text(size.into())],
        _ => return None,
    };
    Some(Form::Parts(parts))
}

/// Returns the size in bytes of the index or of the size that precedes each object of a header; `None` if it is not defined.
pub(super) fn prefix_size(header: &Dnp3Objects) -> Option<usize> {
    Some(match header.qualifier >> 4 & 7 {
        0 => 0,
        1 | 4 => 1,
        2 | 5 => 2,
        3 | 6 => 4,
        _ => return None,
    })
}

/// Returns true if each object has its size before it.
pub(super) fn has_sizes(header: &Dnp3Objects) -> bool {
    header.qualifier >> 4 & 7 >= 4
}

/// Returns the size in bytes of the objects of a header with their indices; `None` if it is not known.
pub(super) fn size(header: &Dnp3Objects) -> Option<u64> {
    let prefix = prefix_size(header)? as u64;
    let count = u64::from(header.count);
    match form(header.group, header.variation)? {
        Form::Parts(parts) => {
            let size: usize = parts.into_iter().map(Part::size).sum();
            count.checked_mul(size as u64 + prefix)
        }
        Form::Bits(bits) if prefix == 0 => Some((count * bits).div_ceil(8)),
        Form::Bits(_) => None,
    }
}

impl Dnp3Objects {
    /// Returns the values of the points, at most 1,024: prefix, index, and what the object has. Empty without data, and for objects
    /// whose form is not known.
    pub fn points(&self) -> Vec<Fields> {
        let (Some(form), Some(width)) = (form(self.group, self.variation), prefix_size(self)) else {
            return Vec::new();
        };
        let point = |prefix: u64, index: u64| {
            let mut fields = Fields::default();
            fields.number("prefix", prefix).number("index", index);
            fields
        };
        let indices = u64::from(self.start)..u64::from(self.start) + u64::from(self.count);
        let indices = indices.take(POINTS);
        match form {
            Form::Parts(_) if has_sizes(self) => Vec::new(),
            Form::Parts(parts) if parts.is_empty() && width == 0 => Vec::new(),
            Form::Parts(parts) => {
                let mut rest = &self.data[..];
                let mut points = Vec::new();
                for index in indices {
                    let Some((prefix, behind)) = rest.split_at_checked(width) else {
                        break;
                    };
                    let prefix_value = little_endian(prefix);
                    let mut fields = point(prefix_value, if width == 0 { index } else { prefix_value });
                    rest = behind;
                    for part in &parts {
                        let Some((bytes, behind)) = rest.split_at_checked(part.size()) else {
                            return points;
                        };
                        part.write(bytes, &mut fields);
                        rest = behind;
                    }
                    points.push(fields);
                }
                points
            }
            Form::Bits(bits) => indices
                .enumerate()
                .map_while(|(at, index)| {
                    let at = at as u64 * bits;
                    let byte = self.data.get((at / 8) as usize)?;
                    let mut fields = point(0, index);
                    fields.number("state", byte >> (at % 8) & ((1 << bits) - 1) as u8);
                    Some(fields)
                })
                .collect(),
        }
    }
}
