//! Traces of packets: a described one, or the next live one that matches.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use millrace_flow::Match;
use millrace_flow::compose::{MAX_FRAME_SIZE, PacketText};
use millrace_types::PortNo;

use crate::server::app::App;
use crate::server::extract::{Body, Path};
use crate::server::live::{LiveError, TracePacket};
use crate::server::port_names::with_port_numbers;
use crate::view::{Port, Problem, ProblemKind, Trace, TraceLiveRequest, TraceRequest};

/// The smallest frame that can be traced, in bytes: an Ethernet header.
const MIN_FRAME_SIZE: usize = 14;
/// The default wait for a live packet.
const LIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Trace a described packet through the tables, without sending it
#[utoipa::path(post, path = "/api/v1/bridges/{bridge}/trace", tag = "trace", request_body = TraceRequest,
    params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Trace), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn trace(
    State(app): State<App>,
    Path(bridge): Path<String>,
    Body(request): Body<TraceRequest>,
) -> Result<Json<Trace>, Problem> {
    let ports = app.ports(bridge.clone()).await?;
    let (packet, note) = packet(&request, &ports)?;
    let mut trace = app.with_live(move |live| live.trace(&bridge, &packet)).await??;
    trace.notes.extend(note);
    Ok(Json(trace))
}

/// Trace the next live packet that matches
#[utoipa::path(post, path = "/api/v1/bridges/{bridge}/trace-live", tag = "trace", request_body = TraceLiveRequest,
    params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = Trace), (status = 408, description = "No packet matched in time", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn trace_live(
    State(app): State<App>,
    Path(bridge): Path<String>,
    Body(request): Body<TraceLiveRequest>,
) -> Result<Json<Trace>, Problem> {
    let timeout = match request.timeout_seconds {
        None => LIVE_TIMEOUT,
        Some(seconds) if (0.1..=60.0).contains(&seconds) => Duration::from_secs_f64(seconds),
        Some(seconds) => return Err(invalid(format!("timeout_seconds={seconds}: expected 0.1 to 60"))),
    };
    let ports = app.ports(bridge.clone()).await?;
    let text = with_port_numbers(&request.matching, &ports);
    let filter: Match = text.parse().map_err(|error| invalid(format!("match: {error}")))?;
    let permit = app.long_request()?;
    let seen = app
        .with_live_for(timeout + Duration::from_secs(5), move |live| {
            let seen = live.trace_live(&bridge, &filter, timeout);
            drop(permit);
            seen
        })
        .await??;
    let none = || {
        let detail = format!("no packet matched within {} s", timeout.as_secs_f64());
        Problem::new(ProblemKind::Timeout, detail)
    };
    seen.map(Json).ok_or_else(none)
}

fn invalid(detail: String) -> Problem {
    Problem::new(ProblemKind::Invalid, detail)
}

/// Returns the described packet. If the request has no ingress port, the packet gets the first port of the
/// bridge, and the returned note says so. A given port must exist.
fn packet(request: &TraceRequest, ports: &[Port]) -> Result<(TracePacket, Option<String>), Problem> {
    let text = with_port_numbers(request.packet.as_deref().unwrap_or(""), ports);
    let described: PacketText = text
        .parse()
        .map_err(|error| invalid(format!("packet: {error}")))?;
    let frame = match &request.hex {
        Some(hex) => frame_of(hex)?,
        None => described
            .frame()
            .map_err(|error| invalid(format!("packet: {error}")))?,
    };
    let (metadata, tunnel_id) = described.pipeline_fields();
    let first = ports.first().map(|port| PortNo::from_raw(port.number));
    let note = match (described.in_port(), ports.first()) {
        (None, Some(port)) => Some(format!(
            "in_port is not given: port {} ({}) is assumed",
            port.number, port.name
        )),
        _ => None,
    };
    let Some(in_port) = described.in_port().or(first) else {
        let detail = "the bridge has no port that could receive a packet".to_owned();
        return Err(Problem::new(ProblemKind::Conflict, detail).with_next_step("add a port, or give in_port"));
    };
    if in_port != PortNo::CONTROLLER && !ports.iter().any(|port| port.number == in_port.raw()) {
        return Err(LiveError::NoPort {
            bridge: ports.first().map(|port| port.bridge.clone()).unwrap_or_default(),
            port: in_port.to_string(),
            ports: ports.iter().map(|port| port.name.clone()).collect(),
        }
        .into());
    }
    let packet = TracePacket {
        in_port,
        metadata,
        tunnel_id,
        frame,
    };
    Ok((packet, note))
}

fn frame_of(hex: &str) -> Result<Vec<u8>, Problem> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter(|c| !c.is_ascii_whitespace() && *c != b':')
        .collect();
    let octet = |pair: &[u8]| {
        let text = core::str::from_utf8(pair)
            .ok()
            .filter(|text| text.bytes().all(|c| c.is_ascii_hexdigit()))?;
        if text.len() == 2 {
            u8::from_str_radix(text, 16).ok()
        } else {
            None
        }
    };
    let frame: Option<Vec<u8>> = digits.chunks(2).map(octet).collect();
    let expected = || {
        invalid(format!(
            "hex: expected {MIN_FRAME_SIZE} to {MAX_FRAME_SIZE} octets of two hex digits"
        ))
    };
    frame
        .filter(|frame| (MIN_FRAME_SIZE..=MAX_FRAME_SIZE).contains(&frame.len()))
        .ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_from_hex_with_blanks_and_colons() {
        let plain = "020000000001020000000002".to_owned() + "0800";
        assert_eq!(frame_of(&plain).unwrap().len(), 14);
        assert_eq!(
            frame_of("02:00:00:00:00:01 02:00:00:00:00:02 08 00").unwrap(),
            frame_of(&plain).unwrap()
        );
        for wrong in [
            "",
            "02",
            "zz".repeat(20).as_str(),
            &"0".repeat(29),
            &"00".repeat(9601),
            "+1".repeat(14).as_str(),
        ] {
            assert!(frame_of(wrong).is_err(), "{}", wrong.len());
        }
    }
}
