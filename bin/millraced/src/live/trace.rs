//! Traces and captures of packets, as the REST API asks for them.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use millrace_agent::BridgeControl;
use millrace_agent::control::{
    self as agent, CaptureRequest, CaptureSink, ChainTrace, ChainTraceEnd, TraceOutcome, TracedHop,
};
use millrace_api::server::{CaptureSpec, CapturedPacket, Direction, LiveError, TracePacket};
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_datapath::{CAPTURES_MAX, CaptureFilter, offload};
use millrace_flow::{Action, Field, FlowKey, Match};
use millrace_pipeline::{DropReason, Explanation, Origin, PacketInReason, Standalone, Step};
use millrace_router::{RouteExplanation, RouteStep};
use millrace_types::{PortNo, Priority};
use millrace_wire::{Depth, Layers};
use tokio::sync::mpsc;

/// The capacity of the channel of captured packets, in packets.
const CAPTURED_LEN: usize = 4096;

/// Returns an error for a port that the bridge does not have.
pub(super) fn known_port<B: Backend>(
    control: &BridgeControl<B>,
    bridge: &str,
    port: PortNo,
) -> Result<(), LiveError> {
    if control.ports().contains_key(&port) {
        return Ok(());
    }
    let ports = control
        .ports()
        .values()
        .map(|port| port.model.name.to_string())
        .collect();
    Err(LiveError::NoPort {
        bridge: bridge.to_owned(),
        port: port.to_string(),
        ports,
    })
}

/// Traces a given packet through the tables without sending it.
pub(super) fn hypothetical<B: Backend>(
    control: &mut BridgeControl<B>,
    bridge: &str,
    packet: &TracePacket,
) -> Result<view::Trace, LiveError> {
    // A controller may send a packet with OFPP_CONTROLLER as its ingress port (OpenFlow 1.3.5, section 7.3.7).
    if packet.in_port != PortNo::CONTROLLER {
        known_port(control, bridge, packet.in_port)?;
    }
    let origin = Origin {
        in_port: packet.in_port,
        in_phy_port: packet.in_port,
        tunnel_id: packet.tunnel_id,
        metadata: packet.metadata,
    };
    let explanation = control.explain(origin, &packet.frame);
    Ok(show(control, bridge, origin, &packet.frame, &explanation))
}

/// Returns the view of the trace of a live packet.
pub(super) fn shown<B: Backend>(
    control: &mut BridgeControl<B>,
    bridge: &str,
    outcome: &TraceOutcome,
) -> view::Trace {
    let origin = Origin::from(outcome.in_port);
    show(control, bridge, origin, &outcome.bytes, &outcome.explanation)
}

/// The maximum number of chain traversals in a trace: flow entries may send packets from a chain into it
/// again.
const CHAIN_TRACES_MAX: usize = 16;

fn show<B: Backend>(
    control: &mut BridgeControl<B>,
    bridge: &str,
    origin: Origin,
    frame: &[u8],
    explanation: &Explanation,
) -> view::Trace {
    let mut trace = view::Trace {
        bridge: bridge.to_owned(),
        in_port: origin.in_port.raw(),
        packet: HEXLOWER.encode(frame),
        fields: fields(origin, frame),
        notes: Vec::new(),
        steps: Vec::new(),
        outputs: Vec::new(),
        dropped: None,
    };
    if let Some(marked) = control.datapath().mark_of(origin.in_port, &key(origin, frame)) {
        let offload::MarkedKey {
            slot,
            mark,
            level,
            is_dropped,
        } = marked;
        let level = super::offload::level(level);
        trace.notes.push(if is_dropped {
            format!("the device drops such packets: slot {slot}; the trace goes through the tables")
        } else {
            format!(
                "the device marks such packets with {mark:#x}: slot {slot}, level {level}; the trace goes through the tables"
            )
        });
    }
    // Packets that went into chains, in order.
    let mut entered = add_all(control, &mut trace, frame, explanation);
    for _ in 0..CHAIN_TRACES_MAX {
        let Some((port, frame)) = entered.pop_front() else {
            return trace;
        };
        let Some(chain_trace) = control.trace_chain(port, &frame) else {
            continue;
        };
        if let Some((port, frame)) = add_chain_trace(control, &mut trace, &chain_trace) {
            let explanation = control.explain(port, &frame);
            entered.extend(add_all(control, &mut trace, &frame, &explanation));
        }
    }
    if !entered.is_empty() {
        let note = format!(
            "more than {CHAIN_TRACES_MAX} passages through chains: the rest is not shown; do entries make a loop?"
        );
        trace.notes.push(note);
    }
    trace
}

