//! `millrace trace`: the processing of a packet in tables and chains.

use anyhow::Result;
use millrace_api::view::{Matched, Trace, TraceLiveRequest, TraceRequest};

use crate::cli;
use crate::human::port;
use crate::output::Session;

pub(crate) fn run(session: &Session, args: &cli::Trace) -> Result<()> {
    let client = session.client()?;
    let trace = if args.live {
        let request = TraceLiveRequest {
            matching: args.packet.clone(),
            timeout_seconds: Some(args.timeout.as_secs_f64()),
        };
        client.trace_live(&args.bridge, &request)?
    } else {
        let packet = (!args.packet.is_empty()).then(|| args.packet.clone());
        client.trace(
            &args.bridge,
            &TraceRequest {
                packet,
                hex: args.hex.clone(),
            },
        )?
    };
    session.print(&trace, text)
}

fn text(trace: &Trace) -> String {
    let mut lines = vec![
        format!(
            "bridge {}, packet of {} bytes in from port {}",
            trace.bridge,
            trace.packet.len() / 2,
            port(trace.in_port)
        ),
        format!("  {}", trace.fields),
    ];
    lines.extend(trace.notes.iter().map(|note| format!("note: {note}")));
    for step in &trace.steps {
        let heading = match (step.table, &step.chain) {
            (Some(table), _) => format!("table {table}"),
            (None, Some(chain)) => format!("chain {chain}"),
            (None, None) => "then".to_owned(),
        };
        match (&step.matched, step.table) {
            (Some(matched), _) => lines.push(format!("{heading}: {}", entry(matched))),
            (None, Some(_)) => lines.push(format!("{heading}: no entry matches")),
            (None, None) => lines.push(format!("{heading}:")),
        }
        lines.extend(step.effects.iter().map(|effect| format!("  {effect}")));
    }
    for output in &trace.outputs {
        let queue = output
            .queue
            .map_or_else(String::new, |queue| format!(", queue {queue}"));
        let number = port(output.number);
        let name = if output.port == number {
            number
        } else {
            format!("{} ({number})", output.port)
        };
        let change = if output.packet == trace.packet {
            "unchanged".to_owned()
        } else {
            format!("as {} bytes:{}", output.packet.len() / 2, dump(&output.packet))
        };
        lines.push(format!("out: port {name}{queue}, {change}"));
    }
    match &trace.dropped {
        Some(reason) => lines.push(format!("dropped: {reason}")),
        None if trace.outputs.is_empty() => lines.push("no packet leaves".to_owned()),
        None => {}
    }
    lines.join("\n") + "\n"
}

fn entry(matched: &Matched) -> String {
    let comma = if matched.matching.is_empty() { "" } else { "," };
    let cookie = if matched.cookie == "0x0" {
        String::new()
    } else {
        format!(" (cookie {})", matched.cookie)
    };
    format!(
        "priority={}{comma}{} actions={}{cookie}",
        matched.priority, matched.matching, matched.actions
    )
}

/// Returns hex digits in lines of 16 octets; octets after the 64th are only counted.
fn dump(hex: &str) -> String {
    let shown = hex.get(..128).unwrap_or(hex);
    let mut text = String::new();
    for (number, octet) in shown.as_bytes().chunks(2).enumerate() {
        text += if number % 16 == 0 { "\n    " } else { " " };
        text += &String::from_utf8_lossy(octet);
    }
    if hex.len() > shown.len() {
        text += &format!("\n    and {} bytes more", (hex.len() - shown.len()) / 2);
    }
    text
}
