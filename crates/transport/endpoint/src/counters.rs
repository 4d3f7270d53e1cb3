//! The counters of an endpoint, and its reasons for dropping frames.

/// The reason why a frame was dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum DropReason {
    /// A header is truncated, or a field has an invalid value.
    Malformed,
    /// The frame is for another MAC address, VLAN or IP address.
    NotForUs,
    /// The EtherType or IP protocol is not supported.
    Protocol,
    /// A checksum is wrong.
    Checksum,
    /// The packet is a fragment.
    Fragment,
    /// The source address is none that a host may send from.
    Source,
    /// No port is bound.
    Port,
    /// A message of neighbour discovery was forwarded by a router, or breaks another rule of RFC 4861.
    Discovery,
    /// An ICMP error quotes a packet that was not sent, or makes no sense for it.
    Quotation,
    /// A rate limit was reached.
    RateLimit,
    /// The frame needs no action: an echo reply, or a reply without a request.
    Unused,
    /// The queue of frames to be sent is full.
    QueueFull,
}

impl DropReason {
    /// All reasons, by index.
    pub const ALL: [DropReason; 12] = [
        DropReason::Malformed,
        DropReason::NotForUs,
        DropReason::Protocol,
        DropReason::Checksum,
        DropReason::Fragment,
        DropReason::Source,
        DropReason::Port,
        DropReason::Discovery,
        DropReason::Quotation,
        DropReason::RateLimit,
        DropReason::Unused,
        DropReason::QueueFull,
    ];

    /// Returns the name of the reason's counter.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Malformed => "malformed",
            DropReason::NotForUs => "not_for_us",
            DropReason::Protocol => "protocol",
            DropReason::Checksum => "checksum",
            DropReason::Fragment => "fragment",
            DropReason::Source => "source",
            DropReason::Port => "port",
            DropReason::Discovery => "discovery",
            DropReason::Quotation => "quotation",
            DropReason::RateLimit => "rate_limit",
            DropReason::Unused => "unused",
            DropReason::QueueFull => "queue_full",
        }
    }
}

/// Numbers of frames and datagrams of an endpoint, with a counter for each drop reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames that were received.
    pub received: u64,
    /// Datagrams among them for a bound port.
    pub datagrams: u64,
    /// Datagrams that were sent, or that wait for the neighbour's MAC address.
    pub sent: u64,
    /// Datagrams that were not sent: the writer had no room, the neighbour did not answer, or newer ones
    /// replaced them.
    pub unsent: u64,
    /// Dropped frames by reason.
    drops: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Returns the number of frames that were dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter_and_a_name_of_its_own() {
        let mut counters = Counters::default();
        for (at, reason) in DropReason::ALL.into_iter().enumerate() {
            (0..=at).for_each(|_| counters.drop(reason));
        }
        for (at, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(counters.dropped(reason), at as u64 + 1, "{}", reason.name());
            assert!(
                DropReason::ALL[..at]
                    .iter()
                    .all(|other| other.name() != reason.name())
            );
        }
    }
}
