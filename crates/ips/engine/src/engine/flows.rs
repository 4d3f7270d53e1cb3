//! The flows of an engine: the inspection of a packet in its flow, and the end of a flow.

use millrace_types::Time;
use millrace_wire::tcp::flags;

use super::Engine;
use super::decided::{Changed, Decided};
use crate::detect::Ruleset;
use crate::event::{Events, FlowEnd, PacketSource};
use crate::flow::{Direction, Flow, FlowIndex, FlowState, FlowVerdict, Tuple};
use crate::history;
use crate::packet::{Context, IpHeaderLocation, Packet, TcpHeader};
use crate::policy::Cause;
use crate::settings::{Encryption, Mode};
use crate::tcp::normalize::{Edits, SegmentLocation};
use crate::tcp::{Stream, TcpProblem, observer};
use crate::verdict::{DropReason, Verdict};

/// The outcome of a packet for the transport state of its flow.
enum Observed {
    /// A policy decides about the packet.
    Refused(Verdict),
    /// The changes that the normaliser asks for, or the problem of a segment.
    Segment(Result<Option<(Edits, SegmentLocation)>, TcpProblem>),
}

impl Engine {
    /// Returns true if the payloads of a direction are not inspected because they are encrypted.
    fn hides_payloads(&self, flow: &Flow, direction: Direction) -> bool {
        flow.app.encrypted_from[direction.index()].is_some() && self.settings.encryption != Encryption::Full
    }

    /// Inspects a packet of a flow. A packet that the normaliser changes is inspected by [`Engine::in_flow_changed`].
    pub(super) fn in_flow(
        &mut self,
        rules: &Ruleset,
        packet: &mut Packet<'_>,
        tuple: Tuple,
        is_quoted: bool,
        out: &mut Events,
    ) -> Decided {
        let (index, mut flow) = match self.flow_of(rules, packet, &tuple, is_quoted, out) {
            Ok(Some(found)) => found,
            Ok(None) => return Decided::Verdict(self.without_flow(rules, packet, out)),
            Err(verdict) => return Decided::Verdict(verdict),
        };
        let mut is_from_client = tuple.is_from_client(&flow.key) != is_quoted;
        if !is_from_client && flow.tcp.is_none() && packet.tcp.is_some_and(|tcp| tcp.is_syn()) {
            // The server's packets arrived first, without a handshake: the host that sends this SYN is the client.
            flow.swap_endpoints();
            is_from_client = true;
        }
        let follows_halves = self.tcp.accepts_midstream || self.tcp.accepts_async;
        if follows_halves
            && is_from_client
            && flow.is_new()
            && packet.tcp.is_some_and(|tcp| is_of_server(&tcp, &tuple))
        {
            flow.swap_endpoints();
            is_from_client = false;
        }
        let direction = if is_from_client {
            Direction::ToServer
        } else {
            Direction::ToClient
        };
        flow.last = packet.time;
        flow.counters[direction.index()].count(packet.size as u64, packet.ip.ttl);
        if let Some(tcp) = &packet.tcp {
            // Eight of the nine control bits (RFC 9293, section 3.1).
            flow.tcp_flags[direction.index()] |= tcp.flags as u8;
        } else if let Some(icmp) = packet.icmp.filter(|_| !is_quoted) {
            flow.icmp[direction.index()].get_or_insert((icmp.kind, icmp.code));
        }
        flow.was_heard[direction.index()] |= !is_quoted;
        // The payloads of packets after the one with which encryption begins are not inspected.
        packet.is_encrypted = self.hides_payloads(&flow, direction);
        let verdict = match flow.verdict {
            FlowVerdict::Drop => {
                self.counters.dropped_flow += 1;
                self.inline(Verdict::Drop(DropReason::Flow))
            }
            // An ICMP error about the flow may come from any host, and is no packet of the flow that a rule passed.
            FlowVerdict::Pass | FlowVerdict::Bypass if !is_quoted => Verdict::Pass,
            _ if is_quoted => {
                packet.is_rejected_by_stream = true;
                self.inspect(rules, packet, &mut flow, direction, out)
            }
            _ => match self.accepted(rules, packet, &mut flow, direction, out) {
                Observed::Refused(verdict) => verdict,
                Observed::Segment(Err(problem)) => match self.problem(problem, packet, &mut flow, out) {
                    Some(verdict) => {
                        let decided = self.inspect_events(rules, packet, Some((&mut flow, direction)), out);
                        verdict.max(decided)
                    }
                    None => {
                        packet.is_rejected_by_stream = true;
                        self.inspect(rules, packet, &mut flow, direction, out)
                    }
                },
                Observed::Segment(Ok(None)) if self.refuses_message(packet, &mut flow, out) => {
                    Verdict::Drop(DropReason::Policy(Cause::ParserError))
                }
                Observed::Segment(Ok(None)) => {
                    // Bytes of the packet may show that the flow is no longer encrypted.
                    packet.is_encrypted &= self.hides_payloads(&flow, direction);
                    if flow.tcp.as_ref().is_some_and(|session| session.is_repeated()) {
                        packet.is_rejected_by_stream = true;
                        packet.is_encrypted = false;
                    }
                    self.inspect(rules, packet, &mut flow, direction, out)
                }
                Observed::Segment(Ok(Some((edits, location)))) => {
                    packet.is_encrypted &= self.hides_payloads(&flow, direction);
                    return Decided::Changed(Box::new(Changed {
                        edits,
                        location,
                        index,
                        flow,
                        direction,
                        is_encrypted: packet.is_encrypted,
                        ends_handshake: packet.ends_handshake,
                        events: packet.events,
                    }));
                }
            },
        };
        self.settle(packet, index, flow, verdict, is_quoted, out);
        Decided::Verdict(verdict)
    }

