//! The value of `app-layer-protocol`: protocols, and whose they are.

use crate::refusal::Reason;
use crate::text::{list, negation, quote, words};

words! {
    /// The bytes whose protocol a rule asks for.
    ProtocolOf "direction, to_server, to_client, either, final or original" {
        /// Those of the direction of the packet.
        Packet "direction";
        /// Those of the client.
        Client "to_server";
        /// Those of the server.
        Server "to_client";
        /// Those of the client, or those of the server.
        Either "either";
        /// Those that the flow is parsed as.
        Flow "final";
        /// Those before the protocol of the flow changed.
        Original "original";
    }
}

/// A condition on the protocol of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolCondition<'a> {
    /// True if the protocol must be known, and none of them.
    pub is_negated: bool,
    /// The names; one of them is enough. `unknown` stands for a protocol that is not known yet.
    pub names: Vec<&'a str>,
    pub of: ProtocolOf,
    /// True if a protocol does not stand for those that contain it, as `dcerpc` for `smb`.
    pub is_exact: bool,
}

/// The form of the value.
pub(crate) const FORM: &str =
    "[!]PROTOCOL[|PROTOCOL…][,direction|to_server|to_client|either|final|original][,exact]";

impl<'a> ProtocolCondition<'a> {
    /// Reads the value.
    ///
    /// # Errors
    /// The reason, if the value has another form or no flow satisfies it.
    pub fn parse(text: &'a str) -> Result<ProtocolCondition<'a>, Reason> {
        let mut parts = list(text);
        let (is_negated, names) = negation(parts.next().unwrap_or_default());
        let names: Vec<&str> = names.split('|').map(str::trim).collect();
        let is_name = |name: &&str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        };
        if !names.iter().all(is_name) {
            return Err(Reason::invalid(format!("the value {}", quote(text)), FORM));
        }
        let (mut of, mut is_exact) = (None, false);
        for part in parts {
            match part {
                "exact" if !is_exact => is_exact = true,
                _ if of.is_none() => of = Some(ProtocolOf::from_word(part)?),
                _ => return Err(Reason::invalid(format!("{} is one too many", quote(part)), FORM)),
            }
        }
        if is_negated && names.contains(&"unknown") {
            return Err(Reason::invalid(
                "the negation of unknown",
                "unknown, or ! and protocols, which a flow of unknown protocol does not satisfy",
            ));
        }
        if is_exact && names.contains(&"http") {
            return Err(Reason::invalid(
                "http,exact, which no flow is",
                "http1,exact or http2,exact",
            ));
        }
        Ok(ProtocolCondition {
            is_negated,
            names,
            of: of.unwrap_or(ProtocolOf::Packet),
            is_exact,
        })
    }
}
