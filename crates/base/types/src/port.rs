//! OpenFlow port numbers (OpenFlow 1.3.5, section 7.2.1).

use core::fmt;
use core::str::FromStr;

/// A 32-bit OpenFlow port number: physical, logical, or one of the reserved ports.
///
/// Ordinary ports are `1..=0xffff_ff00`; zero is no port; the reserved ports are the eight highest
/// numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNo(u32);

impl PortNo {
    /// `OFPP_MAX`: the highest number of an ordinary port.
    pub const MAX: PortNo = PortNo(0xffff_ff00);
    /// `OFPP_IN_PORT`: back out of the ingress port.
    pub const IN_PORT: PortNo = PortNo(0xffff_fff8);
    /// `OFPP_TABLE`: submit to the first table (packet-out only).
    pub const TABLE: PortNo = PortNo(0xffff_fff9);
    /// `OFPP_NORMAL`: forward as an ordinary learning bridge.
    pub const NORMAL: PortNo = PortNo(0xffff_fffa);
    /// `OFPP_FLOOD`: all ports except the ingress port and those with flooding disabled.
    pub const FLOOD: PortNo = PortNo(0xffff_fffb);
    /// `OFPP_ALL`: all ports except the ingress port.
    pub const ALL: PortNo = PortNo(0xffff_fffc);
    /// `OFPP_CONTROLLER`: send to the controllers in a packet-in.
    pub const CONTROLLER: PortNo = PortNo(0xffff_fffd);
    /// `OFPP_LOCAL`: the switch's own network stack.
    pub const LOCAL: PortNo = PortNo(0xffff_fffe);
    /// `OFPP_ANY`: wildcard in requests that delete or count flows.
    pub const ANY: PortNo = PortNo(0xffff_ffff);

    const NAMES: [(PortNo, &'static str); 8] = [
        (PortNo::IN_PORT, "IN_PORT"),
        (PortNo::TABLE, "TABLE"),
        (PortNo::NORMAL, "NORMAL"),
        (PortNo::FLOOD, "FLOOD"),
        (PortNo::ALL, "ALL"),
        (PortNo::CONTROLLER, "CONTROLLER"),
        (PortNo::LOCAL, "LOCAL"),
        (PortNo::ANY, "ANY"),
    ];

    /// Returns the port with this number; every 32-bit value can be in a message.
    #[inline]
    pub const fn from_raw(raw: u32) -> PortNo {
        PortNo(raw)
    }

    /// Returns an ordinary port.
    ///
    /// # Errors
    /// [`PortNoError`] if `raw` is zero or above [`PortNo::MAX`].
    pub const fn ordinary(raw: u32) -> Result<PortNo, PortNoError> {
        if raw == 0 || raw > Self::MAX.0 {
            Err(PortNoError { raw })
        } else {
            Ok(PortNo(raw))
        }
    }

    /// Returns the number as it is in messages.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Returns true if a configured port can have this number.
    #[inline]
    pub const fn is_ordinary(self) -> bool {
        self.0 != 0 && self.0 <= Self::MAX.0
    }

    /// Returns true for the reserved ports of the specification.
    #[inline]
    pub const fn is_reserved(self) -> bool {
        self.0 >= Self::IN_PORT.0
    }
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(port, _)| port == self) {
            Some((_, name)) => f.pad(name),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl fmt::Debug for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for a number that no ordinary port can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortNoError {
    /// The rejected number.
    pub raw: u32,
}

impl fmt::Display for PortNoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not a port number: expected 1 to {}",
            self.raw,
            PortNo::MAX.0
        )
    }
}

impl core::error::Error for PortNoError {}

impl FromStr for PortNo {
    type Err = String;

    /// Parses a decimal or `0x` number, or the name of a reserved port in any case.
    fn from_str(text: &str) -> Result<PortNo, String> {
        if let Some((port, _)) = Self::NAMES
            .iter()
            .find(|(_, name)| name.eq_ignore_ascii_case(text))
        {
            return Ok(*port);
        }
        let number = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => text.parse(),
        };
        number.map(PortNo).map_err(|_| {
            format!("`{text}` is not a port: expected a number or one of IN_PORT, TABLE, NORMAL, FLOOD, ALL, CONTROLLER, LOCAL, ANY")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ports_print_and_parse_by_name() {
        for (port, name) in PortNo::NAMES {
            assert_eq!(port.to_string(), name);
            assert_eq!(name.to_lowercase().parse(), Ok(port));
            assert!(port.is_reserved() && !port.is_ordinary());
        }
    }

    #[test]
    fn ordinary_ports_are_one_to_max() {
        assert!(PortNo::ordinary(0).is_err());
        assert!(PortNo::ordinary(1).is_ok());
        assert!(PortNo::ordinary(0xffff_ff00).is_ok());
        assert!(PortNo::ordinary(0xffff_ff01).is_err());
    }
}
