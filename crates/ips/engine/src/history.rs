//! Events about flows and transactions, made from the state that the engine keeps.

use millrace_types::Time;
use millrace_wire::IpProto;
use millrace_wire::tcp::flags;

use crate::app::Transaction;
use crate::app::file::File;
use crate::event::{
    ALERT_BITS, Alert, AlertContext, Event, Events, FILE_PART, FilePart, FileSummary, FlowEnd, FlowSummary,
    FlowVariables, PacketSource, Subject, TcpState, TcpSummary, TransactionEvent, Tunnel,
};
use crate::flow::{Direction, Flow, FlowState};
use crate::packet::Packet;
use crate::packet::tunnel::Tunnels;
use crate::tcp::{Session, Stream};
use crate::verdict::{DropReason, Verdict};

impl FlowSummary {
    /// Returns the state of a flow.
    pub(crate) fn of(flow: &Flow) -> FlowSummary {
        FlowSummary {
            id: flow.id,
            key: flow.key,
            start: flow.start,
            last: flow.last,
            state: flow.state,
            counters: flow.counters,
            app: flow.app.reported(flow.app.detected()),
            apps: Direction::BOTH.map(|direction| flow.app.reported(flow.app.spoken_in(direction))),
            original_app: flow.app.original_protocol,
            icmp: flow.icmp,
            verdict: flow.verdict,
            is_alerted: flow.is_alerted,
            has_parser_error: flow.app.has_failed,
            transactions: flow.app.transactions.begun(),
            tcp: (flow.key.protocol == IpProto::TCP.0).then(|| TcpSummary::of(flow)),
        }
    }
}

impl TcpSummary {
    fn of(flow: &Flow) -> TcpSummary {
        let [_, server] = flow.tcp_flags.map(u16::from);
        let session = flow.tcp.as_deref();
        TcpSummary {
            flags: flow.tcp_flags,
            state: session.map(|session| match session.state() {
                FlowState::New if server & flags::SYN == 0 => TcpState::SynSent,
                FlowState::New => TcpState::SynReceived,
                FlowState::Closed if session.is_reset() => TcpState::Closed,
                FlowState::Established | FlowState::Closed => closing_state(session),
            }),
            has_gaps: Direction::BOTH.map(|direction| {
                let stream = session.and_then(|session| session.stream(direction));
                stream.is_some_and(Stream::has_gaps)
            }),
            is_midstream: session.is_some_and(Session::is_midstream),
        }
    }
}

/// Returns the state of a connection that is established: by which end sent the first FIN, and which FINs are acknowledged (RFC 9293,
/// section 3.3.2, from the server's view).
fn closing_state(session: &Session) -> TcpState {
    let fin = |sender| session.stream(sender).and_then(Stream::fin);
    let is_acknowledged = |sender| {
        let acked = session.stream(sender).map_or(0, Stream::acked);
        fin(sender).is_some_and(|fin| acked > fin)
    };
    let (client, server) = (Direction::ToServer, Direction::ToClient);
    match session.first_fin() {
        None => TcpState::Established,
        Some(Direction::ToServer) => match fin(server) {
            None => TcpState::CloseWait,
            Some(_) if !is_acknowledged(server) => TcpState::LastAck,
            Some(_) => TcpState::Closed,
        },
        Some(Direction::ToClient) => match (fin(client), is_acknowledged(server)) {
            (None, false) => TcpState::FinWait1,
            (None, true) => TcpState::FinWait2,
            (Some(_), _) if is_acknowledged(client) => TcpState::Closed,
            (Some(_), false) => TcpState::Closing,
            (Some(_), true) => TcpState::TimeWait,
        },
    }
}

impl PacketSource {
    /// Returns the source of a packet, which may be inside a tunnel.
    pub(crate) fn of(packet: &Packet<'_>) -> PacketSource {
        match () {
            () if packet.is_reassembled => PacketSource::Fragments,
            // A packet that the engine made has no number.
            () if packet.number == 0 => PacketSource::FlowEnd,
            () => PacketSource::Frame,
        }
    }

    /// Returns the source of a packet inside `outer`; `None` for tunnels without a name.
    fn inside(outer: &Tunnel) -> Option<PacketSource> {
        let known = Tunnels::default();
        let (source, destination) = outer.ports.unwrap_or_default();
        let has = |port| [source, destination].contains(&port);
        Some(match (outer.protocol, IpProto(outer.protocol)) {
            (4, _) => PacketSource::Ipv4,
            (41, _) => PacketSource::Ipv6,
            (47, _) => PacketSource::Gre,
            (_, IpProto::UDP) if destination == known.vxlan => PacketSource::Vxlan,
            (_, IpProto::UDP) if has(known.geneve) => PacketSource::Geneve,
            (_, IpProto::UDP) if has(known.teredo) => PacketSource::Teredo,
            _ => return None,
        })
    }
}

