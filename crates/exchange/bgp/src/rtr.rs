//! The RPKI to router protocol, client side (RFC 8210, version 1; RFC 6810, version 0): validated ROA payloads (VRP).
//!
//! ```text
//!   connect ── Reset or Serial Query ──► Cache Response, prefixes…, End of Data ──► the set is replaced as a whole
//!      ▲                                   │ Cache Reset: again with Reset Query
//!      └── refresh time, Serial Notify ◄───┘
//!          retry time ◄── Error Report "No Data Available": the set stays until it expires
//! ```
//!
//! Received prefixes take effect at End of Data: an incomplete response changes nothing.

use core::net::IpAddr;
use std::collections::BTreeSet;

use millrace_types::{Duration, Time};

use crate::prefix::Prefix;
use crate::reader::Reader;

/// The newest version of the protocol that the client supports.
const VERSION: u8 = 1;

const SERIAL_NOTIFY: u8 = 0;
const SERIAL_QUERY: u8 = 1;
const RESET_QUERY: u8 = 2;
const CACHE_RESPONSE: u8 = 3;
const IPV4_PREFIX: u8 = 4;
const IPV6_PREFIX: u8 = 6;
const END_OF_DATA: u8 = 7;
const CACHE_RESET: u8 = 8;
const ROUTER_KEY: u8 = 9;
const ERROR_REPORT: u8 = 10;

/// The maximum size of a PDU that the client accepts, in bytes.
const PDU_SIZE_MAX: u32 = 8192;
/// The error "No Data Available" (RFC 8210, section 12). The connection stays open after it.
const NO_DATA: u16 = 2;
/// The error "Unsupported Protocol Version". The connection stays open if the cache supports an older version.
const UNSUPPORTED_VERSION: u16 = 4;

/// The time until the next query to a cache without data that has not given a retry interval. RFC 8210,
/// section 6, suggests 600 s, but a cache that has just started is ready sooner.
const RETRY_SECS: u32 = 60;
/// The time within which a response must be complete.
const RESPONSE_TIME: Duration = Duration::from_secs(120);

/// A validated ROA payload: the origin AS may announce the prefix, and more specific prefixes up to
/// `max_len`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vrp {
    pub prefix: Prefix,
    /// The maximum permitted length of an announced prefix, in bits.
    pub max_len: u8,
    /// The AS number of the origin; 0 permits no origin (RFC 6483, section 4).
    pub asn: u32,
}

/// The reason why a connection to a cache must be closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RtrError {
    /// The cache violated the protocol.
    #[error("the cache sent {0}")]
    Protocol(String),
    /// The cache reports an error.
    #[error("the cache reports error {code}: {text}")]
    Reported {
        /// The number of the error.
        code: u16,
        text: String,
    },
    /// A response did not end in time.
    #[error("the cache did not finish its response within 120 seconds")]
    Late,
    /// The set has more payloads than the client's limit.
    #[error("the cache has more than {0} payloads")]
    TooMany(usize),
}

