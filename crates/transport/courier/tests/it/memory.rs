//! Files in memory: one array of bytes, extents of 1 MiB, SHA-256 instead of BLAKE3.

use millrace_courier::files::{FilesError, OpenError, Requests, Sink, SinkEvent, Source, Store, Value};
use millrace_courier::identity::PublicKey;
use millrace_transport::extent::{ExtentSize, Layout};
use millrace_transport::ranges::RangeSet;
use millrace_types::Time;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn value(bytes: &[u8]) -> Value {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    std::array::from_fn(|at| digest.as_ref()[at])
}

/// Returns bytes in which all extents differ.
pub(crate) fn content(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes: Vec<u8> = (0..size.div_ceil(8))
        .flat_map(|_| next(&mut state).to_le_bytes())
        .collect();
    bytes.truncate(size);
    bytes
}

/// Returns the next number of xorshift* (Marsaglia 2003, Vigna 2016).
pub(crate) fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn layout(size: usize) -> Layout {
    Layout::new(size as u64, ExtentSize::Small).unwrap()
}

fn extent(layout: Layout, bytes: &[u8], extent: u64) -> &[u8] {
    let (start, end) = layout.bounds(extent);
    &bytes[start as usize..end as usize]
}

/// The source; its manifest is the size.
pub(crate) struct MemorySource {
    pub(crate) bytes: Vec<u8>,
    manifest: Vec<u8>,
    values: HashMap<u64, Value>,
    new: VecDeque<(u64, Value)>,
    /// Bytes that were read.
    pub(crate) reads: u64,
}

impl MemorySource {
    pub(crate) fn new(bytes: Vec<u8>) -> MemorySource {
        MemorySource {
            manifest: (bytes.len() as u64).to_be_bytes().to_vec(),
            bytes,
            values: HashMap::new(),
            new: VecDeque::new(),
            reads: 0,
        }
    }

    fn learn(&mut self, index: u64) -> Value {
        if let Some(known) = self.values.get(&index) {
            return *known;
        }
        let own = value(extent(self.layout(), &self.bytes, index));
        self.values.insert(index, own);
        self.new.push_back((index, own));
        own
    }
}

impl Source for MemorySource {
    fn manifest(&self) -> &[u8] {
        &self.manifest
    }

    fn layout(&self) -> Layout {
        layout(self.bytes.len())
    }

    fn check_have(&mut self, extent: u64, value: &Value) -> Result<bool, FilesError> {
        Ok(self.learn(extent) == *value)
    }

    fn read(&mut self, address: u64, len: usize) -> Result<&[u8], FilesError> {
        self.learn(self.layout().extent_of(address));
        self.reads += len as u64;
        Ok(&self.bytes[address as usize..][..len])
    }

    fn poll_value(&mut self) -> Option<(u64, Value)> {
        self.new.pop_front()
    }

    fn value(&self, extent: u64) -> Option<Value> {
        self.values.get(&extent).copied()
    }

    fn group_values(&mut self, index: u64) -> Result<Vec<Value>, FilesError> {
        let bytes = extent(self.layout(), &self.bytes, index);
        Ok(bytes.chunks(16 << 10).map(value).collect())
    }

    fn poll_withdrawn(&mut self) -> Option<(u64, String)> {
        None
    }

    fn root(&self) -> Option<Value> {
        (self.values.len() as u64 == self.layout().extents()).then(|| value(&self.bytes))
    }
}

/// The state of a receiver that outlives its process: bytes and durable extents.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) bytes: Vec<u8>,
    pub(crate) durable: RangeSet,
    /// Extents in which one byte is damaged on the way to the disk, once each.
    pub(crate) damage: Vec<u64>,
    /// Extents whose group values the receiver asks for when the session starts, whether it has them or not.
    pub(crate) questions: Vec<u64>,
    /// The duration of [`Sink::flush`].
    pub(crate) flush_time: Duration,
    /// The number of open sinks, and its maximum so far.
    pub(crate) open: usize,
    pub(crate) open_max: usize,
}

/// A store on a disk.
#[derive(Clone, Default)]
pub(crate) struct MemoryStore(pub(crate) Arc<Mutex<Disk>>);

impl Store for MemoryStore {
    fn open(&self, _: PublicKey, manifest: &[u8], _: Requests) -> Result<Box<dyn Sink>, OpenError> {
        let size =
            u64::from_be_bytes(manifest.try_into().map_err(|_| FilesError("no size".into()))?) as usize;
        let mut disk = self.0.lock();
        disk.bytes.resize(size, 0);
        disk.open += 1;
        disk.open_max = disk.open_max.max(disk.open);
        let haves = disk.durable.ranges().iter().flat_map(Clone::clone).collect();
        drop(disk);
        let mut events = VecDeque::new();
        if size == 0 {
            events.push_back(SinkEvent::Complete);
        }
        Ok(Box::new(MemorySink {
            layout: layout(size),
            disk: Arc::clone(&self.0),
            haves,
            verified: RangeSet::new(),
            arrived: HashMap::new(),
            values: HashMap::new(),
            events,
        }))
    }
}

