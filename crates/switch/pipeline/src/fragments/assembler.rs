//! Puts fragments together, in bounded memory and time.
//!
//! Data lie in chunks of one block of memory, each of which belongs to one unfinished packet or to none. When there
//! is no room for another packet the oldest makes way; a packet that is not whole after [`LIFE`] is forgotten.
//! Overlapping data are never chosen between: they end the packet, and what comes of it later, as RFC 5722 demands for
//! IPv6; for IPv4 an honest sender makes none either. A fragment that comes twice is taken once.

use millrace_types::{Duration, PortNo, Time};
use millrace_wire::{Depth, Fragment, Layers};

use super::piece::{HEADERS_MAX, Identity, Piece};
use crate::DropReason;

/// How long the fragments of a packet may take (RFC 8200, section 4.5; RFC 1122, section 3.3.2 for IPv4).
const LIFE: Duration = Duration::from_secs(60);
/// Bytes of a chunk.
const CHUNK_SIZE: usize = 2048;
/// Chunks: four megabytes.
const CHUNKS_LEN: usize = 2048;
/// Chunks of the longest packet.
const CHUNKS_EACH: usize = 32;
/// Unfinished packets, at most.
const PACKETS_LEN: usize = 512;
/// Words of a set with a bit for each 8 bytes of the longest packet.
const UNITS_WORDS: usize = 65_536 / 8 / 64;
/// No chunk.
const NONE: u16 = u16::MAX;

/// What is looked at of every unfinished packet when a fragment comes.
struct Tag {
    hash: u32,
    since: Time,
}

/// One packet that is not whole yet.
struct Unfinished {
    identity: Identity,
    in_port: PortNo,
    /// Overlapping data, or lengths that contradict each other: the rest of it is dropped.
    is_spoiled: bool,
    /// Fragments that it has taken.
    fragments: u64,
    /// Bytes that it has, and bytes of the whole once the last fragment was seen.
    have: usize,
    total: Option<usize>,
    /// Bytes up to the end of the last data that it has.
    end: usize,
    /// The headers of the first fragment, once it was seen.
    first: Option<Piece>,
    headers: [u8; HEADERS_MAX],
    /// The notifications seen, one bit for each of the four.
    ecns: u8,
    units: [u64; UNITS_WORDS],
    chunks: [u16; CHUNKS_EACH],
}

/// What became of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Assembled<'a> {
    /// It is kept, until others come.
    Kept,
    /// The packet is whole: these are the bytes of its frame.
    Whole(&'a [u8]),
    /// It is dropped for this reason, and so are as many that were kept before.
    Dropped(DropReason, u64),
}

