//! The transport of an application protocol.

/// IP protocol number of TCP.
pub(super) const TCP: u8 = 6;

/// The transport of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Udp,
}
