//! Reassembly of fragments, in bounded memory and time.
//!
//! Data are stored in the chunks of one block of memory. Each chunk belongs to one incomplete packet or is
//! free. When there is no room for another packet, the oldest incomplete packet is discarded. A packet that
//! is not complete after [`LIFE`] is also discarded. An exact repetition of a fragment is accepted, and not
//! stored again.
//!
//! If data of an IPv6 packet overlap, all fragments of the packet are dropped, including later ones (RFC
//! 5722, section 4). An IPv4 sender may use each of the 65,536 identifications again within seconds (RFC
//! 4963), so the stored fragments may belong to an older packet. They are dropped, and a new packet begins
//! with the fragment that contradicts them.

use millrace_types::{Duration, PortNo, Time};
use millrace_wire::{Depth, Fragment, Layers};

use super::view::{FragmentView, HEADERS_MAX, Identity};
use crate::DropReason;

/// The time within which all fragments of a packet must arrive (RFC 8200, section 4.5; RFC 1122, section
/// 3.3.2, for IPv4).
const LIFE: Duration = Duration::from_secs(60);
/// The size of a chunk in bytes.
const CHUNK_SIZE: usize = 2048;
/// The number of chunks: four megabytes.
const CHUNKS_LEN: usize = 2048;
/// The number of chunks of the longest packet.
const CHUNKS_EACH: usize = 32;
/// The maximum number of incomplete packets.
const PACKETS_LEN: usize = 512;
/// The number of words of a set with one bit for each 8 bytes of the longest packet.
const UNITS_WORDS: usize = 65_536 / 8 / 64;
/// The index that stands for no chunk.
const NONE: u16 = u16::MAX;

/// The part of an incomplete packet that every fragment is compared with.
struct Tag {
    hash: u32,
    since: Time,
}

/// The port where a fragment was received, and its tunnel_id. Networks that share a tunnel may use the same
/// addresses.
type Source = (PortNo, u64);

/// An incomplete packet.
struct Incomplete {
    identity: Identity,
    source: Source,
    /// True if the fragments contradict each other; the remaining ones are dropped.
    is_inconsistent: bool,
    /// The number of fragments that are stored.
    fragments: u64,
    /// The number of stored data bytes, and (`total`) the size of all data, known once the last fragment has
    /// arrived.
    have: usize,
    total: Option<usize>,
    /// The end of the data with the highest offset.
    end: usize,
    /// The first fragment and its headers, once that fragment has arrived.
    first: Option<FragmentView>,
    headers: [u8; HEADERS_MAX],
    /// The ECN fields of the fragments, one bit for each of the four values.
    ecns: u8,
    units: [u64; UNITS_WORDS],
    chunks: [u16; CHUNKS_EACH],
}

/// The outcome of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Assembled<'a> {
    /// The fragment is stored until further fragments arrive.
    Kept,
    /// The packet is complete: the bytes of its frame.
    Whole(&'a [u8]),
    /// The fragment is dropped for this reason, together with this number of fragments of its packet that were stored
    /// before.
    Dropped(DropReason, u64),
}

/// The reassembly of one worker. It allocates about five megabytes at its creation, and nothing later.
pub struct Assembler {
    packets: Vec<Incomplete>,
    /// The part of each packet's identity that is compared first, in one array.
    tags: Vec<Tag>,
    memory: Box<[u8]>,
    free: Vec<u16>,
    /// The frame of a fragment, and that of a complete packet.
    frame: Vec<u8>,
    whole: Vec<u8>,
    /// The numbers of fragments discarded since the last call of [`Assembler::take_discarded`]: because they
    /// were too old (`expired`), because there was no room (`evicted`), and because a fragment of a new
    /// packet contradicted them (`replaced`).
    expired: u64,
    evicted: u64,
    replaced: u64,
}

impl core::fmt::Debug for Assembler {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (packets, free) = (self.packets.len(), self.free.len());
        write!(f, "Assembler({packets} packets, {free} chunks free)")
    }
}

impl Default for Assembler {
    fn default() -> Assembler {
        Assembler::new()
    }
}

impl Assembler {
    /// Returns an assembler without packets.
    pub fn new() -> Assembler {
        let size_max = HEADERS_MAX + CHUNKS_EACH * CHUNK_SIZE;
        Assembler {
            packets: Vec::with_capacity(PACKETS_LEN),
            tags: Vec::with_capacity(PACKETS_LEN),
            memory: vec![0; CHUNKS_LEN * CHUNK_SIZE].into(),
            free: (0..CHUNKS_LEN as u16).rev().collect(),
            frame: Vec::with_capacity(size_max),
            whole: Vec::with_capacity(size_max),
            expired: 0,
            evicted: 0,
            replaced: 0,
        }
    }

