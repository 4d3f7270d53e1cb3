//! The flows that a function shuns: the lane treats their packets without a call of the function.
//!
//! A flow has one entry for both directions, and an entry is found by the whole flow id, not by a hash alone.

use core::hash::{Hash, Hasher};

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_nf::flow::{Endpoint, FlowId, FlowPacket, flag};
use millrace_nf::table::Table;
use millrace_nf::{Buffer, Kind, Shun, ShunAction, ShunnedFlow};
use millrace_types::{Duration, Time};
use millrace_wire::{Fragment, IpProto};

/// Sets of the table that one tick scans for idle flows. A table of 65,536 flows is scanned in 6.4 s.
const SETS_PER_TICK: usize = 256;

/// Offset of the first tag control information in a frame.
const TAGS: usize = 14;
/// The bits of the VLAN identifier in a tag control information (IEEE 802.1Q-2018, section 9.6).
const VLAN_ID: u16 = 0xfff;
/// A bit that distinguishes a tag with identifier 0 from no tag.
const TAGGED: u16 = 0x1000;

#[derive(Clone, Copy, Debug)]
struct Entry {
    action: ShunAction,
    /// The flow is forgotten after this time without a packet.
    idle: Duration,
    /// The number of packets that a process must have returned before packets of the flow may bypass it.
    since: u64,
    /// The number of shared values that the function had before this one.
    epoch: u32,
    packets: u64,
    bytes: u64,
}

impl Entry {
    fn ended(self, key: Key) -> ShunnedFlow {
        ShunnedFlow {
            flow: key.flow,
            vlans: key.tags.map(|tag| tag & VLAN_ID),
            action: self.action,
            packets: self.packets,
            bytes: self.bytes,
        }
    }
}

/// The key of a flow, which is the same for both directions. The VLAN tags are part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    flow: FlowId,
    /// The two outermost tags, from the outermost on.
    tags: [u16; 2],
}

impl Hash for Key {
    /// Hashes the flow and the two VLAN identifiers, 12 bits each.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [outer, inner] = self.tags.map(|tag| u32::from(tag & VLAN_ID));
        self.flow.hash_with(outer | inner << 12, state);
    }
}

impl Key {
    /// Returns the key of a packet, and true if the packet opens a TCP connection. `None` for packets that the function always
    /// gets: packets that are not IP, fragments, and packets with more than two tags.
    #[inline]
    fn of(packet: &dyn Buffer) -> Option<(Key, bool)> {
        let head = packet.head();
        match Key::of_plain(head, packet.len()) {
            Some(found) => Some(found),
            None => Key::of_any(packet),
        }
    }

    /// Returns the same as [`Key::of_any`] for TCP and UDP over IPv4 without tags, IP options and fragmentation; `None`
    /// for other packets.
    #[inline]
    fn of_plain(head: &[u8], size: usize) -> Option<(Key, bool)> {
        const IP: usize = 14;
        const L4: usize = IP + 20;
        const FRAGMENT: u16 = 0x3fff;
        let head = head.first_chunk::<{ L4 + 20 }>()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let total = usize::from(word(IP + 2));
        let (proto, is_tcp) = (head[IP + 9], head[IP + 9] == IpProto::TCP.0);
        let is_plain = word(12) == 0x0800
            && head[IP] == 0x45
            && word(IP + 6) & FRAGMENT == 0
            && match IpProto(proto) {
                IpProto::TCP => head[L4 + 12] >> 4 >= 5 && total >= 20 + usize::from(head[L4 + 12] >> 4) * 4,
                IpProto::UDP => total >= 28 && usize::from(word(L4 + 4)) == total - 20,
                _ => false,
            }
            && IP + total <= size;
        if !is_plain {
            return None;
        }
        let end = |address: usize, port: usize| {
            let mut mapped = [0; 16];
            (mapped[10], mapped[11]) = (0xff, 0xff);
            mapped[12..].copy_from_slice(&head[address..address + 4]);
            Endpoint {
                address: mapped,
                port: word(port),
            }
        };
        let order = |address: usize, port: usize| {
            let [a, b, c, d] = [
                head[address],
                head[address + 1],
                head[address + 2],
                head[address + 3],
            ];
            u64::from(u32::from_be_bytes([a, b, c, d])) << 16 | u64::from(word(port))
        };
        let (mut source, mut destination) = (end(IP + 12, L4), end(IP + 16, L4 + 2));
        if order(IP + 12, L4) > order(IP + 16, L4 + 2) {
            core::mem::swap(&mut source, &mut destination);
        }
        let flow = FlowId {
            source,
            destination,
            proto,
        };
        let is_opening = is_tcp && head[L4 + 13] & (flag::SYN | flag::ACK) == flag::SYN;
        Some((Key { flow, tags: [0; 2] }, is_opening))
    }

