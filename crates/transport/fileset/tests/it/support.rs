//! A courier for tests: carries every message and every byte between a source and a sink, in one thread.

use millrace_fileset::fs::memory::MemoryFs;
use millrace_fileset::fs::{Access, FileSystem, FileType};
use millrace_fileset::manifest::ManifestReader;
use millrace_fileset::path::RelativePath;
use millrace_fileset::scan::{Argument, SourcePaths};
use millrace_fileset::sink::SinkError;
use millrace_fileset::{
    Manifest, ManifestLimits, Scan, ScanItem, ScanOptions, Sink, SinkEvent, SinkOptions, Source,
    SourceOptions,
};
use millrace_transport::random::Random;
use millrace_types::{Duration, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Payload of a packet at an MTU of 1,500 bytes.
pub(crate) const PAYLOAD: u64 = 1_428;

pub(crate) fn path(text: &str) -> RelativePath {
    RelativePath::new(text.as_bytes()).unwrap()
}

/// Returns bytes that differ from offset to offset.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len.div_ceil(8))
        .flat_map(|_| random.next().to_le_bytes())
        .take(len)
        .collect()
}

/// Returns the contents of the root, as an argument with a trailing slash.
pub(crate) fn contents() -> Vec<Argument> {
    vec![Argument {
        path: RelativePath::root(),
        name: None,
    }]
}

/// Scans a tree, and reads the encoded manifest in pieces of odd sizes.
pub(crate) fn scan<F: FileSystem>(
    fs: &F,
    arguments: &[Argument],
    options: ScanOptions,
) -> (Arc<Manifest>, SourcePaths) {
    let mut scan = Scan::new(fs, arguments, options).unwrap();
    let mut reader = ManifestReader::new(ManifestLimits::default());
    loop {
        let item = scan.next_item(fs).unwrap();
        for part in scan.take_encoded().chunks(77) {
            reader.feed(part).unwrap();
        }
        match item {
            None => break,
            Some(ScanItem::Skipped { path, reason }) => println!("skipped: {path}: {reason}"),
            Some(ScanItem::Entry) => {}
        }
    }
    let (manifest, paths) = scan.finish().unwrap();
    assert_eq!(
        reader.finish().unwrap(),
        manifest,
        "the receiver decodes the sender's manifest"
    );
    (Arc::new(manifest), paths)
}

/// Returns a tree with files of all types: nested, empty, packed, over several extents, sparse; a symlink and a hard
/// link.
pub(crate) fn tree() -> MemoryFs {
    let fs = MemoryFs::new();
    fs.put(&path("a"), None).unwrap();
    fs.put(&path("a/deep"), None).unwrap();
    for index in 0..12_usize {
        let name = path(&format!("a/deep/small{index:02}"));
        fs.put(&name, Some(&noise(index as u64, 4_096 * index + 100)))
            .unwrap();
    }
    fs.put(&path("a/empty"), Some(&[])).unwrap();
    fs.put(&path("big"), Some(&noise(99, (5 << 19) + 4_321))).unwrap();
    let sparse = fs.open(&path("sparse"), Access::New(0o644)).unwrap();
    fs.write_at(&sparse, 40 << 20, &noise(98, 70_000)).unwrap();
    fs.set_size(&sparse, 1 << 36).unwrap();
    fs.symlink(b"../big", &path("a/link")).unwrap();
    fs.hard_link(&path("big"), &path("hard")).unwrap();
    fs
}

/// Bytes of a file, or another type; holes as runs of data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Directory,
    File(u64, Vec<(u64, Vec<u8>)>),
    Symlink(Vec<u8>),
}

/// Returns everything below the root.
pub(crate) fn snapshot<F: FileSystem>(fs: &F) -> BTreeMap<String, Found> {
    let mut found = BTreeMap::new();
    let mut stack = vec![RelativePath::root()];
    while let Some(directory) = stack.pop() {
        for name in fs.names(&directory).unwrap() {
            let path = directory.join(&name).unwrap();
            let metadata = fs.metadata(&path).unwrap();
            let content = match metadata.file_type {
                FileType::Directory => {
                    stack.push(path.clone());
                    Found::Directory
                }
                FileType::Symlink => Found::Symlink(fs.read_link(&path).unwrap()),
                FileType::File | FileType::Other => {
                    let file = fs.open(&path, Access::Read).unwrap();
                    let segments = fs.segments(&file, metadata.size).unwrap();
                    let runs = segments.into_iter().map(|segment| {
                        let mut bytes = vec![0; segment.len as usize];
                        fs.read_at(&file, segment.offset, &mut bytes).unwrap();
                        (segment.offset, bytes)
                    });
                    Found::File(metadata.size, runs.collect())
                }
            };
            found.insert(path.to_string(), content);
        }
    }
    found
}