struct MemorySink {
    layout: Layout,
    disk: Arc<Mutex<Disk>>,
    haves: VecDeque<u64>,
    verified: RangeSet,
    arrived: HashMap<u64, u64>,
    values: HashMap<u64, Value>,
    events: VecDeque<SinkEvent>,
}

impl MemorySink {
    fn check(&mut self, index: u64) {
        let (start, end) = self.layout.bounds(index);
        let complete = self.arrived.get(&index) == Some(&(end - start));
        let (true, Some(wanted)) = (complete, self.values.get(&index)) else {
            return;
        };
        let mut disk = self.disk.lock();
        if value(extent(self.layout, &disk.bytes, index)) == *wanted {
            self.verified.insert(index..index + 1);
            disk.durable.insert(index..index + 1);
            self.events
                .extend([SinkEvent::Verified(index), SinkEvent::Durable(index)]);
            if self.verified.count() == self.layout.extents() {
                self.events.extend([
                    SinkEvent::Committed {
                        file: 0,
                        path: "bytes".into(),
                    },
                    SinkEvent::Complete,
                ]);
            }
        } else {
            self.events.push_back(SinkEvent::NeedGroupValues(index));
        }
    }
}

impl Drop for MemorySink {
    fn drop(&mut self) {
        self.disk.lock().open -= 1;
    }
}

impl Sink for MemorySink {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn poll_have(&mut self) -> Result<Option<(u64, Value)>, FilesError> {
        let disk = self.disk.lock();
        Ok(self
            .haves
            .pop_front()
            .map(|index| (index, value(extent(self.layout, &disk.bytes, index)))))
    }

    fn keep(&mut self, extent: u64) -> Result<(), FilesError> {
        self.verified.insert(extent..extent + 1);
        Ok(())
    }

    fn start(&mut self) -> Result<(), FilesError> {
        let questions = std::mem::take(&mut self.disk.lock().questions);
        self.events
            .extend(questions.into_iter().map(SinkEvent::NeedGroupValues));
        if self.verified.count() == self.layout.extents() && self.layout.extents() > 0 {
            self.events.push_back(SinkEvent::Complete);
        }
        Ok(())
    }

    fn verified(&self) -> RangeSet {
        self.verified.clone()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<u64, FilesError> {
        let index = self.layout.extent_of(address);
        let mut disk = self.disk.lock();
        disk.bytes[address as usize..][..bytes.len()].copy_from_slice(bytes);
        if let Some(at) = disk.damage.iter().position(|damaged| *damaged == index) {
            disk.damage.swap_remove(at);
            disk.bytes[address as usize] ^= 1;
        }
        drop(disk);
        *self.arrived.entry(index).or_default() += bytes.len() as u64;
        self.check(index);
        Ok(bytes.len() as u64)
    }

    fn on_value(&mut self, extent: u64, value: &Value) -> Result<(), FilesError> {
        self.values.insert(extent, *value);
        self.check(extent);
        Ok(())
    }

    fn on_group_values(&mut self, index: u64, values: &[Value]) -> Result<(), FilesError> {
        let disk = self.disk.lock();
        let groups = extent(self.layout, &disk.bytes, index).chunks(16 << 10);
        let wrong = groups
            .zip(values)
            .filter(|(bytes, wanted)| value(bytes) != **wanted)
            .count();
        assert_eq!(wrong, 1, "one byte was damaged");
        self.arrived.remove(&index);
        self.events.push_back(SinkEvent::Rejected(index));
        Ok(())
    }

    fn on_withdrawn(&mut self, _: u64) -> Result<(), FilesError> {
        Ok(())
    }

    fn poll(&mut self, _: Time) -> Result<(), FilesError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), FilesError> {
        let time = self.disk.lock().flush_time;
        std::thread::sleep(time);
        Ok(())
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_event(&mut self) -> Option<SinkEvent> {
        self.events.pop_front()
    }

    fn root(&self) -> Option<Value> {
        let disk = self.disk.lock();
        (self.verified.count() == self.layout.extents()).then(|| value(&disk.bytes))
    }

    fn failed(&self) -> u64 {
        0
    }

    fn close(self: Box<Self>) -> Result<(), FilesError> {
        Ok(())
    }
}
