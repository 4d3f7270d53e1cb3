//! CONNECT: the end of the request, and the first bytes of its tunnel.

use super::{RequestSide, State};
use crate::app::AppSettings;
use crate::app::http::framing;
use crate::app::http::pairing::Pairing;
use crate::app::http::readings::{Framing, Kind, framed};
use crate::app::http::request_line::{METHODS, is_space};
use crate::app::http::step::Step;
use crate::app::transaction::Transactions;

impl RequestSide {
    /// Completes a CONNECT request that is held until its response.
    pub(in crate::app::http) fn end_connect(
        &mut self,
        pairing: &mut Pairing,
        out: &mut Transactions,
        settings: &AppSettings,
    ) {
        if self.state == State::ConnectHeld {
            self.end_headers(pairing, out, settings);
        }
    }

    /// Handles bytes after CONNECT before its answer, in mode `ips`. They are forwarded now, and are requests if the server
    /// refuses the tunnel (RFC 9110, section 9.3.6), so they are parsed as requests, too: by a further reading, which ends the
    /// CONNECT with its headers.
    pub(super) fn speaks_early(&mut self, out: &mut Transactions, settings: &AppSettings) -> Step {
        if self.forks.has(Kind::End) {
            return Step::NeedMore;
        }
        if !settings.is_asymmetric {
            self.differ(out, framing::TUNNEL);
        }
        self.fork(Kind::End, [framed(Framing::None)]);
        match self.forks.is_empty() {
            true => Step::NeedMore,
            false => Step::Consumed(0),
        }
    }

    /// Returns true while the first bytes of a tunnel do not show whether it carries HTTP.
    pub(in crate::app::http) fn is_in_tunnel(&self) -> bool {
        self.state == State::Tunnel
    }

    /// Decides from the first line after CONNECT whether the tunnel carries HTTP.
    pub(super) fn probe_tunnel(&mut self, data: &[u8], pairing: &mut Pairing) -> Step {
        if data.is_empty() {
            return Step::NeedMore;
        }
        let size = data.iter().position(|&byte| is_space(byte)).unwrap_or(data.len());
        if METHODS.contains(&&data[..size]) && size < data.len() {
            self.state = State::Line;
            pairing.resumes_http = true;
            return Step::Consumed(0);
        }
        if size == data.len() && METHODS.iter().any(|method| method.starts_with(data)) {
            return Step::NeedMore;
        }
        pairing.is_tunnel = true;
        Step::NeedMore
    }
}
