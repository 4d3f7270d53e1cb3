//! Reservations and counts of small directories.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use millrace_courier::files::Source as _;
use millrace_courier::local::{LocalSource, ScanOptions};

const LARGE: usize = 600 << 10;
const SENDER: PublicKey = PublicKey::new([7; 32]);

/// A grant of 1 MiB that holds `a`, a large file.
struct Bed {
    dir: tempfile::TempDir,
    ledger: Arc<Ledger>,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        put(&dir.path().join("in/a"), LARGE);
        let quota = Quota {
            bytes: Some(1 << 20),
            entries: None,
        };
        let ledger = Arc::new(Ledger::new("in", &dir.path().join("in"), quota));
        Bed { dir, ledger }
    }

    /// Reserves room for files of these sizes.
    fn reserve(&self, below: &str, files: &[(&str, usize)]) -> Result<Reserved, FilesError> {
        let from = tempfile::tempdir_in(self.dir.path()).unwrap();
        let paths: Vec<PathBuf> = files.iter().map(|(name, _)| from.path().join(name)).collect();
        for (path, (_, size)) in paths.iter().zip(files) {
            put(path, *size);
        }
        let below = RelativePath::new(below.as_bytes()).unwrap();
        self.ledger.reserve(&below, SENDER, &manifest(&paths))
    }
}

fn manifest(paths: &[PathBuf]) -> Manifest {
    let source = LocalSource::scan(paths, &ScanOptions::default()).unwrap();
    let mut reader = ManifestReader::new(ManifestLimits::default());
    reader.feed(source.manifest()).unwrap();
    reader.finish().unwrap()
}

fn put(path: &Path, size: usize) {
    fs::write(path, vec![7; size]).unwrap();
    // Some file systems count blocks only after they are written.
    fs::File::open(path).unwrap().sync_all().unwrap();
}

#[test]
fn a_file_that_a_set_replaces_counts_until_it_is_replaced() {
    let bed = Bed::new();
    assert!(
        bed.reserve("", &[("a", 1), ("c", LARGE)]).is_err(),
        "in the same set"
    );
    let held = bed.reserve("", &[("a", 1)]).unwrap();
    assert!(bed.reserve("", &[("c", LARGE)]).is_err(), "in another set");
    drop(held);
    assert!(
        bed.reserve("", &[("a", LARGE)]).is_ok(),
        "the new version has the room of the old one"
    );
}

#[test]
fn a_file_that_grows_after_the_reservation_counts_in_full() {
    let bed = Bed::new();
    fs::remove_file(bed.dir.path().join("in/a")).unwrap();
    let _held = bed.reserve("", &[("a", 1)]).unwrap();
    put(&bed.dir.path().join("in/a"), LARGE);
    assert!(bed.reserve("", &[("c", LARGE)]).is_err());
}

#[test]
fn a_file_with_two_names_counts_once() {
    let bed = Bed::new();
    let grant = bed.dir.path().join("in");
    let from = bed.dir.path().join("from");
    fs::create_dir(&from).unwrap();
    put(&from.join("a"), LARGE);
    for folder in [&grant, &from] {
        fs::hard_link(folder.join("a"), folder.join("b")).unwrap();
    }
    let manifest = manifest(&[from.join("")]);
    assert_eq!((manifest.files(), manifest.entries().len()), (1, 2));
    let used = |bytes| Usage { bytes, entries: 2 };
    let quota = bed.ledger.state.lock().quota;
    for quota in [quota, Quota::default()] {
        bed.ledger.set_quota(quota);
        let held = bed
            .ledger
            .reserve(&RelativePath::root(), SENDER, &manifest)
            .unwrap();
        held.write(7).unwrap();
        assert_eq!(bed.ledger.used(), used(7));
        drop(held);
        assert_eq!(bed.ledger.used(), used(LARGE as u64));
    }
}

#[test]
fn writes_and_status_do_not_wait_for_a_walk() {
    let bed = Bed::new();
    let held = bed.reserve("", &[("c", 100)]).unwrap();
    let walk = bed.ledger.census.lock();
    held.write(100).unwrap();
    assert_eq!(bed.ledger.used().bytes, LARGE as u64 + 100);
    drop(walk);
}

#[test]
fn without_a_quota_nothing_is_walked_and_one_that_is_set_counts_all() {
    let bed = Bed::new();
    let quota = bed.ledger.state.lock().quota;
    bed.ledger.set_quota(Quota::default());
    put(&bed.dir.path().join("in/unknown"), LARGE);
    let held = bed.reserve("", &[("c", 100), ("a", 100)]).unwrap();
    put(&bed.dir.path().join("in/c"), 100);
    drop(held);
    assert_eq!(bed.ledger.used().bytes, LARGE as u64 + 100);
    bed.ledger.set_quota(quota);
    assert_eq!(bed.ledger.used().bytes, 2 * LARGE as u64 + 100);
}

#[test]
fn a_file_behind_a_symlink_gives_no_room() {
    let bed = Bed::new();
    let outside = bed.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    put(&outside.join("large"), LARGE);
    std::os::unix::fs::symlink(&outside, bed.dir.path().join("in/link")).unwrap();
    let link = RelativePath::new(b"link/large").unwrap();
    assert_eq!(bed.ledger.present([&link]), Usage::default());
    assert!(bed.reserve("link", &[("large", LARGE)]).is_err());
}
