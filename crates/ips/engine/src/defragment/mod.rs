//! Reassembly of IPv4 and IPv6 fragments, in bounded memory.
//!
//! ```text
//!  fragment ─▶ packet with the same key? ─▶ pieces ─▶ complete? ─▶ header of the first fragment + pieces
//! ```
//!
//! Fragments are forwarded as they arrive. The last fragment gets the verdict on the whole packet, which the
//! receiver cannot assemble without it. If the whole packet is dropped, its fragments are refused until the receiver
//! has forgotten them. In inline mode, further fragments are also refused if the fragments of the packet differ in TTL
//! or another field by which a router or the receiver may have discarded some of them: the receiver could combine a
//! new fragment with those that it has.

mod header;

use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};

use millrace_types::{Duration, Time};

use crate::hash::Seed;
use crate::packet::{IpVersion, Packet};
use crate::pieces::{OverlapPolicy, Pieces};

/// Largest length of a reassembled packet in bytes, as its header has it: in IPv4 the total length, in IPv6 the payload length,
/// which includes extension headers (RFC 8200, section 4.5).
const LENGTH_MAX: u64 = 65_535;
/// Memory of a packet without pieces, in bytes: an estimate that is charged to the pool.
const TRACKER_SIZE: usize = 256;
/// Size of the TCP header up to its control bits, in bytes.
const TINY_SIZE: usize = 16;

/// Limits and policies of defragmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefragmentSettings {
    /// Largest memory of all fragments, in bytes.
    pub memory: usize,
    /// Longest time for which fragments wait for the rest of their packet.
    pub timeout: Duration,
    /// The bytes that are kept where fragments of IPv4 overlap.
    pub policy_v4: OverlapPolicy,
    /// The bytes that are kept where fragments of IPv6 overlap.
    pub policy_v6: OverlapPolicy,
    /// True if overlapping fragments make the engine refuse all fragments of the packet (RFC 5722).
    pub refuses_overlaps: bool,
    /// True if fragments that split the TCP header are refused (RFC 1858).
    pub refuses_tiny: bool,
    /// True if the oldest packet is removed when the memory is full; false if the new fragment is refused. In
    /// inline mode, removal is unsafe: later fragments could complete the removed packet at the receiver
    /// without inspection.
    pub evicts: bool,
}

/// The reason why a fragment is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The data would end past 65,535 bytes.
    TooLong,
    /// The size of the data is no multiple of 8 bytes, and more fragments follow.
    Unaligned,
    /// A fragment overlaps another one, ends after the last one, or belongs to a packet that is refused.
    Overlap,
    /// The TCP header is split over fragments.
    Tiny,
    /// The memory of fragments is full.
    Memory,
}

/// The result of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Other fragments are missing.
    Waiting,
    /// The packet is complete: the bytes from its IP header on.
    Whole(&'a [u8]),
    /// The fragment is not used.
    Refused(Refused),
}

/// Counters of defragmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DefragmentCounters {
    pub fragments: u64,
    /// Packets that were completed.
    pub reassembled: u64,
    /// Packets that were removed because they were not complete in time.
    pub timeouts: u64,
    /// Packets that were removed because the memory was full.
    pub evicted: u64,
    /// Fragments that overlapped others.
    pub overlaps: u64,
    /// Fragments that were refused.
    pub refused: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    src: IpAddr,
    dst: IpAddr,
    id: u32,
    /// The protocol for IPv4; 0 for IPv6, because fragments may differ in it (RFC 8200, section 4.5).
    protocol: u8,
    vlans: [u16; 3],
    tunnel_depth: u8,
}

impl Key {
    /// Returns the key of the packet to which a fragment belongs.
    fn of(packet: &Packet<'_>) -> Key {
        Key {
            src: packet.src,
            dst: packet.dst,
            id: packet.ip.id,
            protocol: match packet.ip.version {
                IpVersion::V4 => packet.protocol,
                IpVersion::V6 => 0,
            },
            vlans: packet.vlans,
            tunnel_depth: packet.tunnel_depth,
        }
    }
}

/// Fields of a fragment by which a router or the receiver may discard it. The fragments of one packet usually agree in
/// them, except that the first one may have more IPv4 options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Route {
    ttl: u8,
    dont_fragment: bool,
    header_size: usize,
}

impl Route {
    fn of(packet: &Packet<'_>) -> Route {
        Route {
            ttl: packet.ip.ttl,
            dont_fragment: packet.ip.dont_fragment,
            header_size: packet.ip.header_size,
        }
    }
}

