//! The order of one packet through the engine.

use millrace_types::Time;
use millrace_wire::IpProto;

use crate::app::Expectations;
use crate::defragment::{DefragmentCounters, Defragmenter, Outcome};
use crate::detect::{Detector, Inspection, Ruleset};
use crate::event::{Events, FlowEnd};
use crate::flow::{Direction, Flow, FlowCounters, FlowIndex, FlowState, FlowTable, FlowVerdict, Tuple};
use crate::hash::Seed;
use crate::history;
use crate::packet::tunnel;
use crate::packet::{Context, LinkType, Network, Packet, Undecoded, network};
use crate::settings::{Mode, Settings};
use crate::tcp::normalize::{Edits, Place, TcpCounters};
use crate::tcp::{Session, TcpProblem, TcpSettings};
use crate::verdict::{Action, DropReason, Verdict};

/// Slots of the flow table that are searched for idle flows with each frame.
const EXPIRY_BUDGET: usize = 16;

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
    /// Frames.
    pub frames: u64,
    /// Packets that were decoded: one for each IP header.
    pub packets: u64,
    /// Frames and packets that were not decoded because they carry something other than IP.
    pub not_ip: u64,
    /// Frames and packets with invalid headers.
    pub invalid: u64,
    /// Packets in line with a low TTL or a source route.
    pub refused: u64,
    /// Frames that were dropped.
    pub dropped: u64,
    /// Frames that were changed.
    pub rewritten: u64,
    /// Packets that were dropped because a rule dropped their flow before.
    pub dropped_flow: u64,
    /// TCP.
    pub tcp: TcpCounters,
}

/// One lane of intrusion prevention.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    tcp: TcpSettings,
    detector: Detector,
    expectations: Expectations,
    defragmenter: Defragmenter,
    flows: FlowTable,
    counters: Counters,
    /// Memory of all TCP streams in bytes.
    segment_bytes: usize,
}

