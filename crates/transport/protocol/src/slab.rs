//! Slabs: sealed packets of neighbouring pieces. The slab cache holds them for receivers that are a little
//! behind, for repairs, and for the thread that sends them.
//!
//! ```text
//!  extent  ├── piece ──┼── piece ──┼── … ──┼── piece ──┼─ … ─┤        a grid: cut at multiples of the payload
//!  slab    ├──────── pieces 0 to 63 ───────┼─────── 64 to 127 ──── … ─┤
//! ```
//!
//! A slab has 64 pieces at an MTU of 1,500 bytes, and fewer larger ones, so that all slabs have about the same size. A group has a
//! grid for each packet size that the paths of its members pass; members on the same grid share its slabs.

use crate::extent::{ExtentError, Layout};
use crate::packet::{ADDRESS_SIZE, COUNTER_SIZE, SHARED_OVERHEAD, SealedPart, TAG_SIZE};
use crate::seal::{Seal, SealError};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use thiserror::Error;

/// The maximum number of pieces in one slab: a request has a bit for each.
const PIECES_MAX: u64 = 64;
/// The maximum size of a slab in bytes, unless a single packet is larger.
const SLAB_SIZE: usize = 64 * 1_456;

/// A piece of the session that one packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub len: u16,
}

/// The reason why a piece cannot be sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SealPieceError {
    /// The AEAD returned an error.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The piece is outside of the session.
    #[error(transparent)]
    Extent(#[from] ExtentError),
    /// The source returned another number of bytes than requested.
    #[error("{given} bytes were read for a piece of {wanted}; read the file again, it changed")]
    Size {
        /// Bytes of the piece.
        wanted: usize,
        /// Bytes given.
        given: usize,
    },
}

/// The division of a session into pieces of one payload size: each extent is divided at multiples of this
/// size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    layout: Layout,
    payload: u16,
    /// The number of pieces in one slab.
    pieces: u64,
    slabs_per_extent: u64,
}

/// The identifier of a slab.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlabId {
    payload: u16,
    index: u64,
}

/// Pieces of a slab that are to be sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SealRequest {
    pub slab: SlabId,
    /// Bit *i* stands for piece *i* of the slab.
    pub pieces: u64,
}

impl Grid {
    /// Returns the grid of a payload size in bytes, which is at least 1.
    pub fn new(layout: Layout, payload: u16) -> Grid {
        let payload = payload.max(1);
        let pieces = ((SLAB_SIZE / (usize::from(payload) + SHARED_OVERHEAD)) as u64).clamp(1, PIECES_MAX);
        let in_extent = layout.extent_size().div_ceil(u64::from(payload));
        Grid {
            layout,
            payload,
            pieces,
            slabs_per_extent: in_extent.div_ceil(pieces),
        }
    }

    /// Returns the payload of a piece in bytes. Only the last piece of an extent may have less.
    pub fn payload(&self) -> u16 {
        self.payload
    }

    /// Returns the piece that holds an address of the session.
    pub fn piece_at(&self, address: u64) -> Piece {
        let payload = u64::from(self.payload);
        let (start, end) = self.layout.bounds(self.layout.extent_of(address));
        let from = start + (address.saturating_sub(start)) / payload * payload;
        let len = u16::try_from(end.saturating_sub(from)).unwrap_or(u16::MAX);
        Piece {
            address: from,
            len: len.min(self.payload),
        }
    }

    /// Returns the slab of a piece of this grid, and the piece's index in it.
    fn locate(&self, piece: Piece) -> (SlabId, usize) {
        let extent = self.layout.extent_of(piece.address);
        let number = (piece.address - self.layout.bounds(extent).0) / u64::from(self.payload);
        self.position(extent, number)
    }

    /// Returns slab and index of a piece as [`Grid::locate`] does, if the piece lies on this grid.
    fn locate_if_on(&self, piece: Piece) -> Option<(SlabId, usize)> {
        if piece.len > self.payload {
            return None;
        }
        let extent = self.layout.extent_of(piece.address);
        let (start, end) = self.layout.bounds(extent);
        let (offset, payload) = (piece.address.checked_sub(start)?, u64::from(self.payload));
        let number = offset / payload;
        let len = end.saturating_sub(piece.address).min(payload);
        let is_on = number * payload == offset && len == u64::from(piece.len);
        is_on.then(|| self.position(extent, number))
    }