    /// Applies a packet to the transport state of its flow, and the policy for urgent data to a segment that is accepted.
    fn accepted(
        &mut self,
        rules: &Ruleset,
        packet: &mut Packet<'_>,
        flow: &mut Flow,
        direction: Direction,
        out: &mut Events,
    ) -> Observed {
        let result = self.observed(rules, packet, flow, direction);
        let refused = match result {
            Ok(_) => self.urgent(packet, flow, out),
            Err(_) => None,
        };
        refused.map_or(Observed::Segment(result), Observed::Refused)
    }

    /// Applies a packet to the transport state of its flow, and adds the events of the TCP engine to the packet if rules ask for
    /// them.
    fn observed(
        &mut self,
        rules: &Ruleset,
        packet: &mut Packet<'_>,
        flow: &mut Flow,
        direction: Direction,
    ) -> Result<Option<(Edits, SegmentLocation)>, TcpProblem> {
        let Some(tcp) = packet.tcp.filter(|_| self.notes_packet_events(rules)) else {
            return self.transport(packet, flow, direction);
        };
        let before = (self.counters.tcp.gaps, self.counters.tcp.conflicts);
        let result = self.transport(packet, flow, direction);
        let mode = self.settings.mode;
        let mut events = observer::observe(&mut flow.observer, packet, &tcp, direction, mode);
        if self.counters.tcp.gaps != before.0 {
            events.stream("reassembly_seq_gap");
        }
        if self.counters.tcp.conflicts != before.1 {
            events.stream("reassembly_overlap_different_data");
        }
        packet.events.add(events);
        result
    }

    /// Applies the normaliser's edits to a packet, and inspects the result.
    #[cold]
    pub(super) fn in_flow_changed(
        &mut self,
        rules: &Ruleset,
        bytes: &mut [u8],
        network: IpHeaderLocation,
        context: Context,
        changed: Changed,
        out: &mut Events,
    ) -> Verdict {
        let Changed {
            edits,
            location,
            index,
            mut flow,
            direction,
            is_encrypted,
            ends_handshake,
            events,
        } = changed;
        edits.apply(&location, bytes);
        match Packet::decode(bytes, network, context) {
            Ok(packet) => {
                let is_repeated = flow.tcp.as_ref().is_some_and(|session| session.is_repeated());
                let packet = Packet {
                    is_encrypted: is_encrypted && !is_repeated,
                    is_rejected_by_stream: is_repeated,
                    ends_handshake,
                    events,
                    ..packet
                };
                let verdict = self.inspect(rules, &packet, &mut flow, direction, out);
                let verdict = verdict.max(Verdict::Rewritten);
                self.settle(&packet, index, flow, verdict, false, out);
                verdict
            }
            Err(reason) => {
                self.flows.put(index, flow);
                self.undecoded(reason)
            }
        }
    }

    /// Reports a packet if it is dropped, and returns its flow to the table.
    fn settle(
        &mut self,
        packet: &Packet<'_>,
        index: FlowIndex,
        flow: Box<Flow>,
        verdict: Verdict,
        is_quoted: bool,
        out: &mut Events,
    ) {
        self.report_events(packet, flow.id, out);
        if self.keeps_records() {
            let rule = self.detector.take_dropping(packet.number);
            history::report_drop(&flow, packet, verdict, rule, out);
        }
        // Without ports, the flows of the switch have other keys: except for echo, it has one flow for all ICMP
        // messages between two hosts.
        let has_flow = packet.ports.is_some() && !is_quoted;
        if has_flow && packet.tunnel_depth == 0 && !packet.is_tunnel && !packet.is_reassembled {
            self.settled = Some((index, flow.verdict));
        }
        self.flows.put(index, flow);
    }