/// The state of the client for one cache. The state outlives connections, so that the next connection asks
/// only for differences.
#[derive(Debug)]
pub struct Client {
    version: u8,
    limit: usize,
    input: Vec<u8>,
    output: Vec<u8>,
    vrps: BTreeSet<Vrp>,
    /// The set that the current response builds, and the session of the response.
    pending: Option<(BTreeSet<Vrp>, u16)>,
    /// The session and serial number of the complete set.
    known: Option<(u16, u32)>,
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
            pending: None,
            known: None,
            response_deadline: None,
            refresh_at: None,
            refresh: Duration::from_secs(3600),
            retry: Duration::from_secs(u64::from(RETRY_SECS)),
            expire: Duration::from_secs(7200),
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
        self.known.map(|(_, serial)| serial)
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
        self.has_answered = false;
        self.has_loaded = false;
        self.lacks_data = false;
        self.input.clear();
        self.output.clear();
        self.pending = None;
        self.query(now);
    }

    /// Forgets the version and the session of a cache. The next connection begins with the newest version and
    /// a Reset Query, because sessions belong to a version (RFC 8210, section 5.1).
    const fn forget_version(&mut self) {
        self.version = VERSION;
        self.known = None;
    }

    /// Records that the connection is closed. The payloads stay until they expire.
    pub fn connection_lost(&mut self) {
        self.pending = None;
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
            if !(8..=PDU_SIZE_MAX).contains(&size) {
                return Err(RtrError::Protocol(format!("a PDU of {size} bytes")));
            }
            let Some(body) = reader.take(size as usize - 8) else {
                break;
            };
            rest = reader;
            has_changed |= self.pdu(version, kind, field, body, now)?;
        }
        let used = input.len() - rest.0.len();
        input.drain(..used);
        self.input = input;
        Ok(has_changed)
    }

    fn query(&mut self, now: Time) {
        self.refresh_at = None;
        self.response_deadline = Some(now + RESPONSE_TIME);
        match self.known {
            Some((session, serial)) => {
                self.send(SERIAL_QUERY, session, &serial.to_be_bytes());
            }
            None => self.send(RESET_QUERY, 0, &[]),
        }
    }

    fn send(&mut self, kind: u8, field: u16, body: &[u8]) {
        self.output.extend([self.version, kind]);
        self.output.extend(field.to_be_bytes());
        self.output.extend((8 + body.len() as u32).to_be_bytes());
        self.output.extend(body);
    }

    fn pdu(&mut self, version: u8, kind: u8, field: u16, body: &[u8], now: Time) -> Result<bool, RtrError> {
        let protocol = |text: &str| RtrError::Protocol(text.to_owned());
        if kind == ERROR_REPORT {
            // Error 4, Unsupported Protocol Version: the client uses the cache's older version (RFC 8210,
            // section 7).
            if field == UNSUPPORTED_VERSION && version < self.version {
                self.version = version;
                self.known = None;
                self.query(now);
                return Ok(false);
            }
            if field == UNSUPPORTED_VERSION {
                self.forget_version();
            }
            // The cache has lost its data or still collects it. Reset Queries follow until the cache has a
            // set (RFC 8210, section 8.4).
            if field == NO_DATA {
                self.has_answered = true;
                self.lacks_data = true;
                self.known = None;
                self.pending = None;
                self.response_deadline = None;
                self.refresh_at = Some(now + self.retry);
                return Ok(false);
            }
            return Err(RtrError::Reported {
                code: field,
                text: error_text(body),
            });
        }
        if kind == SERIAL_NOTIFY && !self.has_answered {
            // Before the first answer, the version of a notification has no meaning (RFC 8210, section 7).
            return Ok(false);
        }
        if version < self.version && self.known.is_none() && self.pending.is_none() {
            // A cache that supports only version 0 answers in version 0.
            self.version = version;
        }
        if version != self.version {
            let text = format!("protocol version {version}: expected {}", self.version);
            self.forget_version();
            return Err(RtrError::Protocol(text));
        }
        self.has_answered = true;
        match kind {
            SERIAL_NOTIFY => {
                let is_new = |(session, serial): (u16, u32)| field != session || body != serial.to_be_bytes();
                if self.pending.is_none() && self.response_deadline.is_none() && self.known.is_none_or(is_new)
                {
                    self.query(now);
                }
            }
            CACHE_RESPONSE => {
                // A response to a Reset Query starts from the empty set, a response to a Serial Query from the known set.
                let start = match self.known {
                    Some((session, _)) if session == field => self.vrps.clone(),
                    Some(_) => {
                        // The cache cannot send differences from the known set, so the next connection begins
                        // with a Reset Query (RFC 8210, section 5.1).
                        self.known = None;
                        return Err(protocol("a response of another session"));
                    }
                    None => BTreeSet::new(),
                };
                self.pending = Some((start, field));
            }
            IPV4_PREFIX | IPV6_PREFIX => {
                let (is_announced, vrp) =
                    read_vrp(body, kind == IPV6_PREFIX).ok_or(protocol("a malformed prefix"))?;
                let Some((set, _)) = &mut self.pending else {
                    return Err(protocol("a prefix outside of a response"));
                };
                if is_announced {
                    set.insert(vrp);
                } else {
                    set.remove(&vrp);
                }
                if set.len() > self.limit {
                    return Err(RtrError::TooMany(self.limit));
                }
            }
            END_OF_DATA => return self.end_of_data(field, body, now),
            CACHE_RESET => {
                self.known = None;
                self.pending = None;
                self.query(now);
            }
            ROUTER_KEY => {}
            other => return Err(RtrError::Protocol(format!("a PDU of type {other}"))),
        }
        Ok(false)
    }

    fn end_of_data(&mut self, session: u16, body: &[u8], now: Time) -> Result<bool, RtrError> {
        let (set, begun) = self
            .pending
            .take()
            .ok_or_else(|| RtrError::Protocol("End of Data outside of a response".to_owned()))?;
        let mut reader = Reader(body);
        let serial = reader
            .u32()
            .filter(|_| session == begun)
            .ok_or_else(|| RtrError::Protocol("a malformed End of Data".to_owned()))?;
        // The permitted range of each interval (RFC 8210, section 6), and its default.
        let seconds = |value: Option<u32>, min: u32, max: u32, default: u32| {
            Duration::from_secs(u64::from(value.unwrap_or(default).clamp(min, max)))
        };
        self.refresh = seconds(reader.u32(), 1, 86_400, 3600);
        self.retry = seconds(reader.u32(), 1, 7200, RETRY_SECS);
        self.expire = seconds(reader.u32(), 600, 172_800, 7200);
        self.known = Some((session, serial));
        self.response_deadline = None;
        self.refresh_at = Some(now + self.refresh);
        self.has_loaded = true;
        self.lacks_data = false;
        let has_changed = self.vrps(now).is_none_or(|before| *before != set);
        self.expires_at = Some(now + self.expire);
        self.vrps = set;
        Ok(has_changed)
    }
}

