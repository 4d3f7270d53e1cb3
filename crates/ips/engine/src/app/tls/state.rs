//! The messages of a handshake that were seen.

/// The messages of a handshake that were seen, as `ssl_state` asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HandshakeState {
    /// A client hello was seen.
    pub client_hello: bool,
    /// A server hello was seen.
    pub server_hello: bool,
    /// A client key exchange was seen.
    pub client_key_exchange: bool,
    /// A server key exchange was seen.
    pub server_key_exchange: bool,
    /// A message of another kind was seen.
    pub unknown: bool,
}