    /// The maximum number of bytes of a fragment's frame that the assembler reads.
    pub const FRAME_MAX: usize = HEADERS_MAX + CHUNKS_EACH * CHUNK_SIZE;

    /// Returns the buffer for the frame of a fragment, to be filled before [`Assembler::add`].
    pub fn frame(&mut self) -> &mut Vec<u8> {
        self.frame.clear();
        &mut self.frame
    }

    /// Returns the number of incomplete packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns true if no packet is incomplete.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the numbers of stored fragments discarded since the last call, with the reasons.
    pub fn take_discarded(&mut self) -> [(DropReason, u64); 3] {
        [
            (DropReason::FragmentTimeout, core::mem::take(&mut self.expired)),
            (DropReason::FragmentMemory, core::mem::take(&mut self.evicted)),
            (DropReason::FragmentOverlap, core::mem::take(&mut self.replaced)),
        ]
    }

    /// Adds the fragment in [`Assembler::frame`], which was received from `source`.
    pub fn add(&mut self, fragment: &FragmentView, source: Source, now: Time) -> Assembled<'_> {
        let at = self.index_of(fragment, source, now);
        let is_inconsistent = self.packets.get(at).is_some_and(|packet| packet.is_inconsistent);
        let (at, outcome) = match self.check(at, fragment) {
            _ if is_inconsistent => (at, Step::Inconsistent),
            Check::Contradiction if !fragment.identity.is_v6 => {
                self.replaced += self.discard(at);
                let at = self.index_of(fragment, source, now);
                let check = self.check(at, fragment);
                self.take(at, fragment, check)
            }
            check => self.take(at, fragment, check),
        };
        match outcome {
            Step::Kept => Assembled::Kept,
            Step::Inconsistent => {
                let lost = self.packets.get_mut(at).map_or(0, |packet| {
                    packet.is_inconsistent = true;
                    core::mem::take(&mut packet.fragments)
                });
                self.give_back(at);
                Assembled::Dropped(DropReason::FragmentOverlap, lost)
            }
            Step::Full => {
                let lost = self.discard(at);
                Assembled::Dropped(DropReason::FragmentMemory, lost)
            }
            Step::Whole => {
                // A second fragment header after the first makes the reassembled packet a fragment again.
                // Such packets serve only to evade filters that inspect complete packets.
                let is_packet = self.write_whole(at)
                    && Layers::parse(&self.whole, Depth::L3).fragment() == Fragment::Whole;
                let lost = self.discard(at);
                if is_packet {
                    Assembled::Whole(&self.whole)
                } else {
                    // The caller counts this fragment itself.
                    Assembled::Dropped(DropReason::FragmentMalformed, lost.saturating_sub(1))
                }
            }
        }
    }

    /// Returns the index of the packet that the fragment belongs to, which may be new.
    fn index_of(&mut self, fragment: &FragmentView, source: Source, now: Time) -> usize {
        let mut at = 0;
        while let Some(tag) = self.tags.get(at) {
            if now.since(tag.since) > LIFE {
                // `discard` moves the last packet to this index.
                self.expired += self.discard(at);
            } else {
                at += 1;
            }
        }
        let hash = fragment.identity.hash(source.1);
        self.find(hash, &fragment.identity, source).unwrap_or_else(|| {
            if self.packets.len() == PACKETS_LEN {
                self.evict(usize::MAX);
            }
            self.tags.push(Tag { hash, since: now });
            self.packets.push(Incomplete {
                identity: fragment.identity,
                source,
                is_inconsistent: false,
                fragments: 0,
                have: 0,
                total: None,
                end: 0,
                first: None,
                headers: [0; HEADERS_MAX],
                ecns: 0,
                units: [0; UNITS_WORDS],
                chunks: [NONE; CHUNKS_EACH],
            });
            self.packets.len() - 1
        })
    }

    fn find(&self, hash: u32, identity: &Identity, source: Source) -> Option<usize> {
        let is_it = |packet: &Incomplete| packet.source == source && packet.identity == *identity;
        let mut tags = self.tags.iter().zip(&self.packets);
        tags.position(|(tag, packet)| tag.hash == hash && is_it(packet))
    }

    /// Stores a fragment in the packet at an index. `check` is the relation of the fragment to that packet.
    /// Returns the new index of the packet, which changes if another packet is removed to make room, and the
    /// outcome.
    fn take(&mut self, mut at: usize, fragment: &FragmentView, check: Check) -> (usize, Step) {
        let step = match check {
            Check::New if self.allocate(&mut at, fragment) => self.store(at, fragment),
            Check::New | Check::NoSuchPacket => Step::Full,
            Check::Repeated => {
                if let Some(packet) = self.packets.get_mut(at) {
                    packet.fragments += 1;
                }
                Step::Kept
            }
            Check::Contradiction => Step::Inconsistent,
        };
        (at, step)
    }

    /// Compares a fragment with the data that the packet at an index already has.
    fn check(&self, at: usize, fragment: &FragmentView) -> Check {
        let data = self.frame.get(fragment.data..fragment.data + fragment.size);
        let (Some(packet), Some(data)) = (self.packets.get(at), data) else {
            return Check::NoSuchPacket;
        };
        let (begin, end) = (fragment.offset, fragment.offset + fragment.size);
        // Only the last fragment shows the end of the packet, and no data may be past this end.
        let is_contradiction = match packet.total {
            Some(total) => end > total || fragment.is_last && end != total,
            None => fragment.is_last && end < packet.end,
        };
        if is_contradiction || end > CHUNKS_EACH * CHUNK_SIZE {
            return Check::Contradiction;
        }
        let units = units_of(fragment);
        let taken = units
            .clone()
            .filter(|unit| packet.units[unit / 64] >> (unit % 64) & 1 != 0)
            .count();
        if taken == units.len() && packet.has(&self.memory, begin, data) {
            Check::Repeated
        } else if taken != 0 {
            Check::Contradiction
        } else {
            Check::New
        }
    }

    /// Allocates the chunks that the data of a fragment need. If no chunk is free, discards the oldest other
    /// packet with data, which may change the index of this packet. Returns false if there is no such other
    /// packet.
    fn allocate(&mut self, at: &mut usize, fragment: &FragmentView) -> bool {
        let Some(source) = self.packets.get(*at).map(|packet| packet.source) else {
            return false;
        };
        let chunks = fragment.offset / CHUNK_SIZE..(fragment.offset + fragment.size).div_ceil(CHUNK_SIZE);
        for chunk in chunks {
            loop {
                let entry = self
                    .packets
                    .get_mut(*at)
                    .and_then(|packet| packet.chunks.get_mut(chunk));
                let Some(entry) = entry else {
                    return false;
                };
                if *entry != NONE {
                    break;
                }
                if let Some(free) = self.free.pop() {
                    *entry = free;
                } else if !self.evict(*at) {
                    return false;
                } else if let Some(moved) =
                    self.find(fragment.identity.hash(source.1), &fragment.identity, source)
                {
                    *at = moved;
                } else {
                    return false;
                }
            }
        }
        true
    }

    /// Writes the data of a fragment into its packet's chunks, which are allocated. Returns [`Step::Whole`] if no data
    /// are missing now, [`Step::Kept`] if some are, and [`Step::Full`] if the data cannot be written.
    fn store(&mut self, at: usize, fragment: &FragmentView) -> Step {
        let data = self.frame.get(fragment.data..fragment.data + fragment.size);
        let (Some(packet), Some(data)) = (self.packets.get_mut(at), data) else {
            return Step::Full;
        };
        if !packet.write(&mut self.memory, fragment.offset, data) {
            return Step::Full;
        }
        let end = fragment.offset + fragment.size;
        units_of(fragment).for_each(|unit| packet.units[unit / 64] |= 1 << (unit % 64));
        packet.fragments += 1;
        packet.have += fragment.size;
        packet.end = packet.end.max(end);
        packet.ecns |= 1 << fragment.ecn;
        if fragment.is_last {
            packet.total = Some(end);
        }
        if fragment.offset == 0
            && let Some(headers) = self.frame.get(..fragment.data)
        {
            packet.first = Some(*fragment);
            packet.headers[..fragment.data].copy_from_slice(headers);
        }
        if packet.total == Some(packet.have) {
            Step::Whole
        } else {
            Step::Kept
        }
    }

    /// Discards the oldest packet except the one at index `but`. Packets without data are discarded only if `but` is
    /// `usize::MAX`. Returns true if a packet was discarded.
    fn evict(&mut self, but: usize) -> bool {
        let holds =
            |packet: &Incomplete| but == usize::MAX || packet.chunks.iter().any(|chunk| *chunk != NONE);
        let others = self
            .packets
            .iter()
            .enumerate()
            .filter(|(at, packet)| *at != but && holds(packet));
        let oldest = others
            .min_by_key(|(at, _)| self.tags.get(*at).map(|tag| tag.since))
            .map(|(at, _)| at);
        match oldest {
            None => false,
            Some(at) => {
                self.evicted += self.discard(at);
                true
            }
        }
    }

    /// Writes the frame of the complete packet at an index into `whole`. Returns false if the packet is not
    /// valid.
    fn write_whole(&mut self, at: usize) -> bool {
        /// The bits of Not-ECT and CE (RFC 3168, section 5).
        const NOT_CAPABLE: u8 = 1;
        const CONGESTED: u8 = 1 << 3;
        self.whole.clear();
        let Some(packet) = self.packets.get(at) else {
            return false;
        };
        let (Some(first), Some(total)) = (&packet.first, packet.total) else {
            return false;
        };
        // If one fragment experienced congestion (CE), the packet did. A fragment that is not ECN-capable
        // contradicts that (RFC 3168, section 5.3).
        let ecn = match packet.ecns {
            ecns if ecns & CONGESTED == 0 => first.ecn,
            ecns if ecns & NOT_CAPABLE == 0 => 3,
            _ => return false,
        };
        if !first.write_headers(&packet.headers[..first.data], total, ecn, &mut self.whole) {
            return false;
        }
        for (number, begin) in (0..total).step_by(CHUNK_SIZE).enumerate() {
            let size = CHUNK_SIZE.min(total - begin);
            let chunk = usize::from(packet.chunks[number]) * CHUNK_SIZE;
            let Some(data) = self.memory.get(chunk..chunk + size) else {
                return false;
            };
            self.whole.extend_from_slice(data);
        }
        true
    }

    /// Discards the packet at an index. Returns the number of its stored fragments.
    fn discard(&mut self, at: usize) -> u64 {
        self.give_back(at);
        if at < self.packets.len() && at < self.tags.len() {
            self.tags.swap_remove(at);
            self.packets.swap_remove(at).fragments
        } else {
            0
        }
    }

    fn give_back(&mut self, at: usize) {
        if let Some(packet) = self.packets.get_mut(at) {
            for chunk in packet.chunks.iter_mut().filter(|chunk| **chunk != NONE) {
                self.free.push(*chunk);
                *chunk = NONE;
            }
        }
    }
}