/// Events and figures of a transfer.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Bytes that were sent.
    pub(crate) sent: u64,
    pub(crate) events: Vec<SinkEvent>,
}

/// Changes a packet on its way, by its number.
pub(crate) type Tamper<'a> = &'a mut dyn FnMut(u64, &mut Vec<u8>);

/// Carries a set from a source to a sink until it is complete.
///
/// Packets of up to four extents are mixed; values arrive before, between or after them. The clock advances by 1 ms a packet.
pub(crate) fn carry<F: FileSystem, G: FileSystem>(
    source: &mut Source<F>,
    sink: &mut Sink<G>,
    seed: u64,
    tamper: Tamper<'_>,
    report: &mut Report,
) -> Result<(), SinkError> {
    let mut random = Random::new(seed);
    let mut now = Time::ZERO;
    while let Some(have) = sink.poll_have()? {
        if source.check_have(&have).unwrap() {
            sink.keep(have.extent)?;
        }
    }
    sink.start()?;
    let layout = source.manifest().layout();
    for round in 0.. {
        assert!(round < 100, "the transfer does not end: {:?}", report.events);
        let missing: Vec<u64> = (0..layout.extents())
            .filter(|extent| !sink.verified().contains(*extent))
            .collect();
        for window in missing.chunks(4) {
            let mut packets = Vec::new();
            for extent in window {
                let (start, end) = layout.bounds(*extent);
                packets.extend(
                    (start..end)
                        .step_by(PAYLOAD as usize)
                        .map(|at| (at, PAYLOAD.min(end - at))),
                );
            }
            for at in (1..packets.len()).rev() {
                packets.swap(at, random.below(at as u64 + 1) as usize);
            }
            for (address, len) in packets {
                if sink.verified().contains(layout.extent_of(address)) {
                    continue;
                }
                let mut bytes = source.read(address, len).unwrap().to_vec();
                tamper(address, &mut bytes);
                report.sent += len;
                sink.write(address, &bytes)?;
                now = now + Duration::from_millis(1);
                settle(source, sink, now, &mut random, report)?;
            }
        }
        while let Some(withdrawn) = source.poll_withdrawn() {
            sink.on_withdrawn(withdrawn.file)?;
        }
        while let Some(value) = source.poll_value() {
            sink.on_value(value)?;
        }
        settle(source, sink, now, &mut random, report)?;
        now = now + Duration::from_secs(2);
        sink.poll(now)?;
        settle(source, sink, now, &mut random, report)?;
        if sink.is_complete() {
            break;
        }
    }
    Ok(())
}

fn settle<F: FileSystem, G: FileSystem>(
    source: &mut Source<F>,
    sink: &mut Sink<G>,
    now: Time,
    random: &mut Random,
    report: &mut Report,
) -> Result<(), SinkError> {
    if random.below(50) == 0 {
        while let Some(value) = source.poll_value() {
            sink.on_value(value)?;
        }
    }
    // The failure of a poll must not hide events that came before it.
    let result = sink.poll(now);
    while let Some(event) = sink.poll_event() {
        if let SinkEvent::NeedGroupValues(extent) = event {
            sink.on_group_values(extent, &source.group_values(extent).unwrap())?;
        }
        report.events.push(event);
    }
    result
}

/// Sends the contents of a file system to another.
pub(crate) fn transfer(
    from: &MemoryFs,
    to: &MemoryFs,
    options: SinkOptions,
    seed: u64,
) -> Result<Report, (Report, SinkError)> {
    let (manifest, paths) = scan(from, &contents(), ScanOptions::default());
    let mut report = Report::default();
    let mut source = Source::new(
        from.clone(),
        Arc::clone(&manifest),
        paths,
        SourceOptions::default(),
    );
    let result = Sink::open(to.clone(), manifest, options).and_then(|mut sink| {
        carry(&mut source, &mut sink, seed, &mut |_, _| {}, &mut report)?;
        if report
            .events
            .iter()
            .all(|event| !matches!(event, SinkEvent::Withdrawn(_)))
            && sink.root().is_some()
        {
            assert!(
                source.root().is_none() || sink.root() == source.root(),
                "both ends have one root"
            );
        }
        sink.close()
    });
    match result {
        Ok(()) => Ok(report),
        Err(error) => Err((report, error)),
    }
}