/// Reads a prefix PDU. Returns true for an announcement or false for a withdrawal, and the payload.
fn read_vrp(body: &[u8], is_ipv6: bool) -> Option<(bool, Vrp)> {
    let mut reader = Reader(body);
    let (flags, len, max_len, _zero) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
    let address = if is_ipv6 {
        reader.array::<16>().map(IpAddr::from)?
    } else {
        reader.array::<4>().map(IpAddr::from)?
    };
    let asn = reader.u32()?;
    let bits = if is_ipv6 { 128 } else { 32 };
    if !reader.is_empty() || max_len < len || max_len > bits {
        return None;
    }
    let prefix = Prefix::new(address, len)?;
    Some((flags & 1 != 0, Vrp { prefix, max_len, asn }))
}

/// Returns the text of an Error Report, which follows a copy of the erroneous PDU.
fn error_text(body: &[u8]) -> String {
    let text = |body| {
        let mut reader = Reader(body);
        let len = reader.u32()?;
        reader.take(usize::try_from(len).ok()?)?;
        let len = reader.u32()?;
        reader.take(usize::try_from(len).ok()?)
    };
    let text = text(body).unwrap_or_default();
    String::from_utf8_lossy(text)
        .chars()
        .filter(|letter| !letter.is_control())
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pdu(version: u8, kind: u8, field: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![version, kind];
        bytes.extend(field.to_be_bytes());
        bytes.extend((8 + body.len() as u32).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn prefix(is_announced: bool, third: u8) -> Vec<u8> {
        let body = [
            u8::from(is_announced),
            24,
            24,
            0,
            192,
            0,
            third,
            0,
            0,
            0,
            0xfb,
            0xf4,
        ];
        pdu(1, IPV4_PREFIX, 0, &body)
    }

    fn end(serial: u32) -> Vec<u8> {
        let mut body = serial.to_be_bytes().to_vec();
        body.extend([100u32, 10, 600].iter().flat_map(|secs| secs.to_be_bytes()));
        pdu(1, END_OF_DATA, 7, &body)
    }

    #[test]
    fn a_set_counts_from_its_end_and_is_then_kept_up_by_differences() {
        let now = Time::from_secs(1);
        let mut client = Client::new(100);
        client.connected(now);
        assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
        let mut bytes = pdu(1, CACHE_RESPONSE, 7, &[]);
        bytes.extend(prefix(true, 2));
        bytes.extend(prefix(true, 3));
        assert_eq!(client.receive(&bytes, now), Ok(false));
        assert_eq!(client.vrps(now), None);
        // The client receives the bytes one by one.
        let changes: Vec<_> = end(5)
            .iter()
            .map(|byte| client.receive(&[*byte], now).unwrap())
            .collect();
        assert_eq!(changes.iter().filter(|changed| **changed).count(), 1);
        assert_eq!(client.vrps(now).unwrap().len(), 2);
        assert_eq!(
            client.receive(&pdu(1, SERIAL_NOTIFY, 7, &5u32.to_be_bytes()), now),
            Ok(false)
        );
        assert_eq!(client.take_output(), []);
        client
            .receive(&pdu(1, SERIAL_NOTIFY, 7, &6u32.to_be_bytes()), now)
            .unwrap();
        assert_eq!(client.take_output(), pdu(1, SERIAL_QUERY, 7, &5u32.to_be_bytes()));
        let mut bytes = pdu(1, CACHE_RESPONSE, 7, &[]);
        bytes.extend(prefix(false, 2));
        bytes.extend(end(6));
        assert_eq!(client.receive(&bytes, now), Ok(true));
        assert_eq!(client.vrps(now).unwrap().len(), 1);
        assert_eq!(client.deadline(), Some(now + Duration::from_secs(100)));
        assert_eq!(client.vrps(now + Duration::from_secs(600)), None, "expired");
    }

    #[test]
    fn a_cache_without_data_is_asked_again_and_the_set_stays_until_it_expires() {
        let now = Time::ZERO;
        let after = |secs| now + Duration::from_secs(secs);
        let no_data = pdu(1, ERROR_REPORT, NO_DATA, &[0; 8]);
        let mut client = Client::new(100);
        client.connected(now);
        client.take_output();
        assert_eq!(client.receive(&no_data, now), Ok(false));
        assert_eq!(
            (client.take_output(), client.deadline()),
            (vec![], Some(after(60)))
        );
        assert!(client.lacks_data() && !client.has_loaded());
        let set = [pdu(1, CACHE_RESPONSE, 7, &[]), prefix(true, 2), end(5)].concat();
        assert_eq!(client.receive(&set, now), Ok(true));
        assert!(client.has_loaded() && !client.lacks_data());
        // The cache loses its data in the middle of a response to the query after the refresh time.
        assert_eq!(client.poll(after(100)), Ok(false));
        assert_eq!(client.take_output(), pdu(1, SERIAL_QUERY, 7, &5u32.to_be_bytes()));
        let broken = [pdu(1, CACHE_RESPONSE, 7, &[]), prefix(false, 2), no_data.clone()].concat();
        assert_eq!(client.receive(&broken, after(100)), Ok(false));
        assert_eq!(client.take_output(), []);
        assert_eq!(client.vrps(after(100)).unwrap().len(), 1);
        assert_eq!(client.deadline(), Some(after(110)));
        for secs in (110..600).step_by(10) {
            assert_eq!(client.poll(after(secs)), Ok(false));
            assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
            assert_eq!(client.receive(&no_data, after(secs)), Ok(false));
        }
        assert_eq!(client.deadline(), Some(after(600)));
        assert_eq!(client.poll(after(600)), Ok(true), "expired");
        assert_eq!(client.vrps(after(600)), None);
        assert_eq!(client.poll(after(600)), Ok(false));
        assert_eq!(client.take_output(), pdu(1, RESET_QUERY, 0, &[]));
        assert_eq!(
            client.receive(&set, after(601)),
            Ok(true),
            "the same set counts again"
        );
        assert_eq!(client.vrps(after(601)).unwrap().len(), 1);
    }

    #[test]
    fn the_timers_of_a_cache_are_taken_within_their_bounds() {
        let now = Time::ZERO;
        let mut client = Client::new(100);
        client.connected(now);
        let mut body = 5u32.to_be_bytes().to_vec();
        body.extend([u32::MAX; 3].iter().flat_map(|secs| secs.to_be_bytes()));
        let set = [pdu(1, CACHE_RESPONSE, 7, &[]), pdu(1, END_OF_DATA, 7, &body)].concat();
        assert_eq!(client.receive(&set, now), Ok(true), "an empty set is one, too");
        assert_eq!(client.deadline(), Some(now + Duration::from_secs(86_400)));
        client
            .receive(&pdu(1, ERROR_REPORT, NO_DATA, &[0; 8]), now)
            .unwrap();
        assert_eq!(client.deadline(), Some(now + Duration::from_secs(7200)));
        client.connected(now);
        assert!(!client.has_loaded());
    }

    #[test]
    fn what_the_protocol_forbids_ends_the_connection() {
        let fails = |bytes: &[u8]| {
            let mut client = Client::new(1);
            client.connected(Time::ZERO);
            client.receive(bytes, Time::ZERO).unwrap_err()
        };
        assert!(matches!(fails(&prefix(true, 1)), RtrError::Protocol(_)));
        assert!(matches!(fails(&[1, 3, 0, 0, 0, 0, 0, 7]), RtrError::Protocol(_)));
        assert!(matches!(fails(&end(1)), RtrError::Protocol(_)));
        let mut bytes = pdu(1, CACHE_RESPONSE, 7, &[]);
        bytes.extend(prefix(true, 1));
        bytes.extend(prefix(true, 2));
        assert_eq!(fails(&bytes), RtrError::TooMany(1));
        let mut report = 0u32.to_be_bytes().to_vec();
        report.extend(4u32.to_be_bytes());
        report.extend(b"n\x1bo!");
        assert_eq!(
            fails(&pdu(1, ERROR_REPORT, 3, &report)),
            RtrError::Reported {
                code: 3,
                text: "no!".to_owned()
            }
        );
    }
}
