//! The reasons for which a rule has no synthesised flow.

use core::fmt;

use millrace_ips_engine::app::AppProtocol;
use millrace_ips_rules::buffers::Buffer;

/// The reason for which a rule has no flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    Buffer(Buffer),
    Payload,
    Hash,
    Name,
    Address,
    Protocol(Option<AppProtocol>),
    Option(&'static str),
    State,
    Silent,
    NotBroken,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Buffer(buffer) => write!(f, "no bytes for the conditions on {buffer:?}"),
            Failure::Payload => write!(f, "no bytes for the conditions on the payload"),
            Failure::Hash => write!(f, "the rule asks for a hash of which no origin is known"),
            Failure::Name => write!(f, "the bytes are no name that the protocol can carry"),
            Failure::Address => write!(f, "no IPv4 address or port for the header"),
            Failure::Protocol(app) => write!(f, "no messages are made for protocol {app:?}"),
            Failure::Option(keyword) => write!(f, "option {keyword}"),
            Failure::State => write!(f, "no rule makes the state that the rule asks for"),
            Failure::Silent => write!(f, "a flow was made, and the rule does not fire"),
            Failure::NotBroken => write!(f, "the rule fires, and no condition could be broken"),
        }
    }
}
