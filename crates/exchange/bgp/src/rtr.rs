//! The RPKI to router protocol, client side (RFC 8210, version 1; RFC 6810, version 0): validated ROA payloads (VRP).
//!
//! ```text
//!   connect ── Reset Query ──► Cache Response, prefixes…, End of Data ──► the set is replaced as a whole
//!                                 ▲         │ refresh time, Serial Notify
//!          Cache Reset:           │         ▼
//!          again with Reset Query └── Serial Query
//!          retry time ◄── Error Report "No Data Available": the set stays until it expires
//! ```
//!
//! Received prefixes take effect at End of Data: an incomplete response changes nothing. A PDU that the state does not
//! permit ends the connection:
//!
//! | PDU | awaiting the answer to a query | within a response | idle |
//! | --- | --- | --- | --- |
//! | Serial Notify | ignored | ignored | a query, if its serial number is another one |
//! | Cache Response | begins the response | Corrupt Data | Corrupt Data |
//! | prefix, Router Key | Corrupt Data | part of the response | Corrupt Data |
//! | End of Data | Corrupt Data | ends the response | Corrupt Data |
//! | Cache Reset | a Reset Query; Corrupt Data after a Reset Query | Corrupt Data | a Reset Query |
//! | Error Report "No Data Available" | a Reset Query after the retry time | likewise | likewise |
//! | any other Error Report | the connection ends | likewise | likewise |
//!
//! "Corrupt Data" is the Error Report that the cache gets before the connection ends.
//!
//! Every connection begins with a Reset Query. A Serial Query would save the transfer of the set, but a cache that was
//! restarted may confirm the session and the serial number that the client names although it has other data (stayrtr
//! does), and the set would be stale for ever. If the session changes within a connection (RFC 8210, section 5.1), or
//! the cache reports corrupt data, the set is flushed at once; otherwise it stays until it expires.

mod error;
mod pdu;

use core::ops::RangeInclusive;
use std::collections::BTreeSet;

use millrace_types::{Duration, Time};

use crate::reader::Reader;
use pdu::{HEADER_SIZE, Intervals, Pdu, RESET_QUERY, SERIAL_QUERY};

pub use error::{ErrorCode, RtrError};
pub use pdu::Vrp;

/// The newest version of the protocol that the client supports.
const VERSION: u8 = 1;

/// The maximum size of a PDU that the client accepts, in bytes.
const PDU_SIZE_MAX: u32 = 8192;

/// The intervals before the first End of Data, and those of a cache of version 0, which names none. Refresh and expire
/// are the values that RFC 8210, section 6, recommends. For retry it recommends 600 s, but a cache that has just started is
/// ready sooner.
const INTERVALS: Intervals = Intervals {
    refresh: 3600,
    retry: 60,
    expire: 7200,
};
/// The permitted values of each interval in seconds (RFC 8210, section 6).
const REFRESH_RANGE: RangeInclusive<u32> = 1..=86_400;
const RETRY_RANGE: RangeInclusive<u32> = 1..=7200;
const EXPIRE_RANGE: RangeInclusive<u32> = 600..=172_800;
/// The time within which a response must be complete.
const RESPONSE_TIME: Duration = Duration::from_secs(120);

/// The response that is being received.
#[derive(Debug)]
struct Response {
    session: u16,
    /// The set as the PDUs so far make it.
    vrps: BTreeSet<Vrp>,
}

/// The state of a cache that the set corresponds to.
#[derive(Clone, Copy, Debug)]
struct CacheState {
    session: u16,
    serial: u32,
}

/// The state of the client for one cache. The state outlives connections, so that the set stays until it expires or the next
/// connection replaces it.
#[derive(Debug)]
pub struct Client {
    version: u8,
    limit: usize,
    input: Vec<u8>,
    output: Vec<u8>,
    vrps: BTreeSet<Vrp>,
    response: Option<Response>,
    known: Option<CacheState>,
    response_deadline: Option<Time>,
    refresh_at: Option<Time>,
    refresh: Duration,
    retry: Duration,
    expire: Duration,
    expires_at: Option<Time>,
    /// True if the cache has answered a query on this connection, which decides the version.
    has_answered: bool,
    /// True if a response was completed on this connection.
    has_loaded: bool,
    /// True if the cache has answered that it has no data, and has not sent a set since then.
    lacks_data: bool,
}

