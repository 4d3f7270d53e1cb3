//! Policies: what happens to packets that cannot be inspected as they should be.

macro_rules! names {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident $word:literal;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vmeta])* $variant,)*
        }

        impl $name {
            /// Every value.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// Returns the name in settings, counters and events.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            /// Returns the value with a name.
            pub fn by_name(name: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|value| value.name() == name)
            }
        }
    };
}

names! {
    /// The cause for which a packet cannot be inspected as it should be.
    Cause {
        /// The flow table is full of established flows, and a packet begins another flow.
        FlowTable "flow_table";
        /// The memory of stream data is full.
        SegmentMemory "segment_memory";
        /// The memory of fragments is full.
        FragmentMemory "fragment_memory";
        /// The handshake of a TCP connection was not seen.
        Midstream "midstream";
        /// The answer to the SYN of a TCP connection was not seen. The two directions may take different
        /// routes.
        OneSided "one_sided";
        /// A TCP segment does not belong to its connection.
        InvalidTcp "invalid_tcp";
        /// A TCP segment has urgent data, which receivers take out of the stream or leave in it.
        Urgent "urgent";
        /// A parser gave up because the bytes violate the protocol, or a transaction was not inspected because of a
        /// limit.
        ParserError "parser_error";
        /// Recipients read a message in different ways.
        AmbiguousMessage "ambiguous_message";
        /// The memory of parsers is full, and the flow holds most of it.
        ParserMemory "parser_memory";
        /// The evaluation of a rule reached its limit of steps or the limit of a regular expression.
        MatchLimit "match_limit";
        /// A flow begins while the network function is overloaded.
        Overload "overload";
        /// No rules are loaded.
        NoRules "no_rules";
    }
}

names! {
    /// The treatment of a packet for a cause.
    Policy {
        /// The packet is inspected as far as possible.
        Ignore "ignore";
        /// The packet passes, and the next one of the flow is inspected.
        PassPacket "pass-packet";
        /// The packet and all later ones of the flow pass.
        Bypass "bypass";
        /// The packet is dropped.
        DropPacket "drop-packet";
        /// The packet and all later ones of the flow are dropped.
        DropFlow "drop-flow";
        /// The packet and all later ones of the flow are dropped, and both ends get a reset or an ICMP error.
        Reject "reject";
    }
}

/// The policy of each cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policies([Policy; Cause::ALL.len()]);

impl Policies {
    /// Returns the fail-closed policies: nothing passes uninspected. A segment that does not belong to its
    /// connection is dropped alone, because otherwise a forged segment could end the connection. A later
    /// connection with the same endpoints is inspected. New flows are not refused under overload, because
    /// packets beyond the capacity are lost before their inspection.
    pub fn closed() -> Policies {
        Policies([Policy::DropFlow; Cause::ALL.len()])
            .with(Cause::InvalidTcp, Policy::DropPacket)
            .with(Cause::Urgent, Policy::Ignore)
            .with(Cause::Midstream, Policy::DropPacket)
            .with(Cause::OneSided, Policy::DropPacket)
            .with(Cause::SegmentMemory, Policy::DropPacket)
            .with(Cause::Overload, Policy::Ignore)
    }

    /// Returns the fail-open policies: traffic passes, inspected as far as possible. Segments that do not
    /// belong to their connection are dropped, because a receiver would drop them, too.
    pub fn open() -> Policies {
        Policies([Policy::Bypass; Cause::ALL.len()])
            .with(Cause::InvalidTcp, Policy::DropPacket)
            .with(Cause::Urgent, Policy::Ignore)
            .with(Cause::OneSided, Policy::Ignore)
    }

    /// Returns a copy of the policies with `policy` for `cause`.
    #[must_use]
    pub fn with(mut self, cause: Cause, policy: Policy) -> Policies {
        self.0[cause as usize] = policy;
        self
    }

    /// Returns the policy of a cause.
    #[inline]
    pub fn of(&self, cause: Cause) -> Policy {
        self.0[cause as usize]
    }
}

impl Default for Policies {
    fn default() -> Policies {
        Policies::closed()
            .with(Cause::MatchLimit, Policy::Ignore)
            .with(Cause::OneSided, Policy::Ignore)
    }
}

/// The work that is shed under overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overload {
    /// File hashes are not computed, and events other than alerts are not written.
    pub sheds_records: bool,
    /// Large flows without an alert are bypassed, and new flows are inspected to half the depth. Only a
    /// profile that prefers traffic to inspection sets this.
    pub sheds_depth: bool,
    /// New flows are treated by the policy for overload.
    pub limits_flows: bool,
}

impl Overload {
    /// No work is shed.
    pub const NONE: Overload = Overload {
        sheds_records: false,
        sheds_depth: false,
        limits_flows: false,
    };
    /// Only records are shed.
    pub const RECORDS: Overload = Overload {
        sheds_records: true,
        ..Overload::NONE
    };
    /// Records and inspection depth are shed.
    pub const DEPTH: Overload = Overload {
        sheds_depth: true,
        ..Overload::RECORDS
    };
    /// Records are shed, and new flows are limited. Flows that are inspected are inspected completely.
    pub const FLOWS: Overload = Overload {
        limits_flows: true,
        ..Overload::RECORDS
    };
    /// Records and inspection depth are shed, and new flows are limited.
    pub const DEPTH_AND_FLOWS: Overload = Overload {
        limits_flows: true,
        ..Overload::DEPTH
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_the_same() {
        for cause in Cause::ALL {
            assert_eq!(Cause::by_name(cause.name()), Some(*cause));
        }
        for policy in Policy::ALL {
            assert_eq!(Policy::by_name(policy.name()), Some(*policy));
        }
        assert_eq!(Policies::closed().of(Cause::NoRules), Policy::DropFlow);
        assert_eq!(Policies::open().of(Cause::NoRules), Policy::Bypass);
    }
}