/// The outcome of [`Assembler::take`].
enum Step {
    /// The fragment is stored; others are missing.
    Kept,
    /// The fragment is stored, and none is missing.
    Whole,
    /// The fragment contradicts others of its packet, or an earlier fragment did.
    Inconsistent,
    /// No memory is left for the fragment.
    Full,
}

/// The relation of a fragment to the stored data of its packet.
#[derive(Clone, Copy)]
enum Check {
    /// The packet has no data of the fragment.
    New,
    /// The packet has exactly the data of the fragment.
    Repeated,
    /// The data overlap stored data, or exceed the end of the packet.
    Contradiction,
    /// There is no packet at the index.
    NoSuchPacket,
}

/// Returns the units of eight bytes that the data of a fragment fill.
fn units_of(fragment: &FragmentView) -> core::ops::Range<usize> {
    fragment.offset / 8..(fragment.offset + fragment.size).div_ceil(8)
}

impl Incomplete {
    /// Returns the parts of `size` bytes from `begin` on, each as offset in the range, offset in memory and
    /// size. The iterator ends before a missing chunk.
    fn parts(&self, begin: usize, size: usize) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let mut done = 0;
        core::iter::from_fn(move || {
            let (chunk, within) = ((begin + done) / CHUNK_SIZE, (begin + done) % CHUNK_SIZE);
            let part = (CHUNK_SIZE - within).min(size - done);
            let place = *self.chunks.get(chunk)?;
            if part == 0 || place == NONE {
                return None;
            }
            let from = done;
            done += part;
            Some((from, usize::from(place) * CHUNK_SIZE + within, part))
        })
    }

    fn write(&self, memory: &mut [u8], begin: usize, data: &[u8]) -> bool {
        let mut written = 0;
        for (from, place, size) in self.parts(begin, data.len()) {
            memory[place..place + size].copy_from_slice(&data[from..from + size]);
            written += size;
        }
        written == data.len()
    }

    fn has(&self, memory: &[u8], begin: usize, data: &[u8]) -> bool {
        self.parts(begin, data.len())
            .all(|(from, place, size)| memory[place..place + size] == data[from..from + size])
    }
}