impl Client {
    /// Returns a client without payloads, which accepts at most `limit` payloads.
    pub fn new(limit: usize) -> Client {
        Client {
            version: VERSION,
            limit,
            input: Vec::new(),
            output: Vec::new(),
            vrps: BTreeSet::new(),
            response: None,
            known: None,
            response_deadline: None,
            refresh_at: None,
            refresh: Duration::from_secs(u64::from(INTERVALS.refresh)),
            retry: Duration::from_secs(u64::from(INTERVALS.retry)),
            expire: Duration::from_secs(u64::from(INTERVALS.expire)),
            expires_at: None,
            has_answered: false,
            has_loaded: false,
            lacks_data: false,
        }
    }

    /// Returns the payloads; `None` before the first set, and after a set has expired.
    pub fn vrps(&self, now: Time) -> Option<&BTreeSet<Vrp>> {
        self.expires_at.filter(|end| *end > now).map(|_| &self.vrps)
    }

    /// Returns the serial number of the set; `None` if there is no set.
    pub fn serial(&self) -> Option<u32> {
        self.known.map(|known| known.serial)
    }

    /// Returns true if the newest connection has delivered a set, or has confirmed the existing set.
    pub const fn has_loaded(&self) -> bool {
        self.has_loaded
    }

    /// Returns true if the cache has answered that it has no data, and has not sent a set since then.
    pub const fn lacks_data(&self) -> bool {
        self.lacks_data
    }

    /// Records a new connection. The output then begins with a query.
    pub fn connected(&mut self, now: Time) {
        if self.has_loaded && self.version != VERSION {
            // The cache may have been upgraded since the previous connection.
            self.forget_version();
        }
        self.known = None;
        self.has_answered = false;
        self.has_loaded = false;
        self.lacks_data = false;
        self.input.clear();
        self.output.clear();
        self.response = None;
        self.query(now);
    }

    /// Forgets the version and the session of a cache: sessions belong to a version (RFC 8210, section 5.1). The next
    /// connection begins with the newest version.
    const fn forget_version(&mut self) {
        self.version = VERSION;
        self.known = None;
    }

    /// Records that the connection is closed. The payloads stay until they expire.
    pub fn connection_lost(&mut self) {
        self.response = None;
        self.response_deadline = None;
        self.refresh_at = None;
    }

