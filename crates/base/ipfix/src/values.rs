//! The values of a record, in network order.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The longest value whose length takes one byte (RFC 7011, section 7).
const SHORT_MAX: usize = 254;

/// A record that is being written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Values(Vec<u8>);

macro_rules! integers {
    ($($(#[$doc:meta])+ $name:ident;)*) => {$(
        $(#[$doc])+
        pub fn $name(mut self, value: $name) -> Values {
            self.0.extend_from_slice(&value.to_be_bytes());
            self
        }
    )*};
}

impl Values {
    /// Returns an empty record.
    pub fn new() -> Values {
        Values::default()
    }

    integers! {
        /// Appends a value of one byte.
        u8;
        /// Appends a value of two bytes.
        u16;
        /// Appends a value of four bytes.
        u32;
        /// Appends a value of eight bytes.
        u64;
        /// Appends a float of eight bytes (IEEE 754).
        f64;
    }

    /// Appends a MAC address.
    pub fn mac(mut self, mac: [u8; 6]) -> Values {
        self.0.extend_from_slice(&mac);
        self
    }

    /// Appends an IPv4 address.
    pub fn ipv4(mut self, address: Ipv4Addr) -> Values {
        self.0.extend_from_slice(&address.octets());
        self
    }

    /// Appends an IPv6 address.
    pub fn ipv6(mut self, address: Ipv6Addr) -> Values {
        self.0.extend_from_slice(&address.octets());
        self
    }

    /// Appends a value of variable size, of which at most 65,535 bytes are kept.
    pub fn bytes(mut self, value: &[u8]) -> Values {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        match value.len() {
            size @ 0..=SHORT_MAX => self.0.push(size as u8),
            size => {
                self.0.push(u8::MAX);
                self.0.extend_from_slice(&(size as u16).to_be_bytes());
            }
        }
        self.0.extend_from_slice(value);
        self
    }

    /// Returns the bytes of the record.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
