//! Records in a window: the effects and messages of a function, and the ended shuns that the switch reports to it.
//!
//! A function writes *records* to a ring of bytes: packets that it sends, requests to shun flows, messages for export, and
//! reports. Two counters of bytes only grow: *written* by the function and *read* by the switch. A record begins at a multiple
//! of 16 bytes, and may continue at the start of the ring.
//!
//! ```text
//!   word 0                                       word 1
//! +--------------+---------------+-------------+--------+---------+---------------------+
//! | size (63..32)| flag (15..8)  | kind (7..0) | after  | payload | up to 16-byte units |
//! +--------------+---------------+-------------+--------+---------+---------------------+
//! ```
//!
//! | kind | flag | payload |
//! | --- | --- | --- |
//! | 1, send | 0 forward, 1 backward | the frame |
//! | 2, shun the flow of the packet with number `after - 1` | 0 pass, 1 drop | the idle time, in nanoseconds, 8 bytes |
//! | 3, export | | the message |
//! | 4, report | | the text |
//!
//! `after` is the number of packets that the switch has taken back when it carries out the record. A function publishes the
//! records of a burst before it reports the burst done, so the switch sees a record at the latest with its packet: effects are
//! in order with packets, like those of a function in the worker.
//!
//! The switch writes *notices* of 64 bytes to a second ring. A notice reports a flow that is no longer
//! shunned.
//!
//! The switch trusts no byte of a record: a counter, kind, size or number outside of its bounds is a [`ProtocolViolation`]. It
//! reads the head of a record once, and copies the payload.

use core::sync::atomic::Ordering;

use millrace_types::Duration;

use super::ProtocolViolation;
use super::layout::{Layout, NOTICE_SIZE, NOTICES, RECORDS_SIZE, at};
use super::region::Region;
use crate::burst::Direction;
use crate::effects::{SENT_SIZE_MAX, ShunAction, ShunnedFlow};
use crate::flow::{Endpoint, FlowId};

/// Bytes of the head of a record. A record is padded to a multiple of this size.
const HEAD: usize = 16;
/// Size limit of a message or report, in bytes. Longer ones are refused by the function's side.
pub const MESSAGE_MAX: usize = RECORDS_SIZE / 4;

/// The content of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A packet that the function sends in this direction.
    Send(Direction),
    /// A request to shun the flow of a packet, with the idle time after which the flow is forgotten.
    Shun(ShunAction, Duration),
    /// A message for the target of the `export` setting.
    Export,
    /// A text that shows the function's state.
    Report,
}

const SEND: u8 = 1;
const SHUN: u8 = 2;
const EXPORT: u8 = 3;
const REPORT: u8 = 4;

/// The head of a record, after the switch has checked it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The content.
    pub kind: RecordKind,
    /// The number of packets that the switch takes back before it carries out the record.
    pub after: u64,
    /// Bytes of the payload.
    pub size: usize,
    /// The position of the payload in the stream of records, in bytes.
    payload: u64,
}

impl Record {
    /// Returns the position after the record in the stream of records, in bytes.
    fn end(&self) -> u64 {
        self.payload + self.size.next_multiple_of(HEAD) as u64
    }
}

/// Returns the offset in the window of a position in the stream of records.
#[inline]
fn offset(layout: Layout, byte: u64) -> usize {
    layout.first_record() + (byte as usize & (RECORDS_SIZE - 1))
}

/// Copies bytes into the ring. Bytes beyond the end of the ring are copied to its start.
fn put(region: &Region, layout: Layout, byte: u64, bytes: &[u8]) {
    let to_end = RECORDS_SIZE - (byte as usize & (RECORDS_SIZE - 1));
    let (first, second) = bytes.split_at(to_end.min(bytes.len()));
    region.write(offset(layout, byte), first);
    region.write(layout.first_record(), second);
}

/// The function's end of both rings.
#[derive(Debug, Default)]
pub(super) struct RecordWriter {
    written: u64,
    /// The number of bytes that the switch has read, as last read from the window.
    read: u64,
    notices_read: u64,
    refused: u64,
}

impl RecordWriter {
    /// Returns the writer with the current counters of a window.
    pub(super) fn of(region: &Region) -> RecordWriter {
        let number = |at: usize| region.number(at).load(Ordering::Acquire);
        RecordWriter {
            written: number(at::RECORDS_WRITTEN),
            read: number(at::RECORDS_READ),
            notices_read: number(at::NOTICES_READ),
            refused: number(at::REFUSED),
        }
    }

    /// Returns true if a record with `size` bytes of payload fits and leaves `reserve` bytes free.
    fn fits(&mut self, region: &Region, size: usize, reserve: usize) -> bool {
        let needed = HEAD + size.next_multiple_of(HEAD) + reserve;
        let free = |read: u64| RECORDS_SIZE.saturating_sub(self.written.wrapping_sub(read) as usize);
        if free(self.read) >= needed {
            return true;
        }
        self.read = region.number(at::RECORDS_READ).load(Ordering::Acquire);
        RECORDS_SIZE.saturating_sub(self.written.wrapping_sub(self.read) as usize) >= needed
    }