/// The logical port that a packet was sent to, and the packet.
type Entered = (PortNo, Vec<u8>);

/// Adds all steps of a packet to the trace. Returns the packets that entered chains.
fn add_all<B: Backend>(
    control: &BridgeControl<B>,
    trace: &mut view::Trace,
    frame: &[u8],
    explanation: &Explanation,
) -> VecDeque<Entered> {
    let mut entered = VecDeque::new();
    // The bytes of the packet at the current step.
    let mut frame = frame;
    for step in &explanation.steps {
        match step {
            Step::Packet(now) => frame = now,
            Step::Output { port, frame, .. } if is_of_chain(control, *port) => {
                entered.push_back((*port, frame.clone()));
                note_effect(trace, format!("output to {}", port_name(control, *port)));
            }
            Step::Output {
                port, frame: sent, ..
            } => match control.explain_route(*port, sent) {
                Some(routed) => add_routed(trace, *port, &routed),
                None => add(control, trace, frame, step),
            },
            _ => add(control, trace, frame, step),
        }
    }
    entered
}

/// Adds the steps of a packet in the router, to which the bridge sent it by this port.
fn add_routed(trace: &mut view::Trace, port: PortNo, routed: &RouteExplanation) {
    for step in &routed.steps {
        match step {
            RouteStep::Dropped(reason) => {
                trace.dropped = Some(reason.name().to_owned());
                note_effect(trace, format!("dropped: {}", reason.description()));
            }
            RouteStep::Sent { interface, frame } => {
                trace.outputs.push(view::TraceOutput {
                    port: interface.to_string(),
                    number: port.raw(),
                    queue: None,
                    packet: HEXLOWER.encode(frame),
                });
                note_effect(trace, format!("to the VLAN of interface {interface}"));
            }
            _ => note_effect(trace, step.to_string().trim_start().to_owned()),
        }
    }
}

fn is_of_chain<B: Backend>(control: &BridgeControl<B>, port: PortNo) -> bool {
    let port = control.ports().get(&port);
    port.is_some_and(|port| matches!(port.model.device, millrace_model::Device::Chain(_)))
}

fn port_name<B: Backend>(control: &BridgeControl<B>, port: PortNo) -> String {
    match control.ports().get(&port) {
        Some(status) => format!("port {port} ({})", status.model.name),
        None => format!("port {port}"),
    }
}

/// Adds the path of a packet through a chain. Returns the port that receives it afterwards, and its bytes.
fn add_chain_trace<B: Backend>(
    control: &BridgeControl<B>,
    trace: &mut view::Trace,
    chain_trace: &ChainTrace,
) -> Option<Entered> {
    let hop = |hop: &TracedHop| {
        format!(
            "hop {} ({}, {}): {}",
            hop.name, hop.function, hop.class, hop.outcome
        )
    };
    let mut effects: Vec<String> = chain_trace.hops.iter().map(hop).collect();
    let received = match &chain_trace.end {
        ChainTraceEnd::Received { port, frame } => {
            effects.push(format!("comes in at {}", port_name(control, *port)));
            Some((*port, frame.clone()))
        }
        ChainTraceEnd::Sent { port, frame } => {
            effects.push(format!("output to {}", port_name(control, *port)));
            trace.outputs.push(output(control, *port, None, frame));
            None
        }
        ChainTraceEnd::Dropped { hop } => {
            trace.dropped = Some(format!("chain {}, hop {hop}", chain_trace.chain));
            None
        }
    };
    trace.steps.push(view::TraceStep {
        table: None,
        chain: Some(chain_trace.chain.clone()),
        matched: None,
        effects,
    });
    received
}

fn output<B: Backend>(
    control: &BridgeControl<B>,
    port: PortNo,
    queue: Option<millrace_types::QueueId>,
    frame: &[u8],
) -> view::TraceOutput {
    let status = control.ports().get(&port);
    view::TraceOutput {
        port: status.map_or_else(|| port.to_string(), |port| port.model.name.to_string()),
        number: port.raw(),
        queue: queue.map(|queue| queue.0),
        packet: HEXLOWER.encode(frame),
    }
}