    /// Returns the flow of a packet, taken out of the table; a new one if it has none yet, or if the rule that passed the flow
    /// is gone since a reload. A packet that only quotes another one begins no flow.
    ///
    /// # Errors
    /// The decision of a policy, if no new flow can begin.
    fn flow_of(
        &mut self,
        rules: &Ruleset,
        packet: &Packet<'_>,
        tuple: &Tuple,
        is_quoted: bool,
        out: &mut Events,
    ) -> Result<Option<(FlowIndex, Box<Flow>)>, Verdict> {
        let (mut again, mut is_from_server) = (None, false);
        if let Some(index) = self.flows.find(tuple)
            && let Some(flow) = self.flows.take(index)
        {
            let is_syn = packet.tcp.is_some_and(|tcp| tcp.is_syn());
            let is_idle = self.flows.is_idle(&flow, packet.time);
            let begins_another = is_syn && !is_quoted && self.begins_another(packet, &flow, tuple);
            let is_over = is_idle || begins_another;
            // A repeated SYN may begin a new connection, too; the server's answer to the SYN shows that.
            let depth = self.tcp.depth;
            again = match (&flow.tcp, &packet.tcp) {
                (Some(session), Some(tcp)) if !tuple.is_from_client(&flow.key) && !is_quoted => {
                    session.other_connection(tcp, depth)
                }
                _ => None,
            };
            let is_orphaned = flow.verdict == FlowVerdict::Pass && !flow.detect.is_passed_by(rules);
            if !is_over && again.is_none() && !is_orphaned {
                return Ok(Some((index, flow)));
            }
            // The client stays the client.
            is_from_server = is_orphaned && !is_over && !tuple.is_from_client(&flow.key) && !is_quoted;
            self.flows.remove(index);
            let reason = match !is_idle && (begins_another || again.is_some()) {
                true => FlowEnd::Reused,
                false => FlowEnd::Timeout,
            };
            self.end(rules, flow, packet.time, reason, out);
        }
        if is_quoted {
            return Ok(None);
        }
        if let Some(verdict) = self.refuses_flow(packet, tuple, out) {
            return Err(verdict);
        }
        let tuple = match again.is_some() || is_from_server {
            true => &tuple.reversed(),
            false => tuple,
        };
        let (index, evicted) = self.flows.insert(tuple, packet.time);
        if let Some(flow) = evicted {
            self.end(rules, flow, packet.time, FlowEnd::Evicted, out);
        }
        let Some(mut flow) = self.flows.take(index) else {
            return Ok(None);
        };
        if let Some(session) = again {
            flow.begin_tcp(*session);
        }
        flow.app.settings = match self.settings.mode {
            Mode::Ids => self.settings.app,
            Mode::Ips => self.settings.app.inline(),
        };
        flow.app.settings.is_asymmetric = self.tcp.accepts_async;
        if self.overload.sheds_records {
            flow.app.settings.hashes_files = false;
        }
        if self.overload.sheds_records || !rules.stores_files {
            flow.app.settings.store_limit = 0;
        }
        // Rules need the digests, whether records have them or not.
        flow.app.settings.hashes_files |= rules.needs_digests;
        (flow.app.settings.frames, flow.app.settings.asks) = (rules.frames, rules.asks);
        flow.app.settings.keeps_records = self.keeps_records();
        flow.app.settings.details &= self.keeps_records();
        flow.app.settings.asks.mail_bodies |= flow.app.settings.details;
        flow.app.settings.asks.ranges |= flow.app.settings.keeps_records;
        flow.app.settings.reports_frames = self.settings.frames && self.keeps_records();
        if self.overload.sheds_depth {
            flow.app.settings = flow.app.settings.half_as_deep();
        }
        Ok(Some((index, flow)))
    }

    /// Returns true if a SYN begins another connection than that of `flow`.
    ///
    /// The engine does not track the connection of a flow whose packets pass, so the connection may have ended. In
    /// mode `ips` the SYN then begins another connection, even with the sequence number of the old SYN: the client
    /// chooses it.
    fn begins_another(&self, packet: &Packet<'_>, flow: &Flow, tuple: &Tuple) -> bool {
        match flow.verdict {
            FlowVerdict::Pass | FlowVerdict::Bypass => {
                self.settings.mode == Mode::Ips || !repeats_syn(packet, flow, tuple)
            }
            FlowVerdict::Drop => false,
            FlowVerdict::None => flow.state == FlowState::Closed && !repeats_syn(packet, flow, tuple),
        }
    }

