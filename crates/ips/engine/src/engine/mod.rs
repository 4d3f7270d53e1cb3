//! The path of one packet through the engine.

mod decided;
mod evidence;
mod exceptions;
mod flows;
mod inspect;
mod memory;
mod transport;

use millrace_types::Time;

use crate::app::Expectations;
use crate::app::ranges::RangedFiles;
use crate::defragment::{DefragmentCounters, Defragmenter, Outcome, Refused};
use crate::detect::{self, Detector, Inspection, Ruleset};
use crate::event::{Event, Events, FlowEnd, PacketSource, Subject, Tunnel};
use crate::flow::{Direction, Flow, FlowCounters, FlowIndex, FlowTable, FlowVerdict, Tuple};
use crate::hash::Seed;
use crate::history;
use crate::packet::events::{self, PacketEvents};
use crate::packet::tunnel;
use crate::packet::{
    Context, IpHeaderLocation, IpVersion, LinkType, Packet, Undecoded, find_arp, find_ip_header,
};
use crate::policy::{Cause, Overload};
use crate::settings::{Mode, Settings};
use crate::tcp::TcpSettings;
use crate::tcp::normalize::TcpCounters;
use crate::verdict::{Action, DropReason, Verdict};
use decided::{Decided, rejection};

/// The slots that one search for an idle flow covers, and the maximum number of flows that one call of
/// [`Engine::expire_some`] ends.
const EXPIRY_SCAN: usize = 1024;
const EXPIRED_AT_ONCE: usize = 64;

/// The reserved share of a pool, for memory that ended flows leave to later ones, and for TCP data in order: one part
/// in this many.
const SPARE_PART: usize = 8;

/// The share of the pool of parsers for files that come in ranges: one part in this many.
const RANGED_FILES_PART: usize = 8;

/// Number of buffers of ended streams that are kept for new streams, and the size limit of each in bytes.
const BUFFERS: usize = 1024;
const BUFFER_SIZE: usize = 16 << 10;

/// A frame as it arrives.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The bytes, which the normaliser may change in mode `ips`.
    pub bytes: &'a mut [u8],
    /// The link layer.
    pub link: LinkType,
    /// Time of arrival.
    pub time: Time,
    /// Number of the frame, from 1.
    pub number: u64,
}

/// Counters of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub frames: u64,
    /// Packets that were decoded: one for each IP header.
    pub packets: u64,
    /// Frames and packets that were not decoded because they carry something other than IP.
    pub not_ip: u64,
    /// Frames and packets with invalid headers.
    pub invalid: u64,
    /// Packets that mode `ips` dropped because of a low TTL, a source route, or TCP in a fragment.
    pub refused: u64,
    /// Frames that were dropped.
    pub dropped: u64,
    /// Frames that were changed.
    pub rewritten: u64,
    /// Packets that were dropped because a rule or a policy had dropped their flow.
    pub dropped_flow: u64,
    /// Flows whose parser was given up because the memory of parsers was full.
    pub parsers_given_up: u64,
    /// Packets that policies decided about, in the order of [`Cause::ALL`].
    pub exceptions: [u64; Cause::ALL.len()],
    pub tcp: TcpCounters,
}

/// One lane of intrusion prevention.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    tcp: TcpSettings,
    detector: Detector,
    expectations: Expectations,
    /// Files that come in ranges, over several connections.
    ranged_files: RangedFiles,
    defragmenter: Defragmenter,
    flows: FlowTable,
    counters: Counters,
    /// Memory of all TCP streams in bytes.
    segment_bytes: usize,
    /// Memory of the parsers and the detection of all flows in bytes.
    parser_bytes: usize,
    /// Buffers of ended streams, for new streams, and their memory in bytes.
    buffers: Vec<Vec<u8>>,
    buffer_bytes: usize,
    overload: Overload,
    /// The flow of the last frame, and the decision about its later packets.
    settled: Option<(FlowIndex, FlowVerdict)>,
}

