//! Files of a transfer that are damaged between two of its runs: no wrong byte ever gets a final name, and the last run always
//! ends with the source's tree.

use crate::support::{Found, noise, path, snapshot, transfer};
use millrace_fileset::fs::memory::MemoryFs;
use millrace_fileset::fs::{Access, FileSystem, FileType};
use millrace_fileset::path::RelativePath;
use millrace_fileset::{Commit, SinkOptions};
use millrace_transport::random::Random;
use millrace_types::Duration;
use std::collections::BTreeMap;

/// The number of transfers, each of which is interrupted and damaged several times.
const TRANSFERS: u64 = 40;
/// Runs of a transfer that are killed.
const KILLS: u64 = 4;

/// Returns a tree with small files, a file of three extents, a file with holes, and one without data.
fn tree() -> MemoryFs {
    let fs = MemoryFs::new();
    fs.put(&path("d"), None).unwrap();
    for index in 0..4 {
        let name = path(&format!("d/small{index}"));
        fs.put(&name, Some(&noise(index, 20_000 * index as usize + 70)))
            .unwrap();
    }
    fs.put(&path("empty"), Some(&[])).unwrap();
    fs.put(&path("large"), Some(&noise(9, (2 << 20) + 777))).unwrap();
    let sparse = fs.open(&path("sparse"), Access::New(0o644)).unwrap();
    fs.write_at(&sparse, 1 << 20, &noise(8, 70_000)).unwrap();
    fs.write_at(&sparse, 3 << 20, &noise(7, 70_000)).unwrap();
    fs.set_size(&sparse, 5 << 20).unwrap();
    fs
}

/// Returns the paths of all files.
fn files(fs: &MemoryFs) -> Vec<RelativePath> {
    let is_file = |path: &RelativePath| {
        fs.metadata(path)
            .is_ok_and(|found| found.file_type == FileType::File)
    };
    let all = snapshot(fs).into_keys().map(|name| path(&name));
    all.filter(is_file).collect()
}

/// The size of a file and the digest of its bytes, or the type and target of another entry.
type Content = (u64, String);

/// Returns the entries under final names. Zeros and holes are the same.
fn finals(fs: &MemoryFs) -> BTreeMap<String, Content> {
    let content = |name: &str, found: Found| match found {
        Found::File(size, _) => {
            let mut bytes = vec![0; size as usize];
            let file = fs.open(&path(name), Access::Read).unwrap();
            fs.read_at(&file, 0, &mut bytes).unwrap();
            (size, blake3::hash(&bytes).to_string())
        }
        other => (0, format!("{other:?}")),
    };
    let found = snapshot(fs).into_iter();
    let finals = found.filter(|(name, _)| !name.contains(".millrace-") && !name.ends_with(".other"));
    finals
        .map(|(name, found)| (name.clone(), content(&name, found)))
        .collect()
}

/// Damages a file as another program can.
fn damage(fs: &MemoryFs, victim: &RelativePath, random: &mut Random) {
    let found = fs.metadata(victim).unwrap();
    let file = fs.open(victim, Access::Write).unwrap();
    let is_journal = victim.as_bytes().ends_with(b".journal");
    match random.below(if is_journal { 5 } else { 9 }) {
        // Some bytes, anywhere: in data, in holes, or beyond the end.
        0 | 1 => {
            let offset = random.below(found.size + 2);
            fs.write_at(&file, offset, &noise(random.next(), 90)).unwrap();
        }
        2 => fs.set_size(&file, random.below(found.size + 1)).unwrap(),
        3 => fs.set_size(&file, found.size + random.below(5_000)).unwrap(),
        4 => fs.remove(victim).unwrap(),
        // Zeros over everything, as a file system may leave after a loss of power.
        5 => {
            fs.set_size(&file, 0).unwrap();
            fs.set_size(&file, found.size).unwrap();
        }
        // Another file of the same size.
        6 => {
            fs.remove(victim).unwrap();
            fs.put(victim, Some(&noise(random.next(), found.size as usize)))
                .unwrap();
        }
        // A second name, through which the file can be changed at any time.
        7 => {
            let (directory, name) = victim.split();
            let second = directory.join(&[name, b".other"].concat()).unwrap();
            let _taken = fs.hard_link(victim, &second);
        }
        // A symlink to another file.
        _ => {
            fs.remove(victim).unwrap();
            fs.symlink(b"/etc/passwd", victim).unwrap();
        }
    }
    // As `touch -r` and `cp -p` do.
    if random.below(2) == 0 {
        fs.set_modified(&file, found.modified).unwrap();
    }
}

