//! Alerts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_ips_engine::app::{AppProtocol, FrameView};
use millrace_ips_engine::detect::dataset::FoundJson;
use millrace_ips_engine::event::{Alert, AlertContext, Tunnel, protocol_name};
use millrace_ips_engine::packet::payload;
use millrace_ips_engine::{Action, Direction, LinkType};
use millrace_ips_rules::frames;

use crate::metadata::Notes;
use crate::object::Object;
use crate::place::Place;
use crate::protocol::{TCP, has_ports};
use crate::tables::Target;
use crate::text::{address, printable, text};
use crate::timestamp::timestamp;
use crate::writer::{Frame, Writer, counters, file};
use crate::{app, metadata};

/// Names of link types (https://www.tcpdump.org/linktypes.html).
const LINKS: [(u32, &str); 9] = [
    (0, "NULL"),
    (1, "EN10MB"),
    (9, "PPP"),
    (101, "RAW"),
    (104, "C_HDLC"),
    (113, "LINUX_SLL"),
    (228, "IPV4"),
    (229, "IPV6"),
    (276, "LINUX_SLL2"),
];

/// Writes an alert as a line. `frame` holds the bytes of the packet, and its link type.
pub(crate) fn write(writer: &Writer, alert: &Alert, frame: Frame<'_>, out: &mut Vec<u8>) {
    let mut line = writer.begin(&alert.subject, "alert", frame, out);
    if let Some(transaction) = alert.transaction {
        line.field("tx_id", transaction);
    }
    line.object("alert", |out| rule(out, writer, alert));
    line.object("verdict", |out| verdict(out, alert));
    match (&alert.context, alert.app) {
        (Some(context), Some(_)) => app::protocols(&mut line, &context.flow),
        (None, Some(app)) => {
            line.field("app_proto", app.name());
        }
        (_, None) => {}
    }
    if let Some(view) = &alert.frame {
        line.object("frame", |out| self::frame(out, view, None));
    }
    if let Some(tunnel) = &alert.tunnel {
        line.object("tunnel", |out| self::tunnel(out, tunnel, alert.subject.packet));
    }
    match &alert.context {
        Some(context) => self::context(&mut line, writer, alert, context),
        None => {
            let notes = Notes {
                packet_variables: &alert.packet_variables,
                ..Notes::default()
            };
            metadata::write(&mut line, &writer.rules, notes);
        }
    }
    if writer.layout.packets {
        packet(&mut line, alert, frame);
    }
    writer.end(line);
}

/// Writes the packet of an alert, and the data on which its rule matched: those of the stream, or of the packet.
fn packet(line: &mut Object<'_>, alert: &Alert, frame: Frame<'_>) {
    let evidence = alert.evidence.as_deref();
    // A packet that the engine made to flush a flow has no frame.
    let frame = frame.filter(|_| alert.subject.packet != 0);
    let packet = match evidence.and_then(|evidence| Some((evidence.packet.as_deref()?, evidence.has_link))) {
        Some((bytes, true)) => frame.map(|(_, link)| (bytes, link)),
        Some((bytes, false)) => Some((bytes, LinkType::RAW)),
        None => frame,
    };
    let of_stream = evidence.and_then(|evidence| evidence.stream.as_deref());
    let of_packet = || packet.and_then(|(bytes, link)| payload(bytes, LinkType(link)));
    if let Some(payload) = of_stream.or_else(of_packet).filter(|payload| !payload.is_empty()) {
        line.field("payload", STANDARD.encode(payload))
            .field("payload_printable", printable(payload))
            .field("payload_length", payload.len())
            .field("stream", u8::from(of_stream.is_some()));
    }
    if let Some((bytes, link)) = packet {
        line.field("packet", STANDARD.encode(bytes))
            .object("packet_info", |out| {
                out.field("linktype", link);
                if let Some((_, name)) = LINKS.iter().find(|(number, _)| *number == link) {
                    out.field("linktype_name", name);
                }
            });
    }
}

/// Writes the rule of an alert, and what it found.
pub(crate) fn rule(out: &mut Object<'_>, writer: &Writer, alert: &Alert) {
    let default = Default::default();
    let texts = writer.rules.find(alert.gid, alert.sid).unwrap_or(&default);
    let action = if blocks(alert.action) {
        "blocked"
    } else {
        "allowed"
    };
    out.field("action", action)
        .field("gid", alert.gid)
        .field("signature_id", alert.sid)
        .field("rev", alert.rev)
        .field("signature", &texts.message)
        .field("category", &texts.category)
        .field("severity", texts.severity);
    if let Some(target) = texts.target {
        ends(out, alert, target);
    }
    if !texts.metadata.is_empty() {
        out.field("metadata", &texts.metadata);
    }
    if writer.layout.details {
        if !texts.references.is_empty() {
            out.field("references", &texts.references);
        }
        if !texts.rule.is_empty() {
            out.field("rule", &texts.rule);
        }
    }
    for (name, is_extra) in [("context", false), ("extra", true)] {
        let found: Vec<_> = alert
            .json
            .iter()
            .filter(|found| found.is_extra == is_extra)
            .collect();
        let captured = match is_extra {
            true => &[][..],
            false => &alert.captured,
        };
        if !found.is_empty() || !captured.is_empty() {
            out.object(name, |out| {
                json(out, &found);
                let is_new = |name: &[u8], at: usize| {
                    found.iter().all(|value| value.key != name)
                        && captured[..at].iter().all(|(known, _)| known != name)
                };
                let captured = captured.iter().enumerate();
                for (_, (name, value)) in captured.filter(|(at, (name, _))| is_new(name, *at)) {
                    out.bytes(&text(name), value);
                }
            });
        }
    }
}