impl Engine {
    /// Returns an engine without flows. `seed` keys the hash of the flow table.
    pub fn new(settings: Settings, seed: [u64; 2]) -> Engine {
        Engine {
            tcp: settings.tcp(),
            detector: Detector::new(settings.detect, settings.mode),
            expectations: Expectations::new(Seed(seed)),
            ranged_files: RangedFiles::new(settings.parser_bytes / RANGED_FILES_PART, Seed(seed)),
            defragmenter: Defragmenter::new(settings.defragment(), Seed(seed)),
            flows: FlowTable::new(
                settings.flows,
                settings.parser_bytes / SPARE_PART,
                settings.timeouts,
                Seed(seed),
                settings.first_flow,
            ),
            counters: Counters::default(),
            segment_bytes: 0,
            parser_bytes: 0,
            buffers: Vec::with_capacity(BUFFERS),
            buffer_bytes: 0,
            overload: Overload::NONE,
            settled: None,
            settings,
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the counters of defragmentation.
    pub fn defragment_counters(&self) -> &DefragmentCounters {
        &self.defragmenter.counters
    }

    /// Returns the counters of the flow table.
    pub fn flow_counters(&self) -> &FlowCounters {
        &self.flows.counters
    }

    /// Returns the detector, for traces and profiles.
    pub fn detector(&mut self) -> &mut Detector {
        &mut self.detector
    }

    /// Returns the counters of detection.
    pub fn detect_counters(&self) -> detect::Counters {
        self.detector.counters()
    }

    /// Returns the number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the memory of streams and fragments in bytes.
    pub fn memory(&self) -> usize {
        self.segment_bytes + self.defragmenter.memory()
    }

    /// Returns the memory of parsers and detection in bytes.
    pub fn parser_memory(&self) -> usize {
        self.parser_bytes + self.ranged_files.size()
    }

    /// Inspects a frame and returns the decision about it.
    pub fn frame(&mut self, rules: &Ruleset, frame: Frame<'_>, out: &mut Events) -> Verdict {
        let Frame {
            bytes,
            link,
            time,
            number,
        } = frame;
        self.counters.frames += 1;
        self.settled = None;
        if let Some(flow) = self.flows.expire(time, self.settings.idle_search) {
            self.end(rules, flow, time, FlowEnd::Timeout, out);
        }
        let context = Context {
            number,
            time,
            tunnel_depth: 0,
            is_reassembled: false,
            reassemblies: 0,
            is_tunnel: false,
            compares_checksums: self.settings.checks_checksums,
            events: PacketEvents::NONE,
        };
        let first = out.list.len();
        let found = find_ip_header(link, bytes);
        let context = match self.notes_packet_events(rules) {
            true => Context {
                events: events::of_link(link, bytes, found.err()),
                ..context
            },
            false => context,
        };
        let verdict = match found {
            Ok(network) => self.packet(rules, bytes, network, context, out),
            Err(reason) => {
                let packet = Packet {
                    number: context.number,
                    time: context.time,
                    tunnel_depth: context.tunnel_depth,
                    events: context.events,
                    is_pseudo: false,
                    ..Packet::EMPTY
                };
                let decided = self.inspect_undecoded(rules, &packet, out);
                self.report_arp(context, link, bytes, out);
                decided.max(self.undecoded(reason))
            }
        };
        match verdict {
            Verdict::Pass => {}
            Verdict::Rewritten => self.counters.rewritten += 1,
            Verdict::Drop(_) | Verdict::Reject { .. } => {
                self.counters.dropped += 1;
                history::decide_alerts(&mut out.list[first..], number, verdict);
            }
        }
        verdict
    }

    /// Ends the flows that are idle at `now`, each with a last inspection.
    pub fn expire(&mut self, rules: &Ruleset, now: Time, out: &mut Events) {
        while let Some(flow) = self.flows.expire(now, self.settings.flows) {
            self.end(rules, flow, now, FlowEnd::Timeout, out);
        }
    }

    /// Ends some of the flows that are idle at `now`. Each frame does the same; this is for times without frames.
    pub fn expire_some(&mut self, rules: &Ruleset, now: Time, out: &mut Events) {
        for _ in 0..EXPIRED_AT_ONCE {
            match self.flows.expire(now, EXPIRY_SCAN) {
                Some(flow) => self.end(rules, flow, now, FlowEnd::Timeout, out),
                None => return,
            }
        }
    }

    /// Ends all flows, each with a last inspection, and forgets all state of the capture.
    pub fn finish(&mut self, rules: &Ruleset, out: &mut Events) {
        for flow in self.flows.drain() {
            let now = flow.last;
            self.end(rules, flow, now, FlowEnd::Shutdown, out);
        }
        self.defragmenter.clear();
        self.detector.clear();
        self.expectations.clear();
        self.ranged_files.clear();
    }

    /// Counts a frame or packet that is not decoded.
    fn undecoded(&mut self, reason: Undecoded) -> Verdict {
        match reason {
            Undecoded::UnknownLink | Undecoded::NotIp => {
                self.counters.not_ip += 1;
                Verdict::Pass
            }
            Undecoded::TruncatedLink
            | Undecoded::TooDeep
            | Undecoded::InvalidIp
            | Undecoded::InvalidTransport => {
                self.counters.invalid += 1;
                self.inline(Verdict::Drop(DropReason::Normalizer))
            }
        }
    }

    /// Returns `verdict` in mode `ips`, and [`Verdict::Pass`] in mode `ids`.
    fn inline(&self, verdict: Verdict) -> Verdict {
        match self.settings.mode {
            Mode::Ips => verdict,
            Mode::Ids => Verdict::Pass,
        }
    }

    /// Inspects a packet of a frame, and the packets inside it.
    fn packet(
        &mut self,
        rules: &Ruleset,
        bytes: &mut [u8],
        network: IpHeaderLocation,
        context: Context,
        out: &mut Events,
    ) -> Verdict {
        let mut packet = Packet::EMPTY;
        let context = match self.notes_packet_events(rules) {
            true => with_events(context, bytes, network),
            false => context,
        };
        if let Err(reason) = packet.read(bytes, network, context) {
            // The headers that were read are there, so that rules may ask for the protocol, and for addresses.
            let decided = self.inspect_undecoded(rules, &packet, out);
            return decided.max(self.undecoded(reason));
        }
        self.counters.packets += 1;
        if self.settings.mode == Mode::Ips && self.is_refused(&packet) {
            self.counters.refused += 1;
            return Verdict::Drop(DropReason::Normalizer);
        }
        let can_descend = context.tunnel_depth < self.settings.tunnel_depth;
        let inside = match can_descend {
            true => tunnel::inside(bytes, &packet, &self.settings.tunnels),
            false => None,
        };
        packet.is_tunnel = inside.is_some();
        let is_untracked = !rules.untracked.is_empty() && self.detector.untracks(rules, &packet);
        let decided = match Tuple::of(&packet).filter(|_| !is_untracked) {
            Some((tuple, is_quoted)) => self.in_flow(rules, &mut packet, tuple, is_quoted, out),
            None => Decided::Verdict(self.without_flow(rules, &packet, out)),
        };
        let mut verdict = match decided {
            Decided::Verdict(verdict) => verdict,
            // The normaliser changes only TCP segments, which are not fragments and carry no inner packet.
            Decided::Changed(changed) => {
                return self.in_flow_changed(rules, bytes, network, context, *changed, out);
            }
        };
        if !can_descend {
            return verdict;
        }
        if packet.is_fragment {
            // A reassembled IPv6 packet may be a fragment again: fragment headers nest without an encapsulation.
            if context.reassemblies >= self.settings.tunnel_depth {
                return verdict.max(self.undecoded(Undecoded::TooDeep));
            }
            // Receivers discard a fragment with a wrong header checksum (RFC 1122, section 3.2.1.2).
            let is_checked = self.settings.mode == Mode::Ips && self.settings.checks_checksums;
            if is_checked && !packet.ip_checksum_is_right() {
                return verdict.max(self.undecoded(Undecoded::InvalidIp));
            }
            let (vlans, link_size) = (network.vlans, network.offset);
            let overlaps = self.defragmenter.counters.overlaps;
            let outcome = self.defragmenter.add(&packet);
            let mut whole = match outcome {
                Outcome::Waiting => {
                    let has_overlap = self.defragmenter.counters.overlaps != overlaps;
                    let decided = self.inspect_fragment(rules, &packet, has_overlap, out);
                    return verdict.max(decided);
                }
                Outcome::Whole(whole) => whole.to_vec(),
                Outcome::Refused(Refused::Memory) => {
                    let decided = self.exception(Cause::FragmentMemory, &packet, None, out);
                    return verdict.max(decided.unwrap_or_default());
                }
                Outcome::Refused(refused) => {
                    let decided = self.inspect_fragment(rules, &packet, refused == Refused::Overlap, out);
                    let verdict = verdict.max(decided);
                    return verdict.max(self.inline(Verdict::Drop(DropReason::Normalizer)));
                }
            };
            let context = Context {
                is_reassembled: true,
                reassemblies: context.reassemblies + 1,
                is_tunnel: false,
                events: match self.defragmenter.counters.overlaps != overlaps {
                    true => overlap_of(&packet),
                    false => PacketEvents::NONE,
                },
                ..context
            };
            let network = IpHeaderLocation {
                offset: 0,
                version: None,
                vlans,
            };
            let first = out.list.len();
            let inner = self.packet(rules, &mut whole, network, context, out);
            if self.settings.evidence {
                // A packet of a tunnel has no link header of its own.
                let link_size = if context.tunnel_depth == 0 { link_size } else { 0 };
                evidence::add_packet(
                    &mut out.list[first..],
                    context.number,
                    &bytes[..link_size],
                    &whole,
                );
            }
            // The other fragments are forwarded already; without the last one the receiver cannot assemble the packet.
            if matches!(inner, Verdict::Drop(_) | Verdict::Reject { .. }) {
                self.defragmenter.refuse(&packet);
            }
            return verdict.max(inner.without_rewriting());
        }
        if let Some(inner) = inside {
            let inner_context = Context {
                tunnel_depth: context.tunnel_depth + 1,
                is_tunnel: false,
                events: PacketEvents::NONE,
                ..context
            };
            let (first, outer) = (out.list.len(), Tunnel::of(&packet));
            let decided = self.packet(rules, bytes, inner, inner_context, out);
            history::wrap_events(&mut out.list[first..], context.number, outer);
            if decided == Verdict::Rewritten {
                tunnel::correct_checksum(bytes, network, context);
            }
            verdict = verdict.max(decided);
        }
        verdict
    }

    /// Returns true if mode `ips` drops a packet because of its IP header.
    fn is_refused(&self, packet: &Packet<'_>) -> bool {
        packet.ip.ttl < self.settings.minimum_ttl
            || self.settings.drops_tcp_fragments && packet.is_tcp_fragment()
            || self.settings.drops_source_routes && packet.has_source_route()
    }

    /// Evaluates the rules over events on a frame or packet that is not decoded.
    fn inspect_undecoded(&mut self, rules: &Ruleset, packet: &Packet<'_>, out: &mut Events) -> Verdict {
        if packet.events.is_empty() {
            return Verdict::Pass;
        }
        self.report_events(packet, 0, out);
        self.inspect_events(rules, packet, None, out)
    }

    /// Evaluates the rules over events on a fragment that overlaps another.
    fn inspect_fragment(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        has_overlap: bool,
        out: &mut Events,
    ) -> Verdict {
        if !has_overlap || !self.notes_packet_events(rules) {
            return Verdict::Pass;
        }
        let packet = Packet {
            events: overlap_of(packet),
            ..*packet
        };
        self.report_events(&packet, 0, out);
        self.inspect_events(rules, &packet, None, out)
    }

    /// Returns true if the events of packets are of interest: to rules, or for records.
    fn notes_packet_events(&self, rules: &Ruleset) -> bool {
        rules.has_packet_events() || self.settings.packet_events
    }

    /// Reports the events of a packet, if they become records.
    fn report_events(&self, packet: &Packet<'_>, flow: u64, out: &mut Events) {
        if self.settings.packet_events && self.keeps_records() && !packet.events.is_empty() {
            let subject = history::subject_of(packet, flow);
            out.push(Event::Packet(subject, packet.events));
        }
    }

    /// Reports the packet of ARP in a frame without IP, if such packets become records.
    fn report_arp(&self, context: Context, link: LinkType, bytes: &[u8], out: &mut Events) {
        if !self.settings.arp || !self.keeps_records() {
            return;
        }
        if let Some((arp, vlans)) = find_arp(link, bytes) {
            let subject = Subject {
                packet: context.number,
                time: context.time,
                flow: 0,
                src: arp.sender.into(),
                dst: arp.target.into(),
                ports: None,
                protocol: 0,
                icmp: None,
                vlans,
                source: PacketSource::Frame,
            };
            out.push(Event::Arp(subject, arp));
        }
    }

    /// Evaluates only the rules over events.
    pub(super) fn inspect_events(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        flow: Option<(&mut Flow, Direction)>,
        out: &mut Events,
    ) -> Verdict {
        if packet.events.is_empty() {
            return Verdict::Pass;
        }
        let (flow, direction) = match flow {
            Some((flow, direction)) => (Some(flow), direction),
            None => (None, Direction::ToServer),
        };
        let inspection = Inspection {
            packet,
            flow,
            direction,
            has_stream_data: false,
            stream: None,
            now: packet.time,
        };
        match self.detector.inspect_events(rules, inspection, out) {
            Action::None | Action::PassPacket | Action::PassFlow => Verdict::Pass,
            action => self.inline(rejection(action, self.detector.drop_reason())),
        }
    }

    /// Inspects a packet that belongs to no flow.
    fn without_flow(&mut self, rules: &Ruleset, packet: &Packet<'_>, out: &mut Events) -> Verdict {
        self.report_events(packet, 0, out);
        let inspection = Inspection {
            packet,
            flow: None,
            direction: Direction::ToServer,
            has_stream_data: false,
            stream: None,
            now: packet.time,
        };
        match self.detector.inspect(rules, inspection, out) {
            Action::None | Action::PassPacket | Action::PassFlow => Verdict::Pass,
            action => self.inline(rejection(action, self.detector.drop_reason())),
        }
    }
}

/// Adds the events of a packet's headers to its context.
#[cold]
fn with_events(context: Context, bytes: &[u8], network: IpHeaderLocation) -> Context {
    let bytes = bytes.get(network.offset..).unwrap_or_default();
    let mut events = context.events;
    events.add(match network.version {
        Some(version) => events::of_ip_version(bytes, version == IpVersion::V6),
        None => events::of_ip(bytes),
    });
    Context { events, ..context }
}

/// Returns the event of a fragment that overlaps another.
fn overlap_of(packet: &Packet<'_>) -> PacketEvents {
    let mut events = PacketEvents::NONE;
    events.decode(match packet.ip.version {
        IpVersion::V4 => "ipv4.frag_overlap",
        IpVersion::V6 => "ipv6.frag_overlap",
    });
    events
}
