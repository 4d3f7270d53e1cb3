//! Traces and captures of packets.

use std::io::Read;
use std::time::Duration;

use super::connection::{Client, RESPONSE_TIMEOUT};
use super::error::ClientError;
use super::query::{Params, escape};
use crate::view::{Trace, TraceLiveRequest, TraceRequest};

/// The selection of a capture.
#[derive(Debug, Clone, Default)]
pub struct CaptureOptions {
    /// Only packets of this port, by name or number.
    pub port: Option<String>,
    /// Only packets in this direction: `rx` or `tx`.
    pub direction: Option<String>,
    /// Only packets that match, in the syntax of flows.
    pub matching: Option<String>,
    /// Only packets that this program of classic BPF accepts, in the form of `tcpdump -ddd` with commas for line ends.
    pub bpf: Option<String>,
    /// The number of bytes to keep of each packet.
    pub snap: Option<u32>,
    /// The number of packets after which the capture ends.
    pub count: Option<u64>,
}

impl Client {
    /// Traces a described packet through the tables, without sending it.
    pub fn trace(&self, bridge: &str, request: &TraceRequest) -> Result<Trace, ClientError> {
        self.post(
            &format!("/api/v1/bridges/{}/trace", escape(bridge)),
            request,
            RESPONSE_TIMEOUT,
        )
    }

    /// Traces the next live packet that matches.
    pub fn trace_live(&self, bridge: &str, request: &TraceLiveRequest) -> Result<Trace, ClientError> {
        let wait = Duration::from_secs_f64(request.timeout_seconds.unwrap_or(10.0).clamp(0.0, 60.0));
        self.post(
            &format!("/api/v1/bridges/{}/trace-live", escape(bridge)),
            request,
            wait + RESPONSE_TIMEOUT,
        )
    }

    /// Returns a capture as pcapng, which ends when the server ends it or the reader is dropped.
    pub fn capture(&self, bridge: &str, options: &CaptureOptions) -> Result<impl Read + use<>, ClientError> {
        let mut params = Params::default();
        params.maybe("port", options.port.as_ref());
        params.maybe("direction", options.direction.as_ref());
        params.maybe("match", options.matching.as_ref());
        params.maybe("bpf", options.bpf.as_ref());
        params.maybe("snap", options.snap);
        params.maybe("count", options.count);
        let path = format!("/api/v1/bridges/{}/capture{}", escape(bridge), params.0);
        Ok(self.check(self.get_with(&path, None))?.into_body().into_reader())
    }
}