#[derive(Debug)]
struct Tracker {
    serial: u64,
    start: Time,
    /// Size of all data, once the last fragment has arrived.
    size: Option<u64>,
    /// The fields of the first fragment that arrived, and true if another fragment differs in them.
    route: Route,
    differs: bool,
    /// Headers of the packet, from the fragment with offset 0.
    header: Option<header::Header>,
    pieces: Pieces,
    /// True if the packet is refused: later fragments are refused, too.
    is_refused: bool,
}

impl Tracker {
    fn memory(&self) -> usize {
        let header = self.header.as_ref().map_or(0, |header| header.bytes.len());
        TRACKER_SIZE + header + self.pieces.memory()
    }

    /// Removes the fragments of the packet, and causes all further ones to be refused.
    fn refuse(&mut self) {
        self.is_refused = true;
        self.pieces.clear();
    }
}

/// Fragments that wait for others.
#[derive(Debug)]
pub struct Defragmenter {
    settings: DefragmentSettings,
    trackers: HashMap<Key, Tracker, Seed>,
    /// Keys in the order of their first fragment. The serial number distinguishes packets that have the same
    /// key one after the other.
    order: VecDeque<(u64, Key)>,
    next_serial: u64,
    memory: usize,
    whole: Vec<u8>,
    pub counters: DefragmentCounters,
}

impl Defragmenter {
    /// Returns a defragmenter without fragments.
    pub(crate) fn new(settings: DefragmentSettings, seed: Seed) -> Defragmenter {
        Defragmenter {
            settings,
            trackers: HashMap::with_hasher(seed),
            order: VecDeque::new(),
            next_serial: 0,
            memory: 0,
            whole: Vec::new(),
            counters: DefragmentCounters::default(),
        }
    }

    /// Returns the memory that fragments take, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Forgets all fragments.
    pub fn clear(&mut self) {
        self.trackers.clear();
        self.order.clear();
        self.memory = 0;
    }