    /// Returns slab and index of a piece by its number in an extent.
    fn position(&self, extent: u64, number: u64) -> (SlabId, usize) {
        let id = SlabId {
            payload: self.payload,
            index: extent * self.slabs_per_extent + number / self.pieces,
        };
        (id, usize::try_from(number % self.pieces).unwrap_or(0))
    }

    /// Returns the request for one piece.
    pub(crate) fn request(&self, piece: Piece) -> SealRequest {
        let (slab, index) = self.locate(piece);
        SealRequest {
            slab,
            pieces: 1 << index,
        }
    }

    /// Returns the addresses of a slab.
    fn addresses(&self, slab: SlabId) -> Range<u64> {
        let (extent, within) = (
            slab.index / self.slabs_per_extent,
            slab.index % self.slabs_per_extent,
        );
        let (start, end) = self.layout.bounds(extent);
        let size = self.pieces * u64::from(self.payload);
        let from = start.saturating_add(within * size).min(end);
        from..from.saturating_add(size).min(end)
    }

    /// Returns the slab that holds an address.
    pub(crate) fn slab_at(&self, address: u64) -> SlabId {
        self.locate(self.piece_at(address)).0
    }

    /// Returns the address after the slab that holds an address.
    pub(crate) fn slab_end(&self, address: u64) -> u64 {
        self.addresses(self.slab_at(address)).end
    }

    /// Returns the pieces of a request, with their indices in the slab.
    pub fn pieces(&self, request: SealRequest) -> impl Iterator<Item = (usize, Piece)> + use<> {
        let Range { start, end } = self.addresses(request.slab);
        let payload = u64::from(self.payload);
        let addresses = (0..self.pieces).map(move |index| (index, start + index * payload));
        addresses
            .take_while(move |(_, address)| *address < end)
            .filter(move |(index, _)| request.pieces >> index & 1 == 1)
            .map(move |(index, address)| {
                let len = u16::try_from((end - address).min(payload)).unwrap_or(u16::MAX);
                (usize::try_from(index).unwrap_or(0), Piece { address, len })
            })
    }
}

/// The sealed packets of one slab. Only requested packets are present.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slab {
    request: SealRequest,
    /// The shared parts, in slots of the size of the largest one.
    bytes: Vec<u8>,
}

impl Slab {
    fn slot_size(&self) -> usize {
        usize::from(self.request.slab.payload) + SHARED_OVERHEAD
    }

    fn part(&self, index: usize, piece: Piece) -> Option<&[u8]> {
        let size = usize::from(piece.len) + SHARED_OVERHEAD;
        self.bytes.get(index * self.slot_size()..)?.get(..size)
    }

    /// Returns the request for the pieces in this slab.
    pub fn request(&self) -> SealRequest {
        self.request
    }
}

/// Seals slabs under one content key. Only the sealer uses the counters of this key.
pub struct Sealer<S> {
    layout: Layout,
    content: S,
    counter: u64,
}

impl<S: Seal> Sealer<S> {
    /// Returns a sealer that begins with counter 0. No two sealers may have the same content key.
    pub fn new(layout: Layout, content: S) -> Sealer<S> {
        Sealer {
            layout,
            content,
            counter: 0,
        }
    }

    /// Returns how many packets were sealed.
    pub fn sealed(&self) -> u64 {
        self.counter
    }