impl Engine {
    /// Returns an engine without flows. `seed` keys the hash of the flow table.
    pub fn new(settings: Settings, seed: [u64; 2]) -> Engine {
        Engine {
            tcp: settings.tcp(),
            detector: Detector::new(settings.detect),
            expectations: Expectations::default(),
            defragmenter: Defragmenter::new(settings.defragment(), Seed(seed)),
            flows: FlowTable::new(settings.flows, settings.timeouts, Seed(seed)),
            counters: Counters::default(),
            segment_bytes: 0,
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

    /// Returns the number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the memory of streams and fragments in bytes.
    pub fn memory(&self) -> usize {
        self.segment_bytes + self.defragmenter.memory()
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
        if let Some(flow) = self.flows.expire(time, EXPIRY_BUDGET) {
            self.end(rules, flow, time, FlowEnd::Timeout, out);
        }
        let context = Context {
            number,
            time,
            tunnel_depth: 0,
            is_reassembled: false,
            is_tunnel: false,
        };
        let verdict = match network(link, bytes) {
            Ok(network) => self.packet(rules, bytes, network, context, out),
            Err(reason) => self.undecoded(reason),
        };
        match verdict {
            Verdict::Pass => {}
            Verdict::Rewritten => self.counters.rewritten += 1,
            Verdict::Drop(_) | Verdict::Reject { .. } => self.counters.dropped += 1,
        }
        verdict
    }

    /// Ends the flows that are idle at `now`, each with a last inspection.
    pub fn expire(&mut self, rules: &Ruleset, now: Time, out: &mut Events) {
        while let Some(flow) = self.flows.expire(now, self.settings.flows) {
            self.end(rules, flow, now, FlowEnd::Timeout, out);
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

    /// Returns `verdict` in mode `ips`; beside the path nothing is dropped.
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
        network: Network,
        context: Context,
        out: &mut Events,
    ) -> Verdict {
        let packet = match Packet::decode(bytes, network, context) {
            Ok(packet) => packet,
            Err(reason) => return self.undecoded(reason),
        };
        self.counters.packets += 1;
        if self.settings.mode == Mode::Ips && self.is_refused(&packet) {
            self.counters.refused += 1;
            return Verdict::Drop(DropReason::Normalizer);
        }
        let (is_fragment, vlans) = (packet.is_fragment, network.vlans);
        let can_descend = context.tunnel_depth < self.settings.tunnel_depth;
        let context = Context {
            is_tunnel: can_descend && tunnel::inside(bytes, &packet, &self.settings.tunnels).is_some(),
            ..context
        };
        let mut verdict = match Tuple::of(&packet) {
            Some((tuple, is_quoted)) => self.in_flow(rules, bytes, network, context, tuple, is_quoted, out),
            None => self.without_flow(rules, &packet, out),
        };
        let Ok(packet) = Packet::decode(bytes, network, context) else {
            return verdict;
        };
        if context.tunnel_depth >= self.settings.tunnel_depth {
            return verdict;
        }
        if is_fragment {
            let mut whole = match self.defragmenter.add(&packet) {
                Outcome::Waiting => return verdict,
                Outcome::Whole(whole) => whole.to_vec(),
                Outcome::Refused(_) => {
                    return verdict.max(self.inline(Verdict::Drop(DropReason::Normalizer)));
                }
            };
            let context = Context {
                is_reassembled: true,
                is_tunnel: false,
                ..context
            };
            let network = Network {
                offset: 0,
                version: None,
                vlans,
            };
            let inner = self.packet(rules, &mut whole, network, context, out);
            // The fragments went before; dropping the last one is enough.
            return verdict.max(inner.without_rewriting());
        }
        if let Some(network) = tunnel::inside(bytes, &packet, &self.settings.tunnels) {
            let context = Context {
                tunnel_depth: context.tunnel_depth + 1,
                is_tunnel: false,
                ..context
            };
            verdict = verdict.max(self.packet(rules, bytes, network, context, out));
        }
        verdict
    }

    /// Returns true if a packet is dropped in line because of its IP header.
    fn is_refused(&self, packet: &Packet<'_>) -> bool {
        packet.ip.ttl < self.settings.minimum_ttl
            || self.settings.drops_source_routes && packet.has_source_route()
    }

    /// Inspects a packet that belongs to no flow.
    fn without_flow(&mut self, rules: &Ruleset, packet: &Packet<'_>, out: &mut Events) -> Verdict {
        let inspection = Inspection {
            packet,
            flow: None,
            direction: Direction::ToServer,
            stream: None,
            now: packet.time,
        };
        match self.detector.inspect(rules, inspection, out) {
            Action::None | Action::PassPacket | Action::PassFlow => Verdict::Pass,
            action => self.inline(rejection(action)),
        }
    }

    /// Inspects a packet of a flow.
    #[expect(
        clippy::too_many_arguments,
        reason = "the bytes are decoded again after a change"
    )]
    fn in_flow(
        &mut self,
        rules: &Ruleset,
        bytes: &mut [u8],
        network: Network,
        context: Context,
        tuple: Tuple,
        is_quoted: bool,
        out: &mut Events,
    ) -> Verdict {
        let Ok(packet) = Packet::decode(bytes, network, context) else {
            return Verdict::Pass;
        };
        let Some((index, mut flow)) = self.flow_of(rules, &packet, &tuple, is_quoted, out) else {
            return self.without_flow(rules, &packet, out);
        };
        let mut is_from_client = tuple.is_from_client(&flow.key) != is_quoted;
        if !is_from_client && flow.tcp.is_none() && packet.tcp.is_some_and(|tcp| tcp.is_syn()) {
            // The other end's packets came first without a handshake; the client is the end that sends the SYN.
            flow.turn();
            is_from_client = true;
        }
        let direction = if is_from_client {
            Direction::ToServer
        } else {
            Direction::ToClient
        };
        flow.last = packet.time;
        let counters = &mut flow.counters[direction.index()];
        counters.packets += 1;
        counters.bytes += packet.ip.bytes.len() as u64;
        // What follows the packet after which data are encrypted is not inspected.
        let is_encrypted = flow.app.is_encrypted;
        let packet = Packet {
            is_encrypted,
            ..packet
        };
        let verdict = match flow.verdict {
            FlowVerdict::Drop => {
                self.counters.dropped_flow += 1;
                self.inline(Verdict::Drop(DropReason::Flow))
            }
            FlowVerdict::Pass | FlowVerdict::Bypass => Verdict::Pass,
            FlowVerdict::None if is_quoted => self.inspect(rules, &packet, &mut flow, direction, out),
            FlowVerdict::None => match self.transport(&packet, &mut flow, direction) {
                Err(problem) => {
                    let drops = self.tcp.normalizer.drops(problem);
                    if drops && self.settings.mode == Mode::Ips {
                        Verdict::Drop(DropReason::Normalizer)
                    } else {
                        self.inspect(rules, &packet, &mut flow, direction, out)
                    }
                }
                Ok(None) => self.inspect(rules, &packet, &mut flow, direction, out),
                Ok(Some((edits, place))) => {
                    edits.apply(&place, bytes);
                    match Packet::decode(bytes, network, context) {
                        Ok(packet) => {
                            let packet = Packet {
                                is_encrypted,
                                ..packet
                            };
                            let verdict = self.inspect(rules, &packet, &mut flow, direction, out);
                            verdict.max(Verdict::Rewritten)
                        }
                        Err(reason) => self.undecoded(reason),
                    }
                }
            },
        };
        if self.settings.records
            && let Ok(packet) = Packet::decode(bytes, network, context)
        {
            history::report_drop(&flow, &packet, verdict, out);
        }
        self.flows.put(index, flow);
        verdict
    }

    /// Returns the flow of a packet, taken out of the table; a new one if it has none yet. A packet that only quotes
    /// another one begins no flow.
    fn flow_of(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        tuple: &Tuple,
        is_quoted: bool,
        out: &mut Events,
    ) -> Option<(FlowIndex, Box<Flow>)> {
        if let Some(index) = self.flows.find(tuple)
            && let Some(flow) = self.flows.take(index)
        {
            let is_syn = packet.tcp.is_some_and(|tcp| tcp.is_syn());
            let is_over = self.flows.is_idle(&flow, packet.time)
                || is_syn
                    && !is_quoted
                    && flow.state == FlowState::Closed
                    && flow.verdict != FlowVerdict::Drop;
            if !is_over {
                return Some((index, flow));
            }
            self.flows.remove(index);
            self.end(rules, flow, packet.time, FlowEnd::Timeout, out);
        }
        if is_quoted {
            return None;
        }
        let (index, evicted) = self.flows.insert(tuple, packet.time);
        if let Some(flow) = evicted {
            self.end(rules, flow, packet.time, FlowEnd::Evicted, out);
        }
        let mut flow = self.flows.take(index)?;
        flow.app.settings = match self.settings.mode {
            Mode::Ids => self.settings.app,
            Mode::Ips => self.settings.app.inline(),
        };
        Some((index, flow))
    }

    /// Applies a packet to the transport of its flow, and passes data that became inspectable to the parser. Returns the
    /// changes that the normaliser asks for.
    fn transport(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow,
        direction: Direction,
    ) -> Result<Option<(Edits, Place)>, TcpProblem> {
        let Some(tcp) = &packet.tcp else {
            if flow.is_two_way() {
                flow.state = FlowState::Established;
                flow.was_established = true;
            }
            if packet.protocol == IpProto::UDP.0 && !packet.payload.is_empty() && !packet.is_tunnel {
                flow.app.datagram(&flow.key, direction, packet.payload);
            }
            return Ok(None);
        };
        let counters = &mut self.counters.tcp;
        if flow.tcp.is_none() {
            let Some(session) = Session::begin(tcp, &self.tcp) else {
                counters.problems[TcpProblem::Midstream as usize] += 1;
                return Err(TcpProblem::Midstream);
            };
            counters.sessions += 1;
            flow.tcp = Some(Box::new(session));
        }
        let Some(session) = &mut flow.tcp else {
            return Ok(None);
        };
        let is_full = self.segment_bytes + packet.payload.len() > self.settings.segment_bytes;
        let result = if is_full && !packet.payload.is_empty() {
            Err(TcpProblem::Memory)
        } else if self.settings.checks_checksums && !packet.checksum_is_right() {
            Err(TcpProblem::Checksum)
        } else {
            session.segment(packet, tcp, direction, &self.tcp, counters)
        };
        let accepted = match result {
            Ok(accepted) => accepted,
            Err(problem) => {
                counters.problems[problem as usize] += 1;
                return Err(problem);
            }
        };
        let (app, key) = (&mut flow.app, &flow.key);
        for direction in Direction::BOTH {
            session.deliver(direction, &self.tcp, false, counters, |chunk| {
                app.stream(key, chunk);
            });
        }
        flow.state = session.state();
        flow.was_established |= flow.state == FlowState::Established;
        self.segment_bytes = self.segment_bytes + session.memory() - session.charged;
        session.charged = session.memory();
        if accepted.edits.is_empty() {
            return Ok(None);
        }
        accepted.edits.count(&mut self.counters.tcp);
        Ok(Place::of(packet).map(|place| (accepted.edits, place)))
    }

    /// Evaluates the rules on a packet, and on the stream data that wait in its direction.
    fn inspect(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        flow: &mut Flow,
        direction: Direction,
        out: &mut Events,
    ) -> Verdict {
        let events = out.list.len();
        let flushes = core::mem::take(&mut flow.app.flushes_raw[direction.index()]);
        let mut action = self.inspect_once(rules, packet, flow, direction, flushes, out);
        // Data behind a hole become inspectable when those before it are inspected.
        let pseudo = pseudo(packet);
        while flow
            .tcp
            .as_ref()
            .is_some_and(|session| session.waits_behind_hole(direction))
        {
            let (app, key) = (&mut flow.app, &flow.key);
            if let Some(session) = &mut flow.tcp {
                let counters = &mut self.counters.tcp;
                session.deliver(direction, &self.tcp, false, counters, |chunk| {
                    app.stream(key, chunk);
                });
            }
            action = action.max(self.inspect_once(rules, &pseudo, flow, direction, true, out));
        }
        self.charge(flow);
        for expectation in flow.app.expected.drain(..) {
            self.expectations.add(expectation);
        }
        let verdict = self.apply(action, flow);
        if self.settings.records {
            history::complete_alerts(&mut out.list[events..], flow, direction);
            history::report_complete(flow, packet, out);
        }
        flow.app.retire();
        verdict
    }

    /// Evaluates the rules once.
    fn inspect_once(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        flow: &mut Flow,
        direction: Direction,
        flushes: bool,
        out: &mut Events,
    ) -> Action {
        let lent = flow
            .tcp
            .as_mut()
            .and_then(|session| session.lend(direction, &self.tcp, flushes));
        let window = lent.as_ref().map(|lent| lent.window());
        let inspection = Inspection {
            packet,
            flow: Some(&mut *flow),
            direction,
            stream: window.filter(|_| !packet.is_encrypted),
            now: packet.time,
        };
        let action = self.detector.inspect(rules, inspection, out);
        if let Some(session) = &mut flow.tcp
            && let Some(lent) = lent
        {
            session.give_back(direction, lent, self.settings.mode);
        }
        action
    }

    /// Charges the memory of a flow's streams to the pool.
    fn charge(&mut self, flow: &mut Flow) {
        if let Some(session) = &mut flow.tcp {
            self.segment_bytes = self.segment_bytes + session.memory() - session.charged;
            session.charged = session.memory();
        }
    }

    /// Applies the action of rules to the flow and returns the decision about the packet.
    fn apply(&self, action: Action, flow: &mut Flow) -> Verdict {
        match action {
            Action::None | Action::PassPacket => return Verdict::Pass,
            Action::PassFlow => {
                flow.verdict = FlowVerdict::Pass;
                return Verdict::Pass;
            }
            Action::DropPacket => {}
            Action::DropFlow | Action::RejectSource | Action::RejectDestination | Action::RejectBoth => {
                if self.settings.mode == Mode::Ips {
                    flow.verdict = FlowVerdict::Drop;
                }
            }
        }
        self.inline(rejection(action))
    }

    /// Ends a flow: all data that are left are parsed and inspected.
    fn end(&mut self, rules: &Ruleset, mut flow: Box<Flow>, now: Time, reason: FlowEnd, out: &mut Events) {
        let (app, key) = (&mut flow.app, flow.key);
        if let Some(session) = &mut flow.tcp {
            self.segment_bytes -= core::mem::take(&mut session.charged);
            for direction in Direction::BOTH {
                let counters = &mut self.counters.tcp;
                session.deliver(direction, &self.tcp, true, counters, |chunk| {
                    app.stream(&key, chunk);
                });
                session.end(direction, |chunk| app.stream(&key, chunk));
            }
        }
        if flow.tcp.is_some() && flow.verdict == FlowVerdict::None {
            for direction in Direction::BOTH {
                let events = out.list.len();
                let packet = Packet {
                    is_encrypted: flow.app.is_encrypted,
                    ..Packet::pseudo(&flow.key, direction, now)
                };
                self.inspect_once(rules, &packet, &mut flow, direction, true, out);
                if self.settings.records {
                    history::complete_alerts(&mut out.list[events..], &mut flow, direction);
                }
            }
        }
        if self.settings.records {
            history::report_end(&flow, now, reason, out);
        }
    }
}

/// Returns the decision for an action that drops.
fn rejection(action: Action) -> Verdict {
    let reject = |source, destination| Verdict::Reject { source, destination };
    match action {
        Action::RejectSource => reject(true, false),
        Action::RejectDestination => reject(false, true),
        Action::RejectBoth => reject(true, true),
        _ => Verdict::Drop(DropReason::Rule),
    }
}

/// Returns a packet without payload in the place of `packet`.
fn pseudo<'a>(packet: &Packet<'a>) -> Packet<'a> {
    Packet {
        payload: &[],
        is_pseudo: true,
        ..*packet
    }
}