    /// Inspects the data of a flow that ends which are behind holes: the receiver may have got the bytes of the holes. Data before a
    /// hole are inspected before those behind it.
    fn inspect_behind_holes(&mut self, rules: &Ruleset, flow: &mut Flow, now: Time, out: &mut Events) {
        let key = flow.key;
        for direction in Direction::BOTH {
            let waits = |flow: &Flow| {
                flow.tcp
                    .as_ref()
                    .is_some_and(|session| session.has_data_behind_hole(direction))
            };
            while waits(flow) {
                let events = out.list.len();
                let packet = Packet {
                    is_encrypted: self.hides_payloads(flow, direction),
                    ..Packet::pseudo(&key, direction, now)
                };
                self.inspect_once(rules, &packet, flow, direction, true, out);
                if self.keeps_records() {
                    history::complete_alerts(&mut out.list[events..], flow, direction);
                }
                let (app, expectations) = (&mut flow.app, &mut self.expectations);
                let Some(session) = &mut flow.tcp else { return };
                let before = session.stream(direction).map(Stream::next);
                let counters = &mut self.counters.tcp;
                session.deliver(direction, &self.tcp, true, counters, |chunk| {
                    expectations.apply(&key, app, &chunk);
                    app.stream(&key, chunk);
                });
                if session.stream(direction).map(Stream::next) == before {
                    return;
                }
            }
        }
    }

    /// Ends a flow: the remaining TCP data are parsed, and inspected if the flow has no verdict yet.
    pub(super) fn end(
        &mut self,
        rules: &Ruleset,
        mut flow: Box<Flow>,
        now: Time,
        reason: FlowEnd,
        out: &mut Events,
    ) {
        let (app, key, expectations) = (&mut flow.app, flow.key, &mut self.expectations);
        if let Some(session) = &mut flow.tcp {
            self.segment_bytes -= core::mem::take(&mut session.charged);
            for direction in Direction::BOTH {
                let counters = &mut self.counters.tcp;
                session.deliver(direction, &self.tcp, true, counters, |chunk| {
                    expectations.apply(&key, app, &chunk);
                    app.stream(&key, chunk);
                });
            }
        }
        if flow.verdict == FlowVerdict::None {
            self.inspect_behind_holes(rules, &mut flow, now, out);
        }
        let (app, key) = (&mut flow.app, flow.key);
        if let Some(session) = &mut flow.tcp {
            for direction in Direction::BOTH {
                session.end(direction, |chunk| app.stream(&key, chunk));
            }
        }
        if flow.tcp.is_some() && flow.verdict == FlowVerdict::None {
            for direction in Direction::BOTH {
                let has_data = flow
                    .tcp
                    .as_ref()
                    .is_some_and(|session| session.has_uninspected(direction));
                let transactions = &flow.app.transactions;
                let has_events =
                    rules.has_event_rules() && flow.detect.has_new_events(direction, &transactions.events);
                let frames = flow.app.frames.as_ref();
                let has_frames = frames.is_some_and(|frames| frames.has_complete(direction));
                if !has_data && transactions.list.is_empty() && !has_events && !has_frames {
                    continue;
                }
                let events = out.list.len();
                let packet = Packet {
                    is_encrypted: self.hides_payloads(&flow, direction),
                    ..Packet::pseudo(&flow.key, direction, now)
                };
                self.inspect_once(rules, &packet, &mut flow, direction, true, out);
                if self.keeps_records() {
                    history::complete_alerts(&mut out.list[events..], &flow, direction);
                }
            }
            if flow.app.is_paused() {
                let packet = Packet::pseudo(&flow.key, Direction::ToServer, now);
                self.inspect_all_held(rules, &packet, &mut flow, Direction::ToServer, out);
            }
        }
        self.store_files(&mut flow, out);
        if self.keeps_records() {
            history::report_frames(&mut flow, 0, now, PacketSource::FlowEnd, out);
            history::report_end(&flow, now, reason, out);
        }
        if let Some(session) = &mut flow.tcp {
            self.keep_buffers(session, true);
        }
        self.parser_bytes -= core::mem::take(&mut flow.charged);
        self.flows.recycle(flow);
    }
}

/// Returns true if the first segment that was seen of a connection comes from its server: a SYN-ACK, or a segment from a
/// well-known port (RFC 6335, section 6) to one that is none.
fn is_of_server(tcp: &TcpHeader<'_>, tuple: &Tuple) -> bool {
    let [src, dst] = tuple.ports();
    const WELL_KNOWN: core::ops::Range<u16> = 1..1024;
    let is_syn_ack = tcp.has(flags::SYN | flags::ACK);
    let tells_port = WELL_KNOWN.contains(&src) && !WELL_KNOWN.contains(&dst);
    is_syn_ack || tells_port && !tcp.has(flags::SYN)
}

/// Returns true if a packet of the client repeats the SYN that began the connection of the flow.
fn repeats_syn(packet: &Packet<'_>, flow: &Flow, tuple: &Tuple) -> bool {
    let session = flow.tcp.as_ref().zip(packet.tcp.as_ref());
    tuple.is_from_client(&flow.key) && session.is_some_and(|(session, tcp)| session.repeats_syn(tcp))
}