/// Puts the fragments of one worker together. It takes about five megabytes, when it is made, and nothing later.
pub struct Assembler {
    packets: Vec<Unfinished>,
    /// Of each packet what is looked at first, side by side.
    tags: Vec<Tag>,
    memory: Box<[u8]>,
    free: Vec<u16>,
    /// The frame of a fragment, and that of a whole packet.
    frame: Vec<u8>,
    whole: Vec<u8>,
    /// Fragments that were forgotten since somebody asked, by reason: too old, and no room.
    expired: u64,
    evicted: u64,
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
    /// One that has nothing yet.
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
        }
    }

    /// The most bytes of a frame that it takes.
    pub const FRAME_MAX: usize = HEADERS_MAX + CHUNKS_EACH * CHUNK_SIZE;

    /// Room for a fragment's frame, to be filled before [`Assembler::add`].
    pub fn frame(&mut self) -> &mut Vec<u8> {
        self.frame.clear();
        &mut self.frame
    }

    /// Unfinished packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether nothing is unfinished.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Fragments that were forgotten since this was asked last: because they were too old, and because there was no
    /// room.
    pub fn forgotten(&mut self) -> (u64, u64) {
        (
            core::mem::take(&mut self.expired),
            core::mem::take(&mut self.evicted),
        )
    }

    /// Takes the fragment `piece`, which is in [`Assembler::frame`] and came in at a port.
    pub fn add(&mut self, piece: &Piece, in_port: PortNo, now: Time) -> Assembled<'_> {
        let at = self.place(piece, in_port, now);
        let is_spoiled = self.packets.get(at).is_some_and(|packet| packet.is_spoiled);
        let (at, outcome) = if is_spoiled {
            (at, Step::Spoiled)
        } else {
            self.take(at, piece)
        };
        match outcome {
            Step::Kept => Assembled::Kept,
            Step::Spoiled => {
                let lost = self.packets.get_mut(at).map_or(0, |packet| {
                    packet.is_spoiled = true;
                    core::mem::take(&mut packet.fragments)
                });
                self.give_back(at);
                Assembled::Dropped(DropReason::FragmentOverlap, lost)
            }
            Step::Full => {
                let lost = self.forget(at);
                Assembled::Dropped(DropReason::FragmentMemory, lost)
            }
            Step::Whole => {
                // A whole that is a fragment again, by a second header behind the first, nobody sends but to get past
                // what looks at whole packets only.
                let is_packet = self.write_whole(at)
                    && Layers::parse(&self.whole, Depth::L3).fragment() == Fragment::Whole;
                let lost = self.forget(at);
                if is_packet {
                    Assembled::Whole(&self.whole)
                } else {
                    // Fragments of a packet have been counted as kept; the one at hand is the one too many.
                    Assembled::Dropped(DropReason::FragmentMalformed, lost.saturating_sub(1))
                }
            }
        }
    }

    /// The place of the packet that the fragment belongs to, which may be new.
    fn place(&mut self, piece: &Piece, in_port: PortNo, now: Time) -> usize {
        let mut at = 0;
        while let Some(tag) = self.tags.get(at) {
            if now.since(tag.since) > LIFE {
                // The last one is there now.
                self.expired += self.forget(at);
            } else {
                at += 1;
            }
        }
        let hash = piece.identity.hash();
        self.find(hash, &piece.identity, in_port).unwrap_or_else(|| {
            if self.packets.len() == PACKETS_LEN {
                self.evict(usize::MAX);
            }
            self.tags.push(Tag { hash, since: now });
            self.packets.push(Unfinished {
                identity: piece.identity,
                in_port,
                is_spoiled: false,
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

    fn find(&self, hash: u32, identity: &Identity, in_port: PortNo) -> Option<usize> {
        let is_it = |packet: &Unfinished| packet.in_port == in_port && packet.identity == *identity;
        let mut tags = self.tags.iter().zip(&self.packets);
        tags.position(|(tag, packet)| tag.hash == hash && is_it(packet))
    }

    /// Stores a fragment in the packet at an index. Returns the index of the packet after that, too: it changes when
    /// other packets make room.
    fn take(&mut self, mut at: usize, piece: &Piece) -> (usize, Step) {
        let step = match self.check(at, piece) {
            Check::New if self.allocate(&mut at, piece) => self.store(at, piece),
            Check::New | Check::NoSuchPacket => Step::Full,
            Check::Repeated => {
                if let Some(packet) = self.packets.get_mut(at) {
                    packet.fragments += 1;
                }
                Step::Kept
            }
            Check::Contradiction => Step::Spoiled,
        };
        (at, step)
    }

    /// Compares a fragment with what the packet at an index has of it, and changes nothing.
    fn check(&self, at: usize, piece: &Piece) -> Check {
        let data = self.frame.get(piece.data..piece.data + piece.size);
        let (Some(packet), Some(data)) = (self.packets.get(at), data) else {
            return Check::NoSuchPacket;
        };
        let (begin, end) = (piece.offset, piece.offset + piece.size);
        // Only the last fragment says where the packet ends, and no data lie behind that.
        let is_contradiction = match packet.total {
            Some(total) => end > total || piece.is_last && end != total,
            None => piece.is_last && end < packet.end,
        };
        if is_contradiction || end > CHUNKS_EACH * CHUNK_SIZE {
            return Check::Contradiction;
        }
        let units = units_of(piece);
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

    /// Allocates the chunks that the data of a fragment need. Where none is free, the oldest other packet with data is
    /// forgotten, which may change the index of this one. Returns false if there is no such other packet.
    fn allocate(&mut self, at: &mut usize, piece: &Piece) -> bool {
        let Some(in_port) = self.packets.get(*at).map(|packet| packet.in_port) else {
            return false;
        };
        let chunks = piece.offset / CHUNK_SIZE..(piece.offset + piece.size).div_ceil(CHUNK_SIZE);
        for chunk in chunks {
            loop {
                let place = self
                    .packets
                    .get_mut(*at)
                    .and_then(|packet| packet.chunks.get_mut(chunk));
                let Some(place) = place else {
                    return false;
                };
                if *place != NONE {
                    break;
                }
                if let Some(free) = self.free.pop() {
                    *place = free;
                } else if !self.evict(*at) {
                    return false;
                } else if let Some(moved) = self.find(piece.identity.hash(), &piece.identity, in_port) {
                    *at = moved;
                } else {
                    return false;
                }
            }
        }
        true
    }

    /// Writes the data of a fragment into chunks that are allocated. Returns whether the packet is whole with it.
    fn store(&mut self, at: usize, piece: &Piece) -> Step {
        let data = self.frame.get(piece.data..piece.data + piece.size);
        let (Some(packet), Some(data)) = (self.packets.get_mut(at), data) else {
            return Step::Full;
        };
        if !packet.write(&mut self.memory, piece.offset, data) {
            return Step::Full;
        }
        let end = piece.offset + piece.size;
        units_of(piece).for_each(|unit| packet.units[unit / 64] |= 1 << (unit % 64));
        packet.fragments += 1;
        packet.have += piece.size;
        packet.end = packet.end.max(end);
        packet.ecns |= 1 << piece.ecn;
        if piece.is_last {
            packet.total = Some(end);
        }
        if piece.offset == 0
            && let Some(headers) = self.frame.get(..piece.data)
        {
            packet.first = Some(*piece);
            packet.headers[..piece.data].copy_from_slice(headers);
        }
        if packet.total == Some(packet.have) {
            Step::Whole
        } else {
            Step::Kept
        }
    }

    /// Forgets the oldest packet but this one. Returns whether there was one with data.
    fn evict(&mut self, but: usize) -> bool {
        let holds =
            |packet: &Unfinished| but == usize::MAX || packet.chunks.iter().any(|chunk| *chunk != NONE);
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
                self.evicted += self.forget(at);
                true
            }
        }
    }

    /// Writes the packet at a place, of which all is there, into `whole`. Returns whether it is one.
    fn write_whole(&mut self, at: usize) -> bool {
        /// Not-ECT and CE (RFC 3168).
        const NOT_CAPABLE: u8 = 1;
        const CONGESTED: u8 = 1 << 3;
        self.whole.clear();
        let Some(packet) = self.packets.get(at) else {
            return false;
        };
        let (Some(first), Some(total)) = (&packet.first, packet.total) else {
            return false;
        };
        // RFC 3168, section 5.3: congestion that one fragment met, the packet met; but not one that cannot.
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

    /// Forgets the packet at a place. Returns how many fragments it had taken.
    fn forget(&mut self, at: usize) -> u64 {
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
    /// The fragment contradicts others of its packet, or one before it did.
    Spoiled,
    /// No memory is left for the fragment.
    Full,
}

/// The relation of a fragment to what its packet has already.
enum Check {
    /// The packet has none of its data.
    New,
    /// The packet has exactly its data.
    Repeated,
    /// Its data overlap others, or lie behind the end of the packet.
    Contradiction,
    /// There is no packet at the index.
    NoSuchPacket,
}

/// Returns the units of eight bytes that the data of a fragment fill.
fn units_of(piece: &Piece) -> core::ops::Range<usize> {
    piece.offset / 8..(piece.offset + piece.size).div_ceil(8)
}

impl Unfinished {
    /// The parts of `size` bytes from `begin` on, as places in memory; fewer bytes where a chunk is missing.
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