    /// Returns the key of any packet, and true if the packet opens a TCP connection.
    fn of_any(packet: &dyn Buffer) -> Option<(Key, bool)> {
        // The function gets all fragments of a packet. Only the first one has ports: if it bypassed the function, the
        // function could not reassemble the packet.
        let found = FlowPacket::of(packet).filter(|found| found.layers.fragment() == Fragment::Whole)?;
        let (flow, _) = found.id.canonical();
        let mut tags = [0; 2];
        let len = found.layers.vlan_count();
        if len > tags.len() {
            return None;
        }
        for (at, tag) in tags.iter_mut().enumerate().take(len) {
            let tci = packet.head().get(TAGS + 4 * at..)?.first_chunk()?;
            *tag = u16::from_be_bytes(*tci) & VLAN_ID | TAGGED;
        }
        let is_opening = found.is_tcp() && found.tcp_flags & (flag::SYN | flag::ACK) == flag::SYN;
        Some((Key { flow, tags }, is_opening))
    }
}

/// The shunned flows of one function. All memory is allocated when it is created.
#[derive(Debug)]
pub(crate) struct ShunnedFlows {
    flows: Table<Key, Entry>,
    /// The number of shared values that the function had before this one.
    epoch: u32,
}

impl ShunnedFlows {
    /// Returns a table for a function of a kind, or `None` if it shuns no flows.
    pub(crate) fn of_kind(kind: &Kind, seed: u64) -> Option<Box<ShunnedFlows>> {
        (kind.shuns != 0).then(|| Box::new(ShunnedFlows::new(kind.shuns, seed)))
    }

    /// Returns a table for `capacity` flows, whose hash function has a secret seed.
    pub(crate) fn new(capacity: usize, seed: u64) -> ShunnedFlows {
        ShunnedFlows {
            flows: Table::new(capacity, seed),
            epoch: 0,
        }
    }