impl Tunnel {
    /// Returns the tunnel of which `packet` is the outermost packet.
    pub(crate) fn of(packet: &Packet<'_>) -> Tunnel {
        Tunnel {
            src: packet.src,
            dst: packet.dst,
            ports: packet.ports,
            protocol: packet.protocol,
            depth: 1,
        }
    }
}

/// Adds the packet around them to the alerts of a tunnelled packet, and its tunnel to the other events. Called for each packet
/// around it, from the innermost on.
pub(crate) fn wrap_events(events: &mut [Event], number: u64, outer: Tunnel) {
    let source = PacketSource::inside(&outer);
    for event in events {
        // The innermost packet around it counts.
        if let Some(subject) = event.subject_mut()
            && subject.packet == number
            && subject.source == PacketSource::Frame
        {
            subject.source = source.unwrap_or_default();
        }
        let Event::Alert(alert) = event else { continue };
        if alert.subject.packet == number {
            let depth = alert.tunnel.as_ref().map_or(0, |inner| inner.depth);
            let depth = depth.saturating_add(1);
            alert.tunnel = Some(Box::new(Tunnel { depth, ..outer }));
        }
    }
}

impl FileSummary {
    fn of(file: &File) -> FileSummary {
        FileSummary {
            direction: file.direction,
            name: file.name.clone(),
            size: file.size,
            state: file.state,
            has_gaps: file.has_gaps,
            magic: file.magic,
            hashes: file.hashes.clone(),
            is_stored: file.is_stored,
            is_joined: file.is_joined,
        }
    }
}

/// Returns a subject with the endpoints of a flow, from client to server.
fn subject(flow: &Flow, packet: u64, time: Time, source: PacketSource) -> Subject {
    Subject {
        packet,
        time,
        flow: flow.id,
        src: flow.key.client,
        dst: flow.key.server,
        ports: Some((flow.key.client_port, flow.key.server_port)),
        protocol: flow.key.protocol,
        icmp: None,
        vlans: flow.key.vlans,
        source,
    }
}

/// Reports the bytes of complete files that rules store, in parts.
pub(crate) fn store_files(flow: &mut Flow, out: &mut Events) {
    let of_flow = flow.app.stores;
    for transaction in &mut flow.app.transactions.list {
        let stores = transaction.stores;
        let is_stored = |file: &&mut File| {
            let side = file.direction.index();
            stores[side] || of_flow[side] || file.is_wanted
        };
        for file in transaction.files.iter_mut().filter(is_stored) {
            let Some((sha256, content)) = file.take_content() else {
                continue;
            };
            let size = content.len() as u64;
            // An empty file has one part, too.
            let parts = content
                .chunks(FILE_PART)
                .chain(content.is_empty().then_some(&[][..]));
            for (number, bytes) in parts.enumerate() {
                out.push(Event::File(FilePart {
                    sha256,
                    size,
                    offset: (number * FILE_PART) as u64,
                    bytes: bytes.to_vec(),
                }));
            }
        }
    }
}

/// Adds flow and transaction to the alerts of a packet that have none.
pub(crate) fn complete_alerts(alerts: &mut [Event], flow: &Flow, direction: Direction) {
    for event in alerts {
        let Event::Alert(alert) = event else { continue };
        if alert.context.is_some() {
            continue;
        }
        let list = &flow.app.transactions.list;
        let transaction = alert
            .transaction
            .and_then(|id| list.iter().find(|transaction| transaction.id == id));
        alert.context = Some(Box::new(AlertContext {
            flow: FlowSummary::of(flow),
            direction,
            record: transaction.map_or_else(Default::default, |transaction| transaction.record.clone()),
            files: transaction.map_or_else(Vec::new, |transaction| {
                transaction.files.iter().map(FileSummary::of).collect()
            }),
            bits: flow.detect.bits.numbers().take(ALERT_BITS).collect(),
            counters: flow.detect.bits.counters().take(ALERT_BITS).collect(),
            variables: flow.detect.bits.variables().to_vec(),
        }));
    }
}

