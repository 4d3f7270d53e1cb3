//! Decisions about packets.

use crate::policy::Cause;

/// The decision of the rules that matched a packet or its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Action {
    /// No rule decided.
    #[default]
    None,
    /// A pass rule matched: detection of this packet ends.
    PassPacket,
    /// A pass rule matched the flow: its packets are not inspected any more.
    PassFlow,
    /// The packet is dropped.
    DropPacket,
    /// The packet and all later packets of the flow are dropped.
    DropFlow,
    /// The packet and all later packets of the flow are dropped, and the source gets a reset or an ICMP error.
    RejectSource,
    /// The packet and all later packets of the flow are dropped, and the destination gets a reset or an ICMP error.
    RejectDestination,
    /// The packet and all later packets of the flow are dropped, and both ends get a reset or an ICMP error.
    RejectBoth,
}

/// The reason why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// A rule matched.
    Rule,
    /// A rule matched so often that a rate filter changed its action.
    RateFilter,
    /// The flow is dropped because of an earlier packet.
    Flow,
    /// The normaliser found an invalid or ambiguous packet.
    Normalizer,
    /// A pool is full.
    Memory,
    /// The packet cannot be inspected as it should be.
    Policy(Cause),
}

/// The decision about a packet, in increasing order of strength. In mode `ids` it is always `Pass`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verdict {
    /// Forward the packet.
    #[default]
    Pass,
    /// Forward the packet with changed bytes.
    Rewritten,
    /// Do not forward the packet.
    Drop(DropReason),
    /// Do not forward the packet, and end the connection towards its source, its destination or both.
    Reject {
        /// True if the source gets a reset or an ICMP error.
        source: bool,
        /// True if the destination gets a reset or an ICMP error.
        destination: bool,
    },
}

impl Verdict {
    /// Returns the action that the decision takes for the packet.
    pub(crate) fn action(self) -> Action {
        match self {
            Verdict::Pass | Verdict::Rewritten => Action::None,
            Verdict::Drop(_) => Action::DropPacket,
            Verdict::Reject { source, destination } => match (source, destination) {
                (true, true) => Action::RejectBoth,
                (false, true) => Action::RejectDestination,
                (true, false) => Action::RejectSource,
                (false, false) => Action::DropPacket,
            },
        }
    }

    /// Returns the decision for a packet that is not forwarded itself: [`Verdict::Rewritten`] becomes
    /// [`Verdict::Pass`].
    pub(crate) fn without_rewriting(self) -> Verdict {
        match self {
            Verdict::Rewritten => Verdict::Pass,
            other => other,
        }
    }
}
