//! A member of a LAG where a worker receives from it: frames of link protocols go to the control side with the number of
//! the member, ahead of policers, rings and tables; other packets pass only while the member collects.

use millrace_pipeline::{Counters, DropReason};
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::Packet;

use crate::events::Events;
use crate::io::Burst;

/// The first five bytes of the group addresses that bridges do not forward (IEEE 802.1Q-2018, table 8-1).
const LINK_LOCAL: [u8; 5] = [0x01, 0x80, 0xc2, 0x00, 0x00];
/// The last byte of the group address of slow protocols (IEEE 802.3-2018, annex 57A.3).
const SLOW_PROTOCOLS: u8 = 0x02;
const SLOW_ETHER_TYPE: [u8; 2] = [0x88, 0x09];
const LLDP_ETHER_TYPE: [u8; 2] = [0x88, 0xcc];
/// Number of frames of link protocols that a worker accepts from a member in [`INTERVAL`]. A partner sends 10 frames of
/// slow protocols a second at most (IEEE 802.3-2018, annex 57A.2), and 16 neighbours send 5 LLDPDUs each.
const PROTOCOL_FRAMES_MAX: u32 = 100;
const INTERVAL: Duration = Duration::from_secs(1);

/// The role of a member in its LAG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LagRole {
    /// The number of the member.
    pub number: PortNo,
    /// True if packets that it receives belong to the LAG.
    pub collects: bool,
    /// True if it sends packets of the LAG.
    pub distributes: bool,
    /// True if the control side takes the LLDPDUs that it receives.
    pub takes_lldp: bool,
}

/// A member of a LAG, at a receive queue.
#[derive(Clone, Debug)]
pub(crate) struct LagMember {
    /// The number of the member.
    pub(crate) number: PortNo,
    collects: bool,
    takes_lldp: bool,
    /// The end of the current interval.
    until: Time,
    /// Number of frames accepted in the current interval.
    accepted: u32,
}

impl LagMember {
    /// Returns a member that does not collect yet.
    pub(crate) fn new(number: PortNo) -> LagMember {
        LagMember {
            number,
            collects: false,
            takes_lldp: false,
            until: Time::ZERO,
            accepted: 0,
        }
    }

    pub(crate) fn set_role(&mut self, role: &LagRole) {
        (self.collects, self.takes_lldp) = (role.collects, role.takes_lldp);
    }

    /// Removes from `burst` what is not for the LAG.
    #[inline]
    pub(crate) fn filter<P: Packet>(
        &mut self,
        burst: &mut Burst<P>,
        events: &Events<P>,
        counters: &Counters,
        now: Time,
    ) {
        let is_link_local = |packet: &P| packet.head().starts_with(&LINK_LOCAL);
        if self.collects && !burst.iter().any(is_link_local) {
            return;
        }
        let mut kept = Burst::new();
        let mut refused = Burst::new();
        for packet in burst.drain(..) {
            if is_link_local(&packet) && self.takes(packet.head()) {
                if !self.admits(now) {
                    counters.drops.add(DropReason::LinkProtocolLimit, 1);
                } else if !events.push_oam(self.number, now, packet) {
                    counters.drops.add(DropReason::OamFull, 1);
                }
            } else if self.collects {
                kept.push(packet);
            } else {
                refused.push(packet);
            }
        }
        if !refused.is_empty() {
            counters
                .drops
                .add(DropReason::LagNotCollecting, refused.len() as u64);
            P::discard(&mut refused);
        }
        *burst = kept;
    }

    /// Returns true if the control side takes the frame, whose destination is a link-local group address.
    fn takes(&self, head: &[u8]) -> bool {
        let ether_type = head.get(12..14);
        let is_slow = head.get(5) == Some(&SLOW_PROTOCOLS) && ether_type == Some(&SLOW_ETHER_TYPE);
        is_slow
            || self.takes_lldp
                && head.get(5).is_some_and(|last| *last < 0x10)
                && ether_type == Some(&LLDP_ETHER_TYPE)
    }

    /// Counts a frame. Returns false if there were too many in the interval.
    fn admits(&mut self, now: Time) -> bool {
        if now >= self.until {
            self.until = now + INTERVAL;
            self.accepted = 0;
        }
        self.accepted += 1;
        self.accepted <= PROTOCOL_FRAMES_MAX
    }
}