/// Sets the packet action of the alerts about frame `number` to the frame's verdict. Other alerts are those
/// of flows that ended.
pub(crate) fn decide_alerts(alerts: &mut [Event], number: u64, verdict: Verdict) {
    for event in alerts {
        let Event::Alert(alert) = event else { continue };
        if alert.subject.packet == number {
            alert.packet_action = verdict.action();
        }
    }
}

/// Reports the transactions that are complete and inspected, before the flow forgets them.
pub(crate) fn report_complete(flow: &Flow, packet: &Packet<'_>, out: &mut Events) {
    let is_over =
        |transaction: &&Transaction| transaction.is_complete() && transaction.is_inspected == [true; 2];
    for transaction in flow.app.transactions.list.iter().filter(is_over) {
        let subject = subject(flow, packet.number, packet.time, PacketSource::of(packet));
        let is_reversed = transaction.app.has_records_of_packets()
            && flow.key.has_ends_of(packet, Direction::ToClient)
            && !flow.key.has_ends_of(packet, Direction::ToServer);
        let subject = if is_reversed { subject.reversed() } else { subject };
        report(transaction, subject, out);
    }
}

/// Reports the frames that have ended, if frames become events. Their source is the end that sent them.
pub(crate) fn report_frames(
    flow: &mut Flow,
    packet: u64,
    time: Time,
    source: PacketSource,
    out: &mut Events,
) {
    let Some(frames) = &mut flow.app.frames else {
        return;
    };
    for report in frames.take_reports() {
        let subject = subject(flow, packet, time, source);
        let subject = match report.view.direction {
            Direction::ToServer => subject,
            Direction::ToClient => subject.reversed(),
        };
        out.push(Event::Frame(subject, Box::new(report)));
    }
}

/// Reports a packet of a flow, unless the packet is forwarded. `rule` is the alert of the first rule that dropped it.
pub(crate) fn report_drop(
    flow: &Flow,
    packet: &Packet<'_>,
    verdict: Verdict,
    rule: Option<Box<Alert>>,
    out: &mut Events,
) {
    let reason = match verdict {
        Verdict::Pass | Verdict::Rewritten => return,
        Verdict::Drop(reason) => reason,
        Verdict::Reject { .. } => DropReason::Rule,
    };
    let is_of_rule = matches!(reason, DropReason::Rule | DropReason::RateFilter);
    let rule = rule.filter(|_| is_of_rule).map(|mut alert| {
        alert.packet_action = verdict.action();
        alert
    });
    out.push(Event::Drop(subject_of(packet, flow.id), reason, rule));
}

/// Returns the subject of an event about a packet.
pub(crate) fn subject_of(packet: &Packet<'_>, flow: u64) -> Subject {
    Subject {
        packet: packet.number,
        time: packet.time,
        flow,
        src: packet.src,
        dst: packet.dst,
        ports: packet.ports,
        protocol: packet.protocol,
        icmp: packet.icmp.map(|icmp| (icmp.kind, icmp.code)),
        vlans: packet.vlans,
        source: PacketSource::of(packet),
    }
}

/// Reports the unfinished transactions of a flow, before the flow forgets them.
pub(crate) fn report_unfinished(flow: &Flow, now: Time, out: &mut Events) {
    for transaction in &flow.app.transactions.list {
        report(transaction, subject(flow, 0, now, PacketSource::FlowEnd), out);
    }
}

/// Reports the remaining transactions of a flow, and its end.
pub(crate) fn report_end(flow: &Flow, now: Time, reason: FlowEnd, out: &mut Events) {
    let subject = subject(flow, 0, now, PacketSource::FlowEnd);
    report_unfinished(flow, now, out);
    let anomalies = &flow.app.transactions.events;
    if let Some(app) = flow.app.protocol.filter(|_| !anomalies.is_empty()) {
        out.push(Event::Anomaly(subject, app, anomalies.clone()));
    }
    let variables = FlowVariables {
        bits: flow.detect.bits.numbers().take(ALERT_BITS).collect(),
        counters: flow.detect.bits.counters().take(ALERT_BITS).collect(),
        variables: flow.detect.bits.variables().to_vec(),
    };
    out.push(Event::Flow(Box::new(FlowSummary::of(flow)), reason, variables));
}

fn report(transaction: &Transaction, subject: Subject, out: &mut Events) {
    if transaction.is_unlogged {
        return;
    }
    out.push(Event::Transaction(Box::new(TransactionEvent {
        subject,
        id: transaction.id,
        app: transaction.app,
        record: transaction.record.clone(),
        files: transaction.files.iter().map(FileSummary::of).collect(),
        anomalies: transaction.events.clone(),
    })));
}