    /// Returns and removes the bytes to send.
    pub fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.output)
    }

    /// Returns the time of the next timer.
    pub fn deadline(&self) -> Option<Time> {
        [self.response_deadline, self.refresh_at, self.expires_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Runs the timers that are due. Returns true if the payloads have expired.
    ///
    /// # Errors
    /// [`RtrError::Late`]: the caller closes the connection.
    pub fn poll(&mut self, now: Time) -> Result<bool, RtrError> {
        if self.response_deadline.is_some_and(|deadline| deadline <= now) {
            return Err(RtrError::Late);
        }
        if self.refresh_at.is_some_and(|time| time <= now) {
            self.query(now);
        }
        // The expired set is kept, because the cache may send differences from it.
        Ok(self.expires_at.take_if(|end| *end <= now).is_some())
    }

    /// Handles received bytes. Returns true if the set of valid payloads has changed, or is valid again after
    /// its expiry.
    ///
    /// # Errors
    /// [`RtrError`]: the caller closes the connection.
    pub fn receive(&mut self, bytes: &[u8], now: Time) -> Result<bool, RtrError> {
        let mut input = core::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut has_changed = false;
        // The input is drained once, after the last complete PDU. A set has up to a million PDUs, and a drain
        // after each is slow.
        let mut rest = Reader(&input);
        loop {
            let mut reader = rest;
            let (Some(version), Some(kind), Some(field), Some(size)) =
                (reader.u8(), reader.u8(), reader.u16(), reader.u32())
            else {
                break;
            };
            if !(HEADER_SIZE..=PDU_SIZE_MAX).contains(&size) {
                let text = format!("a PDU of {size} bytes");
                let error = RtrError::protocol(ErrorCode::CORRUPT_DATA, text);
                return Err(self.fail(error, rest.0));
            }
            let Some(body) = reader.take((size - HEADER_SIZE) as usize) else {
                break;
            };
            let erroneous = rest.0.get(..size as usize).unwrap_or_default();
            rest = reader;
            match self.pdu(version, kind, field, body, now) {
                Ok(changed) => has_changed |= changed,
                // An Error Report is no answer to an Error Report (RFC 8210, section 5.11).
                Err(error) if Pdu::is_error_report(kind) => return Err(self.fail(error, &[])),
                Err(error) => return Err(self.fail(error, erroneous)),
            }
        }
        let used = input.len() - rest.0.len();
        input.drain(..used);
        self.input = input;
        Ok(has_changed)
    }

    /// Records an error that ends the connection. The output then ends with the Error Report about the erroneous PDU.
    fn fail(&mut self, error: RtrError, erroneous: &[u8]) -> RtrError {
        let is_corrupt = match &error {
            RtrError::OtherSession { .. } => true,
            RtrError::Reported { code, .. } => *code == ErrorCode::CORRUPT_DATA,
            _ => false,
        };
        if is_corrupt {
            self.vrps.clear();
            self.expires_at = None;
        }
        self.known = None;
        self.response = None;
        let erroneous = erroneous.get(..PDU_SIZE_MAX as usize / 2).unwrap_or(erroneous);
        if let Some(code) = error.report_code().filter(|_| !erroneous.is_empty()) {
            let text = error.to_string();
            self.output
                .extend(pdu::error_report(self.version, code, erroneous, &text));
        }
        error
    }

    fn query(&mut self, now: Time) {
        self.refresh_at = None;
        self.response_deadline = Some(now + RESPONSE_TIME);
        let query = match self.known {
            Some(CacheState { session, serial }) => {
                pdu::encode(self.version, SERIAL_QUERY, session, &serial.to_be_bytes())
            }
            None => pdu::encode(self.version, RESET_QUERY, 0, &[]),
        };
        self.output.extend(query);
    }

    /// Returns true from a query until its response is complete.
    const fn awaits_response(&self) -> bool {
        self.response_deadline.is_some()
    }

    fn pdu(&mut self, version: u8, kind: u8, field: u16, body: &[u8], now: Time) -> Result<bool, RtrError> {
        if Pdu::is_error_report(kind) {
            // The version of an Error Report may be the only one that the cache supports.
            if let Pdu::ErrorReport { code, text } = Pdu::parse(version, kind, field, body)? {
                return self.error_report(version, code, text, now).map(|()| false);
            }
        }
        if Pdu::is_notify(kind) && !self.has_answered {
            return Ok(false);
        }
        if version < self.version && self.known.is_none() && !self.has_answered {
            // A cache that supports only version 0 answers in version 0.
            self.version = version;
        }
        if version != self.version {
            let text = format!("protocol version {version}: expected {}", self.version);
            self.forget_version();
            return Err(RtrError::protocol(ErrorCode::UNEXPECTED_VERSION, text));
        }
        self.has_answered = true;
        match Pdu::parse(version, kind, field, body)? {
            Pdu::SerialNotify { session, serial } => self.serial_notify(session, serial, now)?,
            Pdu::CacheResponse { session } => self.cache_response(session)?,
            Pdu::Prefix { is_announced, vrp } => self.prefix(is_announced, vrp)?,
            Pdu::EndOfData {
                session,
                serial,
                intervals,
            } => return self.end_of_data(session, serial, intervals.unwrap_or(INTERVALS), now),
            Pdu::CacheReset => self.cache_reset(now)?,
            Pdu::RouterKey if self.response.is_none() => {
                return Err(RtrError::out_of_place("a router key outside of a response"));
            }
            Pdu::RouterKey | Pdu::ErrorReport { .. } => {}
        }
        Ok(false)
    }

    fn error_report(
        &mut self,
        version: u8,
        code: ErrorCode,
        text: String,
        now: Time,
    ) -> Result<(), RtrError> {
        match code {
            // The client uses the cache's older version (RFC 8210, section 7).
            ErrorCode::UNSUPPORTED_VERSION if version < self.version => {
                self.version = version;
                self.known = None;
                self.response = None;
                self.query(now);
                return Ok(());
            }
            // The cache has lost its data or still collects it. Reset Queries follow until the cache has a set (RFC 8210,
            // section 8.4).
            ErrorCode::NO_DATA => {
                self.has_answered = true;
                self.lacks_data = true;
                self.known = None;
                self.response = None;
                self.response_deadline = None;
                self.refresh_at = Some(now + self.retry);
                return Ok(());
            }
            ErrorCode::UNSUPPORTED_VERSION | ErrorCode::UNEXPECTED_VERSION => self.forget_version(),
            _ => {}
        }
        Err(RtrError::Reported { code, text })
    }

    /// Checks the session of a PDU against that of the set.
    fn check_session(&self, found: u16) -> Result<(), RtrError> {
        match self.known {
            Some(known) if known.session != found => Err(RtrError::OtherSession {
                known: known.session,
                found,
            }),
            _ => Ok(()),
        }
    }

    fn serial_notify(&mut self, session: u16, serial: u32, now: Time) -> Result<(), RtrError> {
        self.check_session(session)?;
        let is_new = self.known.is_none_or(|known| known.serial != serial);
        if is_new && !self.awaits_response() {
            self.query(now);
        }
        Ok(())
    }

    /// Begins a response. It starts from the empty set after a Reset Query, and from the known set after a Serial Query.
    fn cache_response(&mut self, session: u16) -> Result<(), RtrError> {
        self.check_session(session)?;
        if self.response.is_some() || !self.awaits_response() {
            return Err(RtrError::out_of_place("a response that answers no query"));
        }
        let vrps = match self.known {
            Some(_) => self.vrps.clone(),
            None => BTreeSet::new(),
        };
        self.response = Some(Response { session, vrps });
        Ok(())
    }

    fn prefix(&mut self, is_announced: bool, vrp: Vrp) -> Result<(), RtrError> {
        let Some(Response { vrps, .. }) = &mut self.response else {
            return Err(RtrError::out_of_place("a prefix outside of a response"));
        };
        let Vrp { prefix, max_len, asn } = vrp;
        if is_announced && !vrps.insert(vrp) {
            let text = format!("a second announcement of {prefix}-{max_len} AS{asn}");
            return Err(RtrError::protocol(ErrorCode::DUPLICATE, text));
        }
        if !is_announced && !vrps.remove(&vrp) {
            let text = format!("a withdrawal of {prefix}-{max_len} AS{asn}, which it has not announced");
            return Err(RtrError::protocol(ErrorCode::WITHDRAWAL_UNKNOWN, text));
        }
        if vrps.len() > self.limit {
            return Err(RtrError::TooMany(self.limit));
        }
        Ok(())
    }

    /// Asks for everything. A cache that answers a Reset Query in this way would be asked without end.
    fn cache_reset(&mut self, now: Time) -> Result<(), RtrError> {
        if self.response.is_some() || self.known.is_none() {
            return Err(RtrError::out_of_place(
                "a Cache Reset that answers no Serial Query",
            ));
        }
        self.known = None;
        self.query(now);
        Ok(())
    }

    fn end_of_data(
        &mut self,
        session: u16,
        serial: u32,
        intervals: Intervals,
        now: Time,
    ) -> Result<bool, RtrError> {
        let response = self
            .response
            .take()
            .ok_or_else(|| RtrError::out_of_place("End of Data outside of a response"))?;
        if session != response.session {
            return Err(RtrError::OtherSession {
                known: response.session,
                found: session,
            });
        }
        // Data must not expire before it is refreshed.
        self.expire = within(intervals.expire, &EXPIRE_RANGE);
        self.refresh = within(intervals.refresh, &REFRESH_RANGE).min(self.expire / 2);
        self.retry = within(intervals.retry, &RETRY_RANGE).min(self.expire / 2);
        self.known = Some(CacheState { session, serial });
        self.response_deadline = None;
        self.refresh_at = Some(now + self.refresh);
        self.has_loaded = true;
        self.lacks_data = false;
        let has_changed = self.vrps(now).is_none_or(|before| *before != response.vrps);
        self.expires_at = Some(now + self.expire);
        self.vrps = response.vrps;
        Ok(has_changed)
    }
}

/// Returns the permitted interval that is nearest to a number of seconds.
fn within(secs: u32, permitted: &RangeInclusive<u32>) -> Duration {
    Duration::from_secs(u64::from(secs.clamp(*permitted.start(), *permitted.end())))
}