/// Adds a line to the last step.
fn note_effect(trace: &mut view::Trace, effect: String) {
    match trace.steps.last_mut() {
        Some(last) => last.effects.push(effect),
        None => trace.steps.push(view::TraceStep {
            table: None,
            chain: None,
            matched: None,
            effects: vec![effect],
        }),
    }
}

/// Returns the reason why NORMAL forwards a packet without a matching entry, or why it does not.
fn after_a_miss<B: Backend>(control: &BridgeControl<B>) -> &'static str {
    let standalone = control.config().fail_mode == millrace_model::FailMode::Standalone;
    match (control.datapath().forwarding().standalone(), standalone) {
        (Standalone::Misses | Standalone::All, _) => {
            "forwarded by NORMAL, because fail_mode is standalone and no controller is connected"
        }
        (Standalone::Off, true) => "not forwarded by NORMAL, because a controller is connected",
        (Standalone::Off, false) => "not forwarded by NORMAL, because fail_mode is secure",
    }
}

/// Returns the reason why NORMAL floods a packet with a destination that is not in the MAC table.
fn flooded(frame: &[u8]) -> &'static str {
    match frame.get(..6) {
        Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => "NORMAL: the destination is broadcast: flood",
        Some([first, ..]) if first & 1 == 1 => "NORMAL: the destination is multicast: flood",
        _ => "NORMAL: the destination is not in the MAC table: flood",
    }
}

fn add<B: Backend>(control: &BridgeControl<B>, trace: &mut view::Trace, frame: &[u8], step: &Step) {
    let effect = match step {
        Step::Matched {
            table,
            priority,
            cookie,
            match_,
        } => {
            let actions = instructions(control, *table, *priority, match_);
            trace.steps.push(view::TraceStep {
                table: Some(table.0),
                chain: None,
                matched: Some(view::Matched {
                    priority: priority.0,
                    cookie: cookie.to_string(),
                    matching: match_.to_string(),
                    actions,
                }),
                effects: Vec::new(),
            });
            return;
        }
        Step::Missed { table } => {
            trace.steps.push(view::TraceStep {
                table: Some(table.0),
                chain: None,
                matched: None,
                effects: vec![after_a_miss(control).to_owned()],
            });
            return;
        }
        Step::Action {
            action: Action::Output { .. } | Action::Group(_),
            ..
        }
        | Step::Packet(_) => return,
        Step::Action {
            action,
            from_set: false,
        } => action.to_string(),
        Step::Action {
            action,
            from_set: true,
        } => format!("action set: {action}"),
        Step::Bucket { group, kind, bucket } => format!("group {group} ({kind}): bucket {bucket}"),
        Step::Meter { meter, band: None } => format!("meter {meter}: within its rates"),
        Step::Meter {
            meter,
            band: Some(band),
        } => format!("meter {meter}: band {band} applies"),
        Step::MacLookup(Some(port)) => {
            format!(
                "NORMAL: the MAC table has the destination at {}",
                port_name(control, *port)
            )
        }
        Step::MacLookup(None) => flooded(frame).to_owned(),
        Step::Output { port, queue, frame } => {
            trace.outputs.push(output(control, *port, *queue, frame));
            format!("output to {}", port_name(control, *port))
        }
        Step::PacketIn { info, .. } if !control.takes_packet_in(info.reason) => {
            let reason = DropReason::NoController;
            trace.dropped = Some(reason.name().to_owned());
            format!("dropped: {}", reason.description())
        }
        Step::PacketIn { info, frame } => {
            trace.outputs.push(view::TraceOutput {
                port: "CONTROLLER".to_owned(),
                ..output(control, PortNo::CONTROLLER, None, frame)
            });
            let reason = match info.reason {
                PacketInReason::NoMatch => "no match",
                PacketInReason::Action => "action",
                PacketInReason::InvalidTtl => "invalid TTL",
            };
            format!("packet-in to the controllers ({reason})")
        }
        Step::Dropped(reason) => {
            trace.dropped = Some(reason.name().to_owned());
            format!("dropped: {}", reason.description())
        }
        Step::Oam(port) => format!("taken by the OAM session of {}", port_name(control, *port)),
        Step::Neighbour(port) => format!("taken by the address resolution at {}", port_name(control, *port)),
        Step::Standalone => {
            "no flow table: NORMAL forwards all packets, because fail_mode is standalone and no \
                             controller is connected"
                .to_owned()
        }
        Step::NormalIngress => {
            "no flow table: NORMAL forwards all packets of this port or VLAN, because the configuration says so"
                .to_owned()
        }
        Step::KeptFragment => "a fragment: waits for the others of its packet".to_owned(),
    };
    note_effect(trace, effect);
}

