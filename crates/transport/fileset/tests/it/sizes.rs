//! Gates T10 and T15 (docs/gates.md): many small files without a round trip each, and large sparse files in little
//! memory.

use crate::support::{Report, carry, contents, noise, path, scan, snapshot, transfer};
use millrace_fileset::fs::memory::MemoryFs;
use millrace_fileset::fs::{Access, FileSystem};
use millrace_fileset::{Commit, ScanOptions, Sink, SinkOptions, Source, SourceOptions};
use std::sync::Arc;

#[test]
fn small_files_share_extents() {
    let (from, to) = (MemoryFs::new(), MemoryFs::new());
    for index in 0..2_000 {
        from.put(&path(&format!("f{index:05}")), Some(&noise(index, 1_000)))
            .unwrap();
    }
    let (manifest, paths) = scan(&from, &contents(), ScanOptions::default());
    assert_eq!(manifest.layout().extents(), 2, "2,000 files need two digests");
    let mut source = Source::new(
        from.clone(),
        Arc::clone(&manifest),
        paths,
        SourceOptions::default(),
    );
    let mut sink = Sink::open(to.clone(), manifest, SinkOptions::default()).unwrap();
    let before = to.operations();
    carry(&mut source, &mut sink, 1, &mut |_, _| {}, &mut Report::default()).unwrap();
    assert_eq!(source.reads(), 2, "each extent is read once");
    // To create, set the size, write (twice at the border of a group), rename; syncs are shared.
    let operations = to.operations() - before;
    assert!(operations < 2_000 * 4 + 500, "{operations} operations");
    sink.close().unwrap();
    assert_eq!(snapshot(&to), snapshot(&from));
}

#[test]
fn many_small_files_that_wait_for_all_others_cause_no_sync_at_each_step() {
    let from = MemoryFs::new();
    for index in 0..5_000 {
        from.put(&path(&format!("f{index:05}")), Some(&noise(index, 100)))
            .unwrap();
    }
    from.put(&path("large"), Some(&noise(1, 12 << 20))).unwrap();
    let operations = |commit| {
        let to = MemoryFs::new();
        let options = SinkOptions {
            commit,
            ..SinkOptions::default()
        };
        transfer(&from, &to, options, 1).unwrap();
        to.operations()
    };
    let (each, all) = (operations(Commit::Each), operations(Commit::All));
    assert!(all < each + 200, "{all} operations, and {each} without waiting");
}

#[test]
fn a_sparse_terabyte_needs_memory_for_its_data_only() {
    let (from, to) = (MemoryFs::new(), MemoryFs::new());
    let file = from.open(&path("disk"), Access::New(0o644)).unwrap();
    for index in 0..300 {
        from.write_at(&file, index * (1 << 40) / 301, &noise(index, 10_000))
            .unwrap();
    }
    from.set_size(&file, 1 << 40).unwrap();
    let (manifest, paths) = scan(&from, &contents(), ScanOptions::default());
    assert!(manifest.layout().bytes() < 300 * (10_000 + 2 * 4_096));
    assert!(
        manifest.layout().extents() <= 6,
        "holes need no digests and no have-map"
    );
    let mut source = Source::new(
        from.clone(),
        Arc::clone(&manifest),
        paths,
        SourceOptions::default(),
    );
    let mut sink = Sink::open(to.clone(), manifest, SinkOptions::default()).unwrap();
    carry(&mut source, &mut sink, 1, &mut |_, _| {}, &mut Report::default()).unwrap();
    assert!(!sink.has_data_in_memory(), "nothing is kept of what is verified");
    sink.close().unwrap();
    assert_eq!(snapshot(&to), snapshot(&from));
}

#[test]
fn one_path_that_is_too_long_is_named_and_the_others_are_scanned() {
    let from = MemoryFs::new();
    let mut deep = String::from("s");
    from.put(&path(&deep), None).unwrap();
    // At the receiver the set's directory has a longer name than here.
    while deep.len() < 4_000 {
        deep += "/";
        deep += &"d".repeat(99);
        from.put(&path(&deep), None).unwrap();
    }
    from.put(&path("s/z"), Some(b"1")).unwrap();
    let argument = millrace_fileset::scan::Argument {
        path: path("s"),
        name: Some(vec![b'n'; 255]),
    };
    let mut scan = millrace_fileset::Scan::new(&from, &[argument], ScanOptions::default()).unwrap();
    let mut skipped = Vec::new();
    while let Some(item) = scan.next_item(&from).unwrap() {
        if let millrace_fileset::ScanItem::Skipped { path, reason } = item {
            skipped.push((path, reason));
        }
    }
    let [(long, reason)] = &skipped[..] else {
        panic!("{} are skipped", skipped.len());
    };
    assert!(long.len() > 4_095 && reason.is_failure(), "{reason}");
    assert!(reason.to_string().contains("longer than 4095"), "{reason}");
    let manifest = scan.finish().unwrap().0;
    assert!(
        manifest
            .entries()
            .last()
            .unwrap()
            .path
            .as_bytes()
            .ends_with(b"/z")
    );
}

/// The vectors of docs/transport-protocol.md, which `golden/make.py` makes with a BLAKE3 of its own.
#[test]
fn the_vectors_of_the_protocol_page_hold() {
    use millrace_fileset::digest::{extent_values, set_root};
    use millrace_fileset::{ManifestLimits, ManifestReader};
    let vector = |name: &str| -> Vec<u8> {
        let text = include_str!("../golden/set.txt");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let hex = line.unwrap();
        (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
            .collect()
    };
    let mut reader = ManifestReader::new(ManifestLimits::default());
    reader.feed(&vector("manifest")).unwrap();
    let manifest = reader.finish().unwrap();
    let paths: Vec<_> = manifest
        .entries()
        .iter()
        .map(|entry| entry.path.as_bytes().to_vec())
        .collect();
    assert_eq!(paths, [&b"d"[..], b"d/a", b"l"]);
    let content: Vec<u8> = (0..20_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    let (extent, groups) = extent_values(manifest.hash_offset(0), &content);
    assert_eq!(groups[0][..], vector("group 0"));
    assert_eq!(groups[1][..], vector("group 1"));
    assert_eq!(extent[..], vector("extent 0"));
    assert_eq!(set_root(manifest.digest(), [extent].iter())[..], vector("root"));
}