    /// Adds a fragment.
    pub fn add(&mut self, packet: &Packet<'_>) -> Outcome<'_> {
        self.counters.fragments += 1;
        self.expire(packet.time);
        match self.insert(packet) {
            Ok(None) => Outcome::Waiting,
            Ok(Some(key)) => {
                if self.assemble(key) && !self.settings.evicts {
                    self.refuse(packet);
                }
                Outcome::Whole(&self.whole)
            }
            Err(reason) => {
                self.counters.refused += 1;
                Outcome::Refused(reason)
            }
        }
    }

    /// Adds a fragment; returns the key of the packet if it is complete.
    fn insert(&mut self, packet: &Packet<'_>) -> Result<Option<Key>, Refused> {
        let settings = self.settings;
        let (data, protocol) = header::data(packet);
        let key = Key::of(packet);
        let offset = u64::from(packet.ip.fragment_offset);
        let is_last = !packet.ip.more_fragments;
        let mut fault = None;
        // Only the last fragment may have a size that is not a multiple of 8 bytes. The excess bytes of
        // others are cut off, because receivers treat them differently.
        let data = if is_last { data } else { &data[..data.len() & !7] };
        if !is_last && packet.ip_payload().len() & 7 != 0 {
            fault = Some(Refused::Unaligned);
        }
        let end = offset + data.len() as u64;
        if header::counted_minimum(packet) + end > LENGTH_MAX {
            return Err(Refused::TooLong);
        }
        let is_tcp = protocol == millrace_wire::IpProto::TCP.0;
        if settings.refuses_tiny && is_tcp && (offset == 0 && data.len() < TINY_SIZE || offset == 8) {
            fault = Some(Refused::Tiny);
        }
        if !settings.refuses_overlaps && fault == Some(Refused::Unaligned) {
            fault = None;
        }
        let header = (offset == 0).then(|| header::Header::of(packet));
        let needed = TRACKER_SIZE + data.len() + Pieces::OVERHEAD + 512;
        self.make_room(needed)?;
        let route = Route::of(packet);
        self.begin(key, route, packet.time);
        let Some(tracker) = self.trackers.get_mut(&key) else {
            return Ok(None);
        };
        tracker.differs |= tracker.route != route;
        if tracker.is_refused {
            return Err(Refused::Overlap);
        }
        let before = tracker.memory();
        let policy = match packet.ip.version {
            IpVersion::V4 => settings.policy_v4,
            IpVersion::V6 => settings.policy_v6,
        };
        let is_past_end = tracker
            .size
            .is_some_and(|size| end > size || is_last && end != size)
            || is_last && tracker.pieces.end().is_some_and(|there| there > end);
        let insertion = tracker.pieces.insert(offset, data, policy);
        if insertion.overlaps {
            self.counters.overlaps += 1;
        }
        if settings.refuses_overlaps && (insertion.overlaps || is_past_end) {
            fault = Some(Refused::Overlap);
        }
        if let Some(fault) = fault {
            tracker.refuse();
            self.memory = self.memory + tracker.memory() - before;
            return Err(fault);
        }
        if is_last && tracker.size.is_none() {
            tracker.size = Some(end);
        }
        if tracker.header.is_none() {
            tracker.header = header;
        }
        let complete = tracker.header.as_ref().zip(tracker.size);
        let complete = complete.filter(|(_, size)| tracker.pieces.covers(*size));
        let length = complete.map(|(header, size)| header.counted_size() + size);
        let outcome = match length {
            // The headers of the first fragment are kept. They may be longer than those of the other
            // fragments.
            Some(length) if length > LENGTH_MAX => {
                tracker.refuse();
                Err(Refused::TooLong)
            }
            length => Ok(length.map(|_| key)),
        };
        self.memory = self.memory + tracker.memory() - before;
        outcome
    }

    /// Begins a packet without pieces, unless one with this key exists.
    fn begin(&mut self, key: Key, route: Route, start: Time) {
        if self.trackers.contains_key(&key) {
            return;
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.order.push_back((serial, key));
        self.memory += TRACKER_SIZE;
        let tracker = Tracker {
            serial,
            start,
            size: None,
            route,
            differs: false,
            header: None,
            pieces: Pieces::default(),
            is_refused: false,
        };
        self.trackers.insert(key, tracker);
    }

    /// Refuses further fragments of the packet that `packet` completed, until its time is over: the receiver
    /// has the other fragments, and the dropped one may be sent again.
    pub(crate) fn refuse(&mut self, packet: &Packet<'_>) {
        // The complete packet freed more memory than this entry takes.
        if self.make_room(TRACKER_SIZE).is_err() {
            return;
        }
        let key = Key::of(packet);
        self.begin(key, Route::of(packet), packet.time);
        if let Some(tracker) = self.trackers.get_mut(&key) {
            let before = tracker.memory();
            tracker.refuse();
            self.memory = self.memory + tracker.memory() - before;
        }
    }

    /// Moves a complete packet to `whole`; returns true if the receiver may lack some of its fragments.
    fn assemble(&mut self, key: Key) -> bool {
        self.whole.clear();
        let Some(mut tracker) = self.trackers.remove(&key) else {
            return false;
        };
        self.memory -= tracker.memory();
        self.counters.reassembled += 1;
        let (Some(header), Some(size)) = (tracker.header.take(), tracker.size) else {
            return false;
        };
        let whole = &mut self.whole;
        whole.extend_from_slice(&header.bytes);
        tracker
            .pieces
            .take_contiguous(0, size, |bytes| whole.extend_from_slice(bytes));
        header.finish(whole);
        tracker.differs
    }

    /// Removes the oldest packets until `needed` bytes are free.
    fn make_room(&mut self, needed: usize) -> Result<(), Refused> {
        while self.memory + needed > self.settings.memory {
            if !self.settings.evicts {
                return Err(Refused::Memory);
            }
            let (serial, oldest) = self.order.pop_front().ok_or(Refused::Memory)?;
            if self.remove(serial, &oldest) {
                self.counters.evicted += 1;
            }
        }
        // Entries of completed packets stay in `order` until there are too many.
        if self.order.len() > 2 * self.trackers.len() + 64 {
            let trackers = &self.trackers;
            self.order
                .retain(|(serial, key)| trackers.get(key).is_some_and(|tracker| tracker.serial == *serial));
        }
        Ok(())
    }

    /// Removes a packet; returns false if it was removed before.
    fn remove(&mut self, serial: u64, key: &Key) -> bool {
        if self
            .trackers
            .get(key)
            .is_none_or(|tracker| tracker.serial != serial)
        {
            return false;
        }
        if let Some(tracker) = self.trackers.remove(key) {
            self.memory -= tracker.memory();
        }
        true
    }

    /// Removes the packets whose time is over.
    fn expire(&mut self, now: Time) {
        while let Some((serial, key)) = self.order.front().copied() {
            let tracker = self.trackers.get(&key).filter(|tracker| tracker.serial == serial);
            if tracker.is_some_and(|tracker| now.since(tracker.start) <= self.settings.timeout) {
                break;
            }
            self.order.pop_front();
            if self.remove(serial, &key) {
                self.counters.timeouts += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