/// Returns the instructions of a matched entry, unless it was removed since.
fn instructions<B: Backend>(
    control: &BridgeControl<B>,
    table: millrace_types::TableId,
    priority: Priority,
    matching: &Match,
) -> String {
    let rule = matching.rule(priority);
    let found = control.datapath().forwarding().find(table, &rule);
    found.map_or_else(String::new, |entry| entry.instructions().to_string())
}

/// Returns the key of a packet.
fn key(origin: Origin, frame: &[u8]) -> FlowKey {
    let mut key = FlowKey::default();
    key.extract(frame, &Layers::parse(frame, Depth::All));
    key.set_field(Field::InPort, origin.in_port.raw().into());
    key.set_field(Field::InPhyPort, origin.in_phy_port.raw().into());
    key.set_field(Field::Metadata, origin.metadata.into());
    key.set_field(Field::TunnelId, origin.tunnel_id.into());
    key
}

/// Returns the fields of a packet that are not zero, as a match.
fn fields(origin: Origin, frame: &[u8]) -> String {
    let mut key = key(origin, frame);
    // For a port of this switch it says the same as in_port.
    key.set_field(Field::InPhyPort, 0);
    let mut builder = Match::builder();
    for field in Field::ALL {
        let value = key.field(field);
        let present = match field.layer() {
            Some(layer) => key.has(layer),
            None => value != 0 || matches!(field, Field::EthDst | Field::EthSrc | Field::EthType),
        };
        // Fields that share storage differ in their prerequisites; a field whose prerequisite is not met is omitted.
        let mut tried = builder.clone();
        if present && tried.push(field, value, None).is_ok() && tried.finish().is_ok() {
            builder = tried;
        }
    }
    builder
        .finish()
        .map_or_else(|_| String::new(), |fields| fields.to_string())
}

/// Starts a capture.
pub(super) fn capture<B: Backend>(
    control: &mut BridgeControl<B>,
    bridge: &str,
    spec: &CaptureSpec,
) -> Result<mpsc::Receiver<CapturedPacket>, LiveError> {
    if let Some(port) = spec.port {
        known_port(control, bridge, port)?;
    }
    let (out, captured) = mpsc::channel(CAPTURED_LEN);
    let unix_now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64);
    let epoch = unix_now.saturating_sub(control.datapath().now().nanos());
    let started = control.capture(CaptureRequest {
        filter: CaptureFilter {
            port: spec.port,
            received: spec.direction.map(|direction| direction == Direction::Rx),
            rule: (!spec.matching.is_any()).then(|| spec.matching.rule(Priority(0))),
            program: spec.program.clone(),
        },
        snap_size: spec.snap_size as usize,
        sink: Box::new(Sink { out, epoch, lost: 0 }),
    });
    if !started {
        return Err(LiveError::Unavailable {
            message: format!("bridge {bridge} has {CAPTURES_MAX} captures, which is the most"),
            next_step: "end one of them".to_owned(),
        });
    }
    Ok(captured)
}

/// The consumer of captured packets, which sends them to the REST server.
struct Sink {
    out: mpsc::Sender<CapturedPacket>,
    /// The origin of the switch's time, in nanoseconds since 1970.
    epoch: u64,
    lost: u64,
}

impl CaptureSink for Sink {
    fn take(&mut self, seen: agent::Captured) {
        self.lost += seen.lost_before;
        let packet = CapturedPacket {
            unix_nanos: self.epoch + seen.time.nanos(),
            port: seen.port,
            direction: if seen.received {
                Direction::Rx
            } else {
                Direction::Tx
            },
            size: seen.size as u32,
            bytes: seen.bytes,
            lost_before: self.lost,
        };
        match self.out.try_send(packet) {
            Ok(()) => self.lost = 0,
            Err(_) => self.lost += 1,
        }
    }

    fn is_over(&self) -> bool {
        self.out.is_closed()
    }
}