/// Writes the ends of an attack: the option `target` names the end that is attacked.
fn ends(out: &mut Object<'_>, alert: &Alert, target: Target) {
    let subject = &alert.subject;
    let (source, destination) = match target {
        Target::Destination => (*subject, subject.reversed()),
        Target::Source => (subject.reversed(), *subject),
    };
    for (name, end) in [("source", source), ("target", destination)] {
        out.object(name, |out| {
            out.field("ip", address(end.src));
            if let Some((port, _)) = end.ports.filter(|_| has_ports(end.protocol)) {
                out.field("port", port);
            }
        });
    }
}

/// Writes the JSON values of sets by their keys. Of several with a key, the first is written.
fn json(out: &mut Object<'_>, found: &[&FoundJson]) {
    for (at, value) in found.iter().enumerate() {
        let is_known = found[..at].iter().any(|earlier| earlier.key == value.key);
        if let Ok(object) = serde_json::from_slice::<serde_json::Value>(&value.json)
            && !is_known
        {
            out.field(&text(&value.key), object);
        }
    }
}

/// Writes the decision about the packet, in which all matching rules and policies take part.
pub(crate) fn verdict(out: &mut Object<'_>, alert: &Alert) {
    let action = alert.packet_action;
    out.field("action", if blocks(action) { "drop" } else { "alert" });
    let direction = alert.context.as_ref().map(|context| context.direction);
    let target = match (action, direction) {
        (Action::RejectBoth, _) => "both",
        (Action::RejectSource, Some(Direction::ToServer))
        | (Action::RejectDestination, Some(Direction::ToClient)) => "to_client",
        (Action::RejectSource, Some(Direction::ToClient))
        | (Action::RejectDestination, Some(Direction::ToServer)) => "to_server",
        _ => return,
    };
    let means = match alert.subject.protocol {
        TCP => "tcp-reset",
        _ => "icmp-prohib",
    };
    out.field("reject-target", target).field("reject", [means]);
}

/// Writes a frame, and its first bytes in its event.
pub(crate) fn frame(out: &mut Object<'_>, view: &FrameView, payload: Option<&[u8]>) {
    let name = frames::name(view.kind).map_or("", |(_, name)| name);
    let direction = match view.direction {
        Direction::ToServer => "toserver",
        Direction::ToClient => "toclient",
    };
    out.field("type", name)
        .field("id", view.id)
        .field("direction", direction);
    if let Some(begin) = view.begin {
        out.field("stream_offset", begin);
    }
    if let Some(size) = view.size {
        out.field("length", size);
    }
    if let Some(payload) = payload {
        out.field("payload", STANDARD.encode(payload))
            .field("payload_printable", printable(payload));
    }
    out.field("complete", view.is_complete);
}

/// Writes the outermost packet around that of an alert.
fn tunnel(out: &mut Object<'_>, tunnel: &Tunnel, packet: u64) {
    let ports = tunnel.ports.filter(|_| has_ports(tunnel.protocol));
    out.field("src_ip", address(tunnel.src));
    if let Some((source, _)) = ports {
        out.field("src_port", source);
    }
    out.field("dest_ip", address(tunnel.dst));
    if let Some((_, destination)) = ports {
        out.field("dest_port", destination);
    }
    out.field("proto", protocol_name(tunnel.protocol).as_ref())
        .field("depth", tunnel.depth);
    if packet != 0 {
        out.field("pcap_cnt", packet);
    }
    // The outermost packet is one of a frame, or of its fragments.
    out.field("pkt_src", "wire/pcap");
}

/// Writes the flow and the transaction of an alert.
fn context(line: &mut Object<'_>, writer: &Writer, alert: &Alert, context: &AlertContext) {
    let notes = Notes {
        bits: &context.bits,
        counters: &context.counters,
        variables: &context.variables,
        packet_variables: &alert.packet_variables,
    };
    metadata::write(line, &writer.rules, notes);
    // The records of DCE/RPC outside of SMB are only for rules.
    if let Some(app) = alert.app.filter(|app| *app != AppProtocol::Dcerpc) {
        app::record(
            line,
            app,
            &context.record,
            alert.transaction,
            Place::Alert,
            &writer.layout,
        );
    }
    if !context.files.is_empty() {
        line.array("files", &context.files, file);
    }
    line.field(
        "direction",
        match context.direction {
            Direction::ToServer => "to_server",
            Direction::ToClient => "to_client",
        },
    );
    line.object("flow", |out| {
        counters(out, &context.flow);
        out.field("start", timestamp(context.flow.start))
            .field("src_ip", address(context.flow.key.client))
            .field("dest_ip", address(context.flow.key.server));
        if has_ports(context.flow.key.protocol) {
            out.field("src_port", context.flow.key.client_port)
                .field("dest_port", context.flow.key.server_port);
        }
    });
}

/// Returns true if an action blocks the packet.
fn blocks(action: Action) -> bool {
    match action {
        Action::None | Action::PassPacket | Action::PassFlow => false,
        Action::DropPacket
        | Action::DropFlow
        | Action::RejectSource
        | Action::RejectDestination
        | Action::RejectBoth => true,
    }
}
