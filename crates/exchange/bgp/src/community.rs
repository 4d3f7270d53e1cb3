//! Communities: of 32 bits (RFC 1997), extended (RFC 4360) and large (RFC 8092), and the actions of Flowspec.

use core::fmt;

/// BLACKHOLE, "discard traffic to this prefix" (RFC 7999): 65535:666.
pub const BLACKHOLE: u32 = 0xffff_029a;

/// A large community (RFC 8092, section 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LargeCommunity {
    pub global_administrator: u32,
    pub local_data_1: u32,
    pub local_data_2: u32,
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}",
            self.global_administrator, self.local_data_1, self.local_data_2
        )
    }
}

/// An extended community of eight bytes: type, subtype, value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExtendedCommunity(pub [u8; 8]);

impl fmt::Display for ExtendedCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, subtype, value @ ..] = self.0;
        write!(f, "{kind:02x}{subtype:02x}:")?;
        value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A traffic filtering action of a flow specification (RFC 8955, section 7).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TrafficAction {
    /// traffic-rate-bytes: the rate in bytes per second; 0 drops all packets.
    RateBytes(f32),
    /// traffic-rate-packets: the rate in packets per second; 0 drops all packets.
    RatePackets(f32),
    /// traffic-action.
    Action {
        /// True if later rules apply as well.
        continues: bool,
        /// True if packets are to be sampled.
        sample: bool,
    },
    /// Any redirection, to a routing instance or to an address.
    Redirect,
    /// traffic-marking: the DSCP that is written into packets.
    Mark(u8),
}

/// Writes the action with the name of RFC 8955 and its value.
impl fmt::Display for TrafficAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TrafficAction::RateBytes(rate) => write!(f, "traffic-rate-bytes {rate}"),
            TrafficAction::RatePackets(rate) => write!(f, "traffic-rate-packets {rate}"),
            TrafficAction::Action { continues, sample } => {
                let words = [(continues, " continue"), (sample, " sample")];
                let words: String = words
                    .iter()
                    .filter(|(is_set, _)| *is_set)
                    .map(|(_, word)| *word)
                    .collect();
                write!(
                    f,
                    "traffic-action{}",
                    if words.is_empty() { " stop" } else { &words }
                )
            }
            TrafficAction::Redirect => f.write_str("redirect"),
            TrafficAction::Mark(dscp) => write!(f, "traffic-marking {dscp}"),
        }
    }
}

/// The types and subtypes of traffic filtering actions (RFC 8955, section 7).
mod kind {
    pub(super) const TRAFFIC_RATE_BYTES: [u8; 2] = [0x80, 0x06];
    pub(super) const TRAFFIC_ACTION: [u8; 2] = [0x80, 0x07];
    pub(super) const TRAFFIC_MARKING: [u8; 2] = [0x80, 0x09];
    pub(super) const TRAFFIC_RATE_PACKETS: [u8; 2] = [0x80, 0x0c];
    /// rt-redirect with an AS number of two octets, an IPv4 address, or an AS number of four octets.
    pub(super) const RT_REDIRECT: [[u8; 2]; 3] = [[0x80, 0x08], [0x81, 0x08], [0x82, 0x08]];
    /// rt-redirect-ipv6 as its draft had it, in eight bytes.
    pub(super) const RT_REDIRECT_IPV6: [u8; 2] = [0x80, 0x0b];
    /// Redirect to IP (draft-ietf-idr-flowspec-redirect-ip, and draft-simpson-idr-flowspec-redirect before it).
    pub(super) const REDIRECT_IP: [[u8; 2]; 3] = [[0x01, 0x0c], [0x08, 0x0c], [0x08, 0x00]];
}

/// The bits of traffic-action (RFC 8955, section 7.3).
const TERMINAL_ACTION: u8 = 0x01;
const SAMPLE: u8 = 0x02;
/// The mask of a DSCP.
const DSCP: u8 = 0x3f;

impl ExtendedCommunity {
    /// Returns the traffic filtering action that the community encodes; `None` for other communities.
    pub fn traffic_action(self) -> Option<TrafficAction> {
        let [kind, subtype, _, _, value @ ..] = self.0;
        let [.., last] = value;
        let rate = f32::from_be_bytes(value);
        match [kind, subtype] {
            kind::TRAFFIC_RATE_BYTES => Some(TrafficAction::RateBytes(rate)),
            kind::TRAFFIC_RATE_PACKETS => Some(TrafficAction::RatePackets(rate)),
            kind::TRAFFIC_ACTION => Some(TrafficAction::Action {
                continues: last & TERMINAL_ACTION != 0,
                sample: last & SAMPLE != 0,
            }),
            kind::TRAFFIC_MARKING => Some(TrafficAction::Mark(last & DSCP)),
            kind::RT_REDIRECT_IPV6 => Some(TrafficAction::Redirect),
            other if kind::RT_REDIRECT.contains(&other) || kind::REDIRECT_IP.contains(&other) => {
                Some(TrafficAction::Redirect)
            }
            _ => None,
        }
    }

    /// Returns traffic-rate-bytes for a rate in bytes per second.
    pub const fn rate_bytes(rate: f32) -> ExtendedCommunity {
        let [kind, subtype] = kind::TRAFFIC_RATE_BYTES;
        // The AS number, which is informational only, is 0.
        let [a, b, c, d] = rate.to_be_bytes();
        ExtendedCommunity([kind, subtype, 0, 0, a, b, c, d])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_actions_of_rfc_8955_are_known_by_their_types() {
        let action = |bytes| ExtendedCommunity(bytes).traffic_action();
        assert_eq!(
            ExtendedCommunity::rate_bytes(9600.0).traffic_action(),
            Some(TrafficAction::RateBytes(9600.0))
        );
        assert_eq!(
            action([0x80, 7, 0, 0, 0, 0, 0, 3]),
            Some(TrafficAction::Action {
                continues: true,
                sample: true
            })
        );
        assert_eq!(
            action([0x80, 9, 0, 0, 0, 0, 0, 46]),
            Some(TrafficAction::Mark(46))
        );
        assert_eq!(action([0x81, 8, 0, 0, 0, 0, 0, 1]), Some(TrafficAction::Redirect));
        assert_eq!(action([0, 2, 0, 1, 0, 0, 0, 1]), None);
    }
}
