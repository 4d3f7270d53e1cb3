//! A capture: packets of a bridge as pcapng, streamed until the client closes the connection.

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use millrace_flow::Match;
use millrace_types::PortNo;
use millrace_wire::bpf::Program;
use serde::Deserialize;
use tokio_stream::wrappers::ReceiverStream;

use crate::server::app::App;
use crate::server::extract::{Path, Query};
use crate::server::live::{CaptureSpec, Direction};
use crate::server::pcapng::Writer;
use crate::server::port_names::with_port_numbers;
use crate::view::{Problem, ProblemKind};

/// The largest frame of the switch in bytes.
const SNAP_SIZE_MAX: u32 = 9600;

/// The selection of a capture.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaptureParams {
    /// Only packets of this port, by name or number.
    port: Option<String>,
    /// Only packets in this direction: `rx` (received by the switch) or `tx` (sent).
    #[param(inline)]
    direction: Option<DirectionParam>,
    /// Only packets that match, in the syntax of flows.
    #[serde(rename = "match")]
    matching: Option<String>,
    /// Only packets that this program of classic BPF accepts: the output of `tcpdump -ddd -y EN10MB EXPRESSION`, with
    /// commas for line ends.
    bpf: Option<String>,
    /// The number of bytes to keep of each packet, 1 to 9600; the default is all.
    snap: Option<u32>,
    /// The number of packets after which the capture ends; the default is no limit.
    count: Option<u64>,
}

/// `rx` or `tx`.
#[derive(Debug, Clone, Copy, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DirectionParam {
    /// Received by the switch.
    Rx,
    /// Sent by the switch.
    Tx,
}

/// A capture file.
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "the schema of a body that is written block by block")]
pub(crate) struct CaptureFile(Vec<u8>);

/// Capture packets of a bridge as pcapng, until the client closes the connection
#[utoipa::path(get, path = "/api/v1/bridges/{bridge}/capture", tag = "trace",
    params(("bridge" = String, Path, description = "Name of the bridge"), CaptureParams),
    responses((status = 200, body = CaptureFile, content_type = "application/x-pcapng"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn capture(
    State(app): State<App>,
    Path(bridge): Path<String>,
    Query(params): Query<CaptureParams>,
) -> Result<Response, Problem> {
    let bad = |detail: String| Problem::new(ProblemKind::BadRequest, detail);
    let snap_size = params.snap.unwrap_or(SNAP_SIZE_MAX);
    if !(1..=SNAP_SIZE_MAX).contains(&snap_size) {
        return Err(bad(format!("snap={snap_size}: expected 1 to {SNAP_SIZE_MAX}")));
    }
    let ports = app.ports(bridge.clone()).await?;
    let port = match params.port {
        Some(port) => Some(PortNo::from_raw(app.port(bridge.clone(), port).await?.number)),
        None => None,
    };
    let matching = with_port_numbers(params.matching.as_deref().unwrap_or(""), &ports);
    let matching: Match = matching.parse().map_err(|error| bad(format!("match: {error}")))?;
    let program = params.bpf.as_deref().map(str::parse::<Program>).transpose();
    let program = program.map_err(|error| bad(format!("bpf: {error}")))?;
    let direction = params.direction.map(|direction| match direction {
        DirectionParam::Rx => Direction::Rx,
        DirectionParam::Tx => Direction::Tx,
    });
    let permit = app.long_request()?;
    let spec = CaptureSpec {
        port,
        direction,
        matching,
        program,
        snap_size,
    };
    let packets = app.with_live(move |live| live.capture(&bridge, &spec)).await??;
    let interfaces: Vec<_> = ports
        .into_iter()
        .filter(|given| port.is_none_or(|port| port.raw() == given.number))
        .map(|given| (PortNo::from_raw(given.number), given.name, given.device))
        .collect();
    let (mut writer, header) = Writer::new(&interfaces, snap_size);
    let limit = usize::try_from(params.count.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let blocks = ReceiverStream::new(packets).take(limit).map(move |packet| {
        // The stream owns the permit, so the permit is released when the capture ends.
        let _permit = &permit;
        writer.packet(&packet)
    });
    let whole = futures::stream::once(async { header })
        .chain(blocks)
        .take_until(app.closing());
    let body = Body::from_stream(whole.map(Ok::<_, std::convert::Infallible>));
    Ok((
        [
            (header::CONTENT_TYPE, "application/x-pcapng"),
            (header::CACHE_CONTROL, "no-store"),
        ],
        body,
    )
        .into_response())
}