    fn write(
        &mut self,
        (region, layout): (&Region, Layout),
        (kind, flag): (u8, u8),
        after: u64,
        payload: &[u8],
    ) {
        let word = u64::from(kind) | u64::from(flag) << 8 | (payload.len() as u64) << 32;
        region.write_pair(offset(layout, self.written), [word, after]);
        put(region, layout, self.written + HEAD as u64, payload);
        self.written += (HEAD + payload.len().next_multiple_of(HEAD)) as u64;
    }

    /// Writes a packet that the function sends. Returns false, and counts the packet, if it does not fit.
    pub(super) fn send(
        &mut self,
        window: (&Region, Layout),
        direction: Direction,
        after: u64,
        frame: &[u8],
    ) -> bool {
        if frame.len() > SENT_SIZE_MAX || !self.fits(window.0, frame.len(), 0) {
            self.refuse(window.0, 1);
            return false;
        }
        self.write(window, (SEND, direction.to_raw() as u8), after, frame);
        true
    }

    /// Counts packets that were refused.
    pub(super) fn refuse(&mut self, region: &Region, packets: u64) {
        self.refused += packets;
        region.number(at::REFUSED).store(self.refused, Ordering::Relaxed);
    }

    /// Writes a request to shun the flow of the last of `after` packets. A request that does not fit is lost, and the function
    /// continues to receive the flow.
    pub(super) fn shun(&mut self, window: (&Region, Layout), after: u64, action: ShunAction, idle: Duration) {
        let flag = match action {
            ShunAction::Pass => 0,
            ShunAction::Drop => 1,
        };
        let nanos = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        if self.fits(window.0, 8, 0) {
            self.write(window, (SHUN, flag), after, &nanos.to_le_bytes());
        }
    }

    /// Returns true if a message of `size` bytes fits. Messages leave half of the ring to packets and requests.
    pub(super) fn has_room(&mut self, region: &Region, size: usize) -> bool {
        size <= MESSAGE_MAX && self.fits(region, size, RECORDS_SIZE / 2)
    }

    /// Writes a message or a report for which there is room.
    pub(super) fn message(&mut self, window: (&Region, Layout), is_report: bool, after: u64, bytes: &[u8]) {
        let kind = if is_report { REPORT } else { EXPORT };
        self.write(window, (kind, 0), after, bytes);
    }

    /// Makes the records visible to the switch.
    #[inline]
    pub(super) fn publish(&self, region: &Region) {
        region
            .number(at::RECORDS_WRITTEN)
            .store(self.written, Ordering::Release);
    }

    /// Returns the oldest notice that was not read.
    #[inline]
    pub(super) fn notice(&mut self, region: &Region, layout: Layout) -> Option<ShunnedFlow> {
        let written = region.number(at::NOTICES_WRITTEN).load(Ordering::Acquire);
        if written == self.notices_read {
            return None;
        }
        let mut bytes = [0; NOTICE_SIZE];
        region.read(layout.notice(self.notices_read), &mut bytes);
        self.notices_read += 1;
        region
            .number(at::NOTICES_READ)
            .store(self.notices_read, Ordering::Release);
        Some(decode_notice(&bytes))
    }
}

/// The switch's end of both rings.
#[derive(Debug, Default)]
pub(super) struct RecordReader {
    read: u64,
    /// The number of bytes that the function has written, as last read from the window.
    written: u64,
    notices_written: u64,
    notices_read: u64,
}

impl RecordReader {
    /// Reads and checks the number of bytes that the function has written.
    ///
    /// # Errors
    /// [`ProtocolViolation::Records`].
    #[inline]
    pub(super) fn refresh(&mut self, region: &Region) -> Result<(), ProtocolViolation> {
        let written = region.number(at::RECORDS_WRITTEN).load(Ordering::Acquire);
        if written == self.written {
            return Ok(());
        }
        let is_valid = written > self.written
            && written - self.read <= RECORDS_SIZE as u64
            && written.is_multiple_of(HEAD as u64);
        if !is_valid {
            return Err(ProtocolViolation::Records {
                written,
                read: self.read,
            });
        }
        self.written = written;
        Ok(())
    }