/// Interrupts a transfer at random operations, damages files between its runs, and lets the last run end.
fn damaged_transfer(from: &MemoryFs, expected: &BTreeMap<String, Content>, seed: u64) {
    let mut random = Random::new(seed);
    let options = SinkOptions {
        commit: [Commit::Each, Commit::All][random.below(2) as usize],
        delta: random.below(2) == 0,
        modes: random.below(2) == 0,
        times: random.below(2) == 0,
        sync_interval: Duration::from_millis(50 + random.below(600)),
        ..SinkOptions::default()
    };
    let mut to = MemoryFs::new();
    for run in 0..=KILLS {
        let before = finals(&to);
        let is_last = run == KILLS;
        if !is_last {
            to.kill_at(to.operations() + 8 + random.below(250));
        }
        let result = transfer(from, &to, options, random.next());
        let error = result.as_ref().err().map(|(_, error)| error.to_string());
        let moment = format!("seed {seed}, run {run}, {options:?}, {error:?}");
        for (name, found) in finals(&to) {
            let allowed = [expected.get(&name), before.get(&name)];
            assert!(allowed.contains(&Some(&found)), "wrong bytes in {name}: {moment}");
        }
        if result.is_ok() {
            assert_eq!(finals(&to), *expected, "{moment}");
        }
        if is_last {
            assert!(result.is_ok(), "{moment}");
            return;
        }
        to = match random.below(3) {
            0 => to.crash(random.next()),
            _ => to.restart(),
        };
        for victim in files(&to) {
            if random.below(2) == 0 {
                damage(&to, &victim, &mut random);
            }
        }
        if random.below(2) == 0 {
            to.sync_all().unwrap();
        }
    }
}

#[test]
fn files_that_are_damaged_between_two_runs_never_become_wrong_files() {
    let transfers = std::env::var("MILLRACE_TRANSFERS").map_or(TRANSFERS, |count| count.parse().unwrap());
    let from = tree();
    let expected = finals(&from);
    for seed in 0..transfers {
        damaged_transfer(&from, &expected, seed);
    }
}

/// The finding that the test of all kinds of damage comes from: 90 bytes of a large temporary file.
#[test]
fn a_temporary_file_whose_bytes_were_overwritten_is_sent_again_where_it_is_wrong() {
    let from = tree();
    for commit in [Commit::Each, Commit::All] {
        let options = SinkOptions {
            commit,
            sync_interval: Duration::from_millis(100),
            ..SinkOptions::default()
        };
        let to = MemoryFs::new();
        to.kill_at(to.operations() + 170);
        assert!(transfer(&from, &to, options, 1).is_err());
        let to = to.restart();
        let victims = files(&to);
        let mut damaged = 0;
        for victim in victims
            .iter()
            .filter(|victim| !victim.as_bytes().ends_with(b".journal"))
        {
            let file = to.open(victim, Access::Write).unwrap();
            if to.metadata(victim).unwrap().size > 2 << 20 {
                let modified = to.metadata(victim).unwrap().modified;
                to.write_at(&file, 100_000, &noise(77, 90)).unwrap();
                to.set_modified(&file, modified).unwrap();
                damaged += 1;
            }
        }
        assert!(damaged > 0, "a large file has bytes: {victims:?}");
        transfer(&from, &to, options, 2).unwrap();
        assert_eq!(finals(&to), finals(&from));
    }
}