    /// Notes that the function has another shared value, which may not pass what the old one passed: the function gets the
    /// next packet of each flow that passes. Flows that are dropped stay dropped.
    pub(crate) fn renew(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Returns the number of flows.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns the treatment of a packet of a shunned flow, and counts the packet; `None` for packets that
    /// the function gets. The returned number is the number of packets that a process must have returned before this
    /// packet may bypass the process. A TCP packet that opens a connection ends the old flow, which `ended` receives, and so
    /// does a packet of a flow that passed by an older shared value.
    #[inline]
    pub(crate) fn action(
        &mut self,
        packet: &dyn Buffer,
        now: Time,
        ended: &mut ArrayVec<ShunnedFlow, BURST>,
    ) -> Option<(ShunAction, u64)> {
        let (key, is_opening) = Key::of(packet)?;
        let entry = self.flows.get(&key, now)?;
        if is_opening || entry.action == ShunAction::Pass && entry.epoch != self.epoch {
            let entry = *entry;
            // One packet of the burst ends one flow at most, so there is room.
            let _has_room = ended.try_push(entry.ended(key));
            self.flows.remove(&key);
            return None;
        }
        entry.packets += 1;
        entry.bytes += packet.len() as u64;
        Some((entry.action, entry.since))
    }

    /// Adds the flow of a packet, or changes its treatment. The least recently used flow of a full set is replaced. `since` is
    /// the number of packets that the function's process was given so far; 0 for a function in the worker.
    #[cold]
    pub(crate) fn add(
        &mut self,
        packet: &dyn Buffer,
        shun: &Shun,
        (now, since): (Time, u64),
        ended: &mut ArrayVec<ShunnedFlow, BURST>,
    ) {
        let Some((key, _)) = Key::of(packet) else {
            return;
        };
        if let Some(entry) = self.flows.get(&key, now) {
            (entry.action, entry.idle, entry.since) = (shun.action, shun.idle, since);
            entry.epoch = self.epoch;
            return;
        }
        let entry = Entry {
            action: shun.action,
            idle: shun.idle,
            since,
            epoch: self.epoch,
            packets: 0,
            bytes: 0,
        };
        if let Ok(Some((evicted, old))) = self.flows.insert(key, entry, now, |_, _| true) {
            let _has_room = ended.try_push(old.ended(evicted));
        }
    }

    /// Forgets flows that were idle for too long, and passes them to `ended`.
    pub(crate) fn sweep(&mut self, now: Time, mut ended: impl FnMut(ShunnedFlow)) {
        self.flows.sweep(
            SETS_PER_TICK,
            |entry, used| now.since(used) >= entry.idle,
            |key, entry| ended(entry.ended(key)),
        );
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame, tcp};

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    fn segment(ports: (u16, u16), flags: u8) -> Frame {
        let builder = Builder::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let repr = tcp::Repr {
            src: ports.0,
            dst: ports.1,
            seq: 0,
            ack: 0,
            flags: flags.into(),
            window: 0,
            urgent: 0,
            options: tcp::Options::default(),
        };
        let bytes = builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(repr).build();
        Frame::new(&bytes)
    }

    fn shun(action: ShunAction) -> Shun {
        Shun {
            packet: 0,
            action,
            idle: IDLE,
        }
    }

    #[test]
    fn a_new_connection_ends_the_old_flow_and_goes_to_the_function() {
        let (mut flows, mut ended) = (ShunnedFlows::new(16, 7), ArrayVec::new());
        let data = segment((1000, 80), flag::ACK);
        flows.add(&data, &shun(ShunAction::Drop), (Time::ZERO, 0), &mut ended);
        for at in 1..=3 {
            let action = flows.action(&data, Time::from_secs(at), &mut ended);
            assert_eq!(action, Some((ShunAction::Drop, 0)));
        }
        let answer = segment((1000, 80), flag::SYN | flag::ACK);
        assert_eq!(
            flows.action(&answer, Time::from_secs(4), &mut ended),
            Some((ShunAction::Drop, 0))
        );
        let open = segment((1000, 80), flag::SYN);
        assert_eq!(flows.action(&open, Time::from_secs(5), &mut ended), None);
        assert_eq!(flows.len(), 0);
        let counters = ended.pop().map(|flow| (flow.action, flow.packets));
        assert_eq!(counters, Some((ShunAction::Drop, 4)));
    }

    #[test]
    fn another_shared_value_ends_the_flows_that_pass_and_no_others() {
        let (mut flows, mut ended) = (ShunnedFlows::new(16, 7), ArrayVec::new());
        let (passed, dropped) = (segment((1000, 80), flag::ACK), segment((1001, 80), flag::ACK));
        flows.add(&passed, &shun(ShunAction::Pass), (Time::ZERO, 0), &mut ended);
        flows.add(&dropped, &shun(ShunAction::Drop), (Time::ZERO, 0), &mut ended);
        flows.renew();
        let now = Time::from_secs(1);
        assert_eq!(flows.action(&passed, now, &mut ended), None);
        assert_eq!(ended.len(), 1);
        assert_eq!(
            flows.action(&dropped, now, &mut ended),
            Some((ShunAction::Drop, 0))
        );
        flows.add(&passed, &shun(ShunAction::Pass), (now, 0), &mut ended);
        assert_eq!(
            flows.action(&passed, now, &mut ended),
            Some((ShunAction::Pass, 0))
        );
    }

    #[test]
    fn the_short_way_to_a_key_leads_to_the_same_key() {
        let builder = || Builder::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for flags in [flag::SYN, flag::SYN | flag::ACK, flag::ACK, flag::RST] {
            for ports in [(1000, 80), (80, 1000)] {
                frames.push(segment(ports, flags).bytes().to_vec());
            }
        }
        for ends in [([10, 0, 0, 1], [10, 0, 0, 2]), ([200, 0, 0, 9], [10, 0, 0, 2])] {
            frames.push(
                builder()
                    .ipv4(ends.0, ends.1)
                    .udp(53, 5353)
                    .payload(&[7; 40])
                    .build(),
            );
        }
        let mut plain = 0;
        // Each bit of the headers is inverted in turn: `of_plain` returns `None`, or the same as `of_any`.
        for bytes in frames {
            for at in 0..=8 * 54 {
                let mut bytes = bytes.clone();
                if at < 8 * 54 {
                    bytes[at / 8] ^= 1 << (at % 8);
                }
                let frame = Frame::new(&bytes);
                if let Some(found) = Key::of_plain(&bytes, bytes.len()) {
                    assert_eq!(Some(found), Key::of_any(&frame), "bit {at} of {bytes:?}");
                    plain += 1;
                }
            }
        }
        assert!(plain > 3000, "{plain}");
    }

    #[test]
    fn a_flow_with_another_vlan_tag_is_another_flow() {
        let (mut flows, mut ended) = (ShunnedFlows::new(16, 7), ArrayVec::new());
        let tagged = |id: u8| {
            let mut bytes = segment((1000, 80), flag::ACK).bytes().to_vec();
            bytes.splice(12..12, [0x81, 0, 0, id]);
            Frame::new(&bytes)
        };
        flows.add(&tagged(5), &shun(ShunAction::Pass), (Time::ZERO, 0), &mut ended);
        assert!(flows.action(&tagged(5), Time::ZERO, &mut ended).is_some());
        for other in [tagged(0), tagged(6), segment((1000, 80), flag::ACK)] {
            assert_eq!(flows.action(&other, Time::ZERO, &mut ended), None);
        }
        let mut vlans = None;
        flows.sweep(Time::ZERO + IDLE, |flow| vlans = Some(flow.vlans));
        assert_eq!(vlans, Some([5, 0]));
    }

    #[test]
    fn the_function_gets_all_fragments_of_a_packet() {
        let (mut flows, mut ended) = (ShunnedFlows::new(16, 7), ArrayVec::new());
        let whole = segment((1000, 80), flag::ACK);
        flows.add(&whole, &shun(ShunAction::Pass), (Time::ZERO, 0), &mut ended);
        assert!(flows.action(&whole, Time::ZERO, &mut ended).is_some());
        // The flags and the offset of the fragment: the first one, and the last one.
        for field in [[0x20, 0], [0, 3]] {
            let mut bytes = whole.bytes().to_vec();
            bytes[20..22].copy_from_slice(&field);
            assert_eq!(flows.action(&Frame::new(&bytes), Time::ZERO, &mut ended), None);
        }
    }

    #[test]
    fn a_flow_is_forgotten_after_its_own_idle_time() {
        let (mut flows, mut ended) = (ShunnedFlows::new(16, 7), ArrayVec::new());
        let data = segment((1000, 80), flag::ACK);
        flows.add(&data, &shun(ShunAction::Pass), (Time::ZERO, 0), &mut ended);
        assert!(flows.action(&data, Time::from_secs(5), &mut ended).is_some());
        let mut swept = 0;
        flows.sweep(Time::from_secs(14), |_| swept += 1);
        assert_eq!((swept, flows.len()), (0, 1));
        flows.sweep(Time::from_secs(15), |_| swept += 1);
        assert_eq!((swept, flows.len()), (1, 0));
        assert_eq!(flows.action(&data, Time::from_secs(15), &mut ended), None);
    }

    #[test]
    fn a_full_table_replaces_the_least_recently_used_flow_of_a_set() {
        let (mut flows, mut ended) = (ShunnedFlows::new(8, 7), ArrayVec::new());
        for port in 0..9 {
            let packet = segment((1000 + port, 80), flag::ACK);
            flows.add(
                &packet,
                &shun(ShunAction::Pass),
                (Time::from_secs(port.into()), 0),
                &mut ended,
            );
        }
        assert_eq!(flows.len(), 8);
        assert_eq!(ended.len(), 1);
        let first = segment((1000, 80), flag::ACK);
        assert_eq!(flows.action(&first, Time::from_secs(9), &mut ended), None);
    }
}