    /// Returns true if there is a record.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.written != self.read
    }

    /// Returns the head of the oldest record. `given` is the number of packets given.
    ///
    /// # Errors
    /// [`ProtocolViolation::Record`].
    pub(super) fn head(
        &self,
        region: &Region,
        layout: Layout,
        given: u64,
    ) -> Result<Option<Record>, ProtocolViolation> {
        if !self.is_waiting() {
            return Ok(None);
        }
        let at = offset(layout, self.read);
        let number = |at: usize| region.number(at).load(Ordering::Relaxed);
        let (word, after) = (number(at), number(at + 8));
        let (kind, flag, size) = (word as u8, (word >> 8) as u8, (word >> 32) as usize);
        let violation = ProtocolViolation::Record { kind, size, after };
        let payload = self.read + HEAD as u64;
        let behind = self.written - payload;
        if size as u64 > behind || size.next_multiple_of(HEAD) as u64 > behind || after > given {
            return Err(violation);
        }
        let kind = match (kind, flag) {
            (SEND, 0 | 1) if size <= SENT_SIZE_MAX => RecordKind::Send(Direction::from_raw(flag.into())),
            (SHUN, 0 | 1) if size == 8 && after != 0 => {
                let mut idle = [0; 8];
                region.read(offset(layout, payload), &mut idle);
                let action = match flag {
                    0 => ShunAction::Pass,
                    _ => ShunAction::Drop,
                };
                RecordKind::Shun(action, Duration::from_nanos(u64::from_le_bytes(idle)))
            }
            (EXPORT, _) if size <= MESSAGE_MAX => RecordKind::Export,
            (REPORT, _) if size <= MESSAGE_MAX => RecordKind::Report,
            _ => return Err(violation),
        };
        Ok(Some(Record {
            kind,
            after,
            size,
            payload,
        }))
    }

    /// Copies the payload of a record, as many bytes as `to` holds.
    pub(super) fn payload(&self, region: &Region, layout: Layout, record: &Record, to: &mut [u8]) {
        let size = to.len().min(record.size);
        let to_end = RECORDS_SIZE - (record.payload as usize & (RECORDS_SIZE - 1));
        let (first, second) = to[..size].split_at_mut(to_end.min(size));
        region.read(offset(layout, record.payload), first);
        region.read(layout.first_record(), second);
    }

    /// Frees the oldest record.
    pub(super) fn free(&mut self, region: &Region, record: &Record) {
        self.read = record.end().min(self.written);
        region
            .number(at::RECORDS_READ)
            .store(self.read, Ordering::Release);
    }

    /// Writes a notice. Returns false if the ring of notices is full.
    pub(super) fn notify(&mut self, region: &Region, layout: Layout, ended: &ShunnedFlow) -> bool {
        let is_full = |read: u64| self.notices_written.wrapping_sub(read) >= NOTICES as u64;
        if is_full(self.notices_read) {
            // A forged counter has one effect: the function loses notices.
            self.notices_read = region.number(at::NOTICES_READ).load(Ordering::Acquire);
            if self.notices_written.wrapping_sub(self.notices_read) >= NOTICES as u64 {
                return false;
            }
        }
        region.write(layout.notice(self.notices_written), &encode_notice(ended));
        self.notices_written += 1;
        region
            .number(at::NOTICES_WRITTEN)
            .store(self.notices_written, Ordering::Release);
        true
    }
}

/// Returns the bytes of a notice: two endpoints of 18 bytes, the protocol, the action, packets, bytes and VLAN identifiers.
fn encode_notice(ended: &ShunnedFlow) -> [u8; NOTICE_SIZE] {
    let mut bytes = [0; NOTICE_SIZE];
    let FlowId {
        source,
        destination,
        proto,
    } = ended.flow;
    for (at, endpoint) in [(0, source), (18, destination)] {
        bytes[at..at + 16].copy_from_slice(&endpoint.address);
        bytes[at + 16..at + 18].copy_from_slice(&endpoint.port.to_le_bytes());
    }
    bytes[36] = proto;
    bytes[37] = u8::from(ended.action == ShunAction::Drop);
    bytes[40..48].copy_from_slice(&ended.packets.to_le_bytes());
    bytes[48..56].copy_from_slice(&ended.bytes.to_le_bytes());
    bytes[56..58].copy_from_slice(&ended.vlans[0].to_le_bytes());
    bytes[58..60].copy_from_slice(&ended.vlans[1].to_le_bytes());
    bytes
}

fn decode_notice(bytes: &[u8; NOTICE_SIZE]) -> ShunnedFlow {
    fn part<const N: usize>(bytes: &[u8; NOTICE_SIZE], at: usize) -> [u8; N] {
        let part = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
        part.copied().unwrap_or([0; N])
    }
    let endpoint = |at: usize| Endpoint {
        address: part(bytes, at),
        port: u16::from_le_bytes(part(bytes, at + 16)),
    };
    ShunnedFlow {
        flow: FlowId {
            source: endpoint(0),
            destination: endpoint(18),
            proto: bytes[36],
        },
        action: match bytes[37] {
            0 => ShunAction::Pass,
            _ => ShunAction::Drop,
        },
        vlans: [56, 58].map(|at| u16::from_le_bytes(part(bytes, at))),
        packets: u64::from_le_bytes(part(bytes, 40)),
        bytes: u64::from_le_bytes(part(bytes, 48)),
    }
}