    /// Seals the pieces of a request. `read` appends the bytes of a piece to its buffer. The memory of `old`
    /// is reused.
    ///
    /// # Errors
    /// If `read` fails or returns another number of bytes than a piece has, or the seal counters are used up.
    pub fn seal<E: From<SealPieceError>>(
        &mut self,
        request: SealRequest,
        old: Option<Slab>,
        mut read: impl FnMut(Piece, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Slab, E> {
        let grid = Grid::new(self.layout, request.slab.payload);
        let mut bytes = old.map(|slab| slab.bytes).unwrap_or_default();
        bytes.clear();
        let slot_size = usize::from(request.slab.payload) + SHARED_OVERHEAD;
        bytes.reserve_exact(slot_size * usize::try_from(grid.pieces).unwrap_or(0));
        for (index, piece) in grid.pieces(request) {
            let start = index * slot_size;
            bytes.resize(start, 0);
            let counter = self.counter;
            bytes.extend_from_slice(&counter.to_be_bytes()[8 - COUNTER_SIZE..]);
            let address = self.layout.encode(piece.address).map_err(SealPieceError::from)?;
            bytes.extend_from_slice(&address.to_be_bytes()[8 - ADDRESS_SIZE..]);
            let before = bytes.len();
            read(piece, &mut bytes)?;
            let (wanted, given) = (usize::from(piece.len), bytes.len() - before);
            if wanted != given {
                return Err(SealPieceError::Size { wanted, given }.into());
            }
            let tag = self
                .content
                .seal(counter, &mut bytes[start + COUNTER_SIZE..])
                .map_err(SealPieceError::from)?;
            bytes.extend_from_slice(&tag[..TAG_SIZE]);
            self.counter += 1;
        }
        Ok(Slab { request, bytes })
    }
}

/// Hashes slab identifiers. This sender creates the identifiers, so that no attacker can choose them to
/// collide. The default hasher, SipHash, costs more than the rest of a look-up.
#[derive(Clone, Copy, Debug, Default)]
struct SlabHasher(u64);

impl Hasher for SlabHasher {
    fn finish(&self) -> u64 {
        // The table uses the low bits, and the multiplication mixes the high bits.
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        // 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, section 6.4).
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A slab in the cache.
#[derive(Clone, Debug)]
struct Cached {
    /// The number of slabs that were cached up to this one.
    number: u64,
    slab: Slab,
}

/// A place in the cache, and the number of the slab that was put there.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u64,
    at: usize,
}

/// The slabs of a group. A new slab replaces a slab that nobody needs, or else the oldest slab.
#[derive(Clone, Debug)]
pub struct SlabCache {
    /// The grids of the slabs, the last used one first.
    grids: Vec<Grid>,
    layout: Layout,
    slabs: Vec<Cached>,
    capacity: usize,
    /// The slabs in the order in which they were cached. An entry is stale if its place holds another slab since then.
    order: VecDeque<Place>,
    /// Slabs that nobody needs. The last one is the most likely to be in the processor's caches.
    free: Vec<usize>,
    /// The number of slabs that were cached so far.
    cached: u64,
    index: HashMap<SlabId, usize, BuildHasherDefault<SlabHasher>>,
}

impl SlabCache {
    /// Returns an empty cache for slabs of about `size` bytes together.
    pub fn new(layout: Layout, size: usize) -> SlabCache {
        SlabCache {
            grids: Vec::new(),
            layout,
            slabs: Vec::new(),
            capacity: (size / SLAB_SIZE).max(2),
            order: VecDeque::new(),
            free: Vec::new(),
            cached: 0,
            index: HashMap::default(),
        }
    }

    /// Returns slab and index of a piece, on each grid that it lies on.
    fn locate(&self, piece: Piece) -> impl Iterator<Item = (SlabId, usize)> {
        self.grids.iter().filter_map(move |grid| grid.locate_if_on(piece))
    }

    /// Returns the shared part of a piece, if it is cached.
    pub fn get(&self, piece: Piece) -> Option<SealedPart<'_>> {
        self.locate(piece).find_map(|(id, index)| {
            let slab = &self.slabs[*self.index.get(&id)?].slab;
            (slab.request.pieces >> index & 1 == 1).then_some(())?;
            SealedPart::new(slab.part(index, piece)?).ok()
        })
    }

    /// Returns the request for all pieces of the slab that holds an address, except those that are cached.
    pub(crate) fn missing(&self, grid: Grid, address: u64) -> Option<SealRequest> {
        let (slab, _) = grid.locate(grid.piece_at(address));
        let Range { start, end } = grid.addresses(slab);
        let len = (end - start).div_ceil(u64::from(grid.payload));
        let all = u64::MAX.checked_shr(u32::try_from(PIECES_MAX - len.min(PIECES_MAX)).unwrap_or(0));
        let pieces = all.unwrap_or(0);
        self.missing_of(SealRequest { slab, pieces })
    }

    /// Returns the request for the pieces that are not cached. Returns `None` if all are cached.
    pub fn missing_of(&self, request: SealRequest) -> Option<SealRequest> {
        let at = self.index.get(&request.slab);
        let cached = at.map_or(0, |at| self.slabs[*at].slab.request.pieces);
        let pieces = request.pieces & !cached;
        (pieces != 0).then_some(SealRequest { pieces, ..request })
    }

    /// Discards the packets of an extent, because its digest was wrong at a receiver or because no receiver
    /// needs the extent any more. In the first case, the pieces are read and sealed again. The memory of
    /// these packets is reused first.
    pub fn forget(&mut self, extent: u64) {
        for grid in &self.grids {
            let first = extent.saturating_mul(grid.slabs_per_extent);
            for index in first..first.saturating_add(grid.slabs_per_extent) {
                let payload = grid.payload;
                self.free.extend(self.index.remove(&SlabId { payload, index }));
            }
        }
    }

    /// Caches a slab. Returns a slab that is no longer needed, so that its memory can be reused.
    pub fn insert(&mut self, slab: Slab) -> Option<Slab> {
        let id = slab.request.slab;
        match self.grids.iter().position(|grid| grid.payload == id.payload) {
            Some(at) => self.grids.swap(0, at),
            None => self.grids.insert(0, Grid::new(self.layout, id.payload)),
        }
        if let Some(at) = self.index.get(&id) {
            let mut known = std::mem::replace(&mut self.slabs[*at].slab, slab);
            let merged = &mut self.slabs[*at].slab;
            // Packets that were sealed before stay unchanged: a repair is the packet that was lost.
            let pieces = known.request.pieces & !merged.request.pieces;
            let slot_size = merged.slot_size();
            let end = known.bytes.len().max(merged.bytes.len());
            merged.bytes.resize(end, 0);
            for index in (0..64_usize).filter(|index| pieces >> index & 1 == 1) {
                let to = end.min((index + 1) * slot_size).min(known.bytes.len());
                let slot = index * slot_size..to;
                merged.bytes[slot.clone()].copy_from_slice(&known.bytes[slot]);
            }
            merged.request.pieces |= pieces;
            known.request.pieces = 0;
            return Some(known);
        }
        self.cached += 1;
        let number = self.cached;
        let reused = self.free.pop().or_else(|| {
            let is_full = self.slabs.len() >= self.capacity;
            is_full.then(|| self.oldest()).flatten()
        });
        let Some(at) = reused else {
            self.index.insert(id, self.slabs.len());
            let at = self.slabs.len();
            self.order.push_back(Place { number, at });
            self.slabs.push(Cached { number, slab });
            return None;
        };
        let Cached { slab: old, .. } = std::mem::replace(&mut self.slabs[at], Cached { number, slab });
        if self.index.get(&old.request.slab) == Some(&at) {
            self.index.remove(&old.request.slab);
        }
        self.index.insert(id, at);
        self.order.push_back(Place { number, at });
        if self.order.len() > 2 * self.slabs.len() {
            let slabs = &self.slabs;
            self.order.retain(|place| slabs[place.at].number == place.number);
        }
        Some(old)
    }

    /// Removes the oldest slab from the order and returns its index.
    fn oldest(&mut self) -> Option<usize> {
        while let Some(Place { number, at }) = self.order.pop_front() {
            if self.slabs[at].number == number {
                return Some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::ExtentSize;
    use crate::seal::{Algorithm, ContentKey};

    fn layout() -> Layout {
        Layout::new((3 << 20) + 500, ExtentSize::Small).unwrap()
    }

    fn sealer() -> Sealer<ContentKey> {
        Sealer::new(layout(), ContentKey::new(Algorithm::Aes128Gcm, &[5; 32]).unwrap())
    }

    fn seal(sealer: &mut Sealer<ContentKey>, request: SealRequest) -> Slab {
        let read = |piece: Piece, bytes: &mut Vec<u8>| -> Result<(), SealPieceError> {
            bytes.extend((0..u64::from(piece.len)).map(|at| (piece.address + at) as u8));
            Ok(())
        };
        sealer.seal(request, None, read).unwrap()
    }

    #[test]
    fn the_pieces_of_all_slabs_are_the_session_and_each_opens_to_its_address() {
        for payload in [1_424, 1_120, 8_928] {
            let (mut sealer, grid) = (sealer(), Grid::new(layout(), payload));
            let mut cache = SlabCache::new(layout(), 8 << 20);
            let mut address = 0;
            while address < layout().bytes() {
                let request = cache.missing(grid, address).unwrap();
                let slab = seal(&mut sealer, request);
                assert!(cache.insert(slab).is_none());
                assert_eq!(cache.missing(grid, address), None);
                address = grid.slab_end(address);
            }
            let mut content = ContentKey::new(Algorithm::Aes128Gcm, &[5; 32]).unwrap();
            let mut at = 0;
            while at < layout().bytes() {
                let piece = grid.piece_at(at);
                assert_eq!(piece.address, at);
                let part = cache.get(piece).unwrap();
                let mut sealed = part.bytes()[COUNTER_SIZE..].to_vec();
                let plain = content.open(part.counter(), &mut sealed).unwrap();
                let bits = plain[..ADDRESS_SIZE]
                    .iter()
                    .fold(0, |bits, byte| bits << 8 | u64::from(*byte));
                let len = u64::from(piece.len);
                assert_eq!(layout().decode(bits, len), Ok(at));
                assert_eq!(plain.len(), ADDRESS_SIZE + usize::from(piece.len));
                assert_eq!(plain[ADDRESS_SIZE], at as u8);
                at += len;
            }
        }
    }

    #[test]
    fn what_is_oldest_makes_room_and_single_pieces_join_their_slab() {
        let grid = Grid::new(layout(), 1_000);
        let (mut sealer, mut cache) = (sealer(), SlabCache::new(layout(), 3 * SLAB_SIZE));
        let slabs: Vec<u64> = (0..5).map(|index| index * 64_000).collect();
        for address in &slabs {
            let request = cache.missing(grid, *address).unwrap();
            cache.insert(seal(&mut sealer, request));
        }
        let cached = |cache: &SlabCache| {
            slabs
                .iter()
                .map(|at| cache.get(grid.piece_at(*at)).is_some())
                .collect::<Vec<_>>()
        };
        assert_eq!(cached(&cache), [false, false, true, true, true]);
        let (first, third) = (grid.piece_at(0), grid.piece_at(2_000));
        let slab = seal(&mut sealer, grid.request(first));
        cache.insert(slab);
        assert!(cache.get(first).is_some() && cache.get(third).is_none());
        let before = cache.get(first).map(|part| part.counter());
        let slab = seal(&mut sealer, grid.request(third));
        cache.insert(slab);
        assert!(cache.get(third).is_some());
        assert_eq!(cache.get(first).map(|part| part.counter()), before);
        assert_eq!(cache.missing(grid, 0).unwrap().pieces, !0b101);
        cache.forget(0);
        assert!(cache.get(first).is_none());
        let slab = seal(&mut sealer, grid.request(first));
        cache.insert(slab);
        assert!(
            cache.get(first).map(|part| part.counter()) > before,
            "sealed anew"
        );
        let off_grid = Piece {
            address: 7,
            len: 1_000,
        };
        assert!(cache.get(off_grid).is_none());
    }

    #[test]
    fn the_memory_of_an_extent_that_nobody_needs_is_used_first_and_the_order_of_ages_holds() {
        let grid = Grid::new(layout(), 1_000);
        let (mut sealer, mut cache) = (sealer(), SlabCache::new(layout(), 20 * SLAB_SIZE));
        let mut insert = |cache: &mut SlabCache, address: u64| {
            let request = cache.missing(grid, address).unwrap();
            cache
                .insert(seal(&mut sealer, request))
                .map(|slab| slab.request.slab)
        };
        let slab = |address: u64| grid.locate(grid.piece_at(address)).0;
        // Extent 1 is older than two slabs of extent 0 and is no longer needed.
        for address in [1 << 20, 0, 64_000] {
            assert_eq!(insert(&mut cache, address), None);
        }
        cache.forget(1);
        for round in 0..100 {
            let address = (2 << 20) + round % 2 * 64_000;
            let old = slab(if round == 0 {
                1 << 20
            } else {
                (2 << 20) + (round + 1) % 2 * 64_000
            });
            assert_eq!(insert(&mut cache, address), Some(old));
            cache.forget(2);
        }
        assert!(cache.get(grid.piece_at(0)).is_some() && cache.order.len() <= 6);
        // A full cache has no free slot any more: the oldest seal is replaced.
        let rest: Vec<u64> = (2..17).map(|index| index * 64_000).collect();
        for address in rest.iter().copied().chain([2 << 20, (2 << 20) + 64_000, 1 << 20]) {
            insert(&mut cache, address);
        }
        assert_eq!(insert(&mut cache, (1 << 20) + 64_000), Some(slab(0)));
        assert_eq!(insert(&mut cache, (1 << 20) + 128_000), Some(slab(64_000)));
    }

    #[test]
    fn a_file_that_gave_fewer_bytes_than_a_piece_has_is_not_sealed() {
        let grid = Grid::new(layout(), 1_424);
        let result = sealer().seal(grid.request(grid.piece_at(0)), None, |_, bytes| {
            bytes.extend_from_slice(&[0; 9]);
            Ok::<(), SealPieceError>(())
        });
        assert_eq!(
            result,
            Err(SealPieceError::Size {
                wanted: 1_424,
                given: 9
            })
        );
    }
}
