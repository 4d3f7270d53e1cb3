//! The reasons why a receiver drops a datagram.

/// The reason why a datagram was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Discard {
    /// The datagram is not a packet of this protocol, or belongs to another connection.
    Malformed,
    /// The MAC is not the sender's.
    Mac,
    /// The packet number arrived before, or is too old for the replay window.
    Replay,
    /// The AEAD tag does not match.
    Forged,
    /// The bytes are not within one extent of the session.
    Address,
    /// The bytes exceed the credit of the sender.
    Credit,
    /// Too many extents or groups are in progress, or too many ranges of an extent.
    Extents,
}

impl Discard {
    /// All reasons.
    pub const ALL: [Discard; 7] = [
        Discard::Malformed,
        Discard::Mac,
        Discard::Replay,
        Discard::Forged,
        Discard::Address,
        Discard::Credit,
        Discard::Extents,
    ];

    /// Returns the name of the counter.
    pub fn name(self) -> &'static str {
        match self {
            Discard::Malformed => "malformed",
            Discard::Mac => "mac",
            Discard::Replay => "replay",
            Discard::Forged => "forged",
            Discard::Address => "address",
            Discard::Credit => "credit",
            Discard::Extents => "extents",
        }
    }
}
