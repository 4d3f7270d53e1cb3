//! Simulation of power cuts. A power cut loses more than `kill -9`: any subset of the writes since the last
//! sync. The simulated medium decides at random for each of these writes, and fails at any operation.

use std::io;
use std::path::Path;
use std::sync::Arc;

use millrace_model::{Bridge, Config, MacTableSize};
use parking_lot::Mutex;
use redb::StorageBackend;

use crate::disk::{Disk, storage_error};
use crate::{Note, OpenError, Origin, Proposal, Retention, StorageError, Store, UnixTime};

const NOW: UnixTime = UnixTime(1_700_000_000);

#[derive(Debug, Clone)]
enum Operation {
    Write(u64, Vec<u8>),
    Resize(u64),
}

#[derive(Debug, Default)]
struct Medium {
    /// The content that survives a power cut.
    synced: Vec<u8>,
    /// The content that reads return.
    visible: Vec<u8>,
    since_sync: Vec<Operation>,
    /// The number of operations before the power fails.
    operations_left: u64,
    /// The number of operations that fail from now on.
    failures: u64,
}

fn apply(bytes: &mut Vec<u8>, operation: &Operation) {
    match operation {
        Operation::Write(offset, data) => {
            let start = usize::try_from(*offset).unwrap();
            if bytes.len() < start + data.len() {
                bytes.resize(start + data.len(), 0);
            }
            bytes[start..start + data.len()].copy_from_slice(data);
        }
        Operation::Resize(len) => bytes.resize(usize::try_from(*len).unwrap(), 0),
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SimulatedDisk(Arc<Mutex<Medium>>);

impl SimulatedDisk {
    fn step(&self, operation: Option<Operation>) -> io::Result<()> {
        let mut medium = self.0.lock();
        if medium.operations_left == 0 {
            return Err(io::Error::other("the power failed"));
        }
        medium.operations_left -= 1;
        if medium.failures > 0 {
            medium.failures -= 1;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        match operation {
            Some(operation) => {
                apply(&mut medium.visible, &operation);
                medium.since_sync.push(operation);
            }
            None => {
                medium.synced = medium.visible.clone();
                medium.since_sync.clear();
            }
        }
        Ok(())
    }

    /// Returns the medium after a restart: all synced content, and a random subset of the later writes.
    fn after_restart(&self, mut survives: impl FnMut() -> bool, operations_left: u64) -> SimulatedDisk {
        let medium = self.0.lock();
        let mut bytes = medium.synced.clone();
        for operation in &medium.since_sync {
            if survives() {
                apply(&mut bytes, operation);
            }
        }
        SimulatedDisk(Arc::new(Mutex::new(Medium {
            synced: bytes.clone(),
            visible: bytes,
            since_sync: Vec::new(),
            operations_left,
            failures: 0,
        })))
    }
}

impl StorageBackend for SimulatedDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().visible.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        let medium = self.0.lock();
        let bytes = medium
            .visible
            .get(start..start + out.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.step(Some(Operation::Resize(len)))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.step(None)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step(Some(Operation::Write(offset, data.to_vec())))
    }
}

/// Returns true if the change with this number is one of people.
fn is_local(number: u64) -> bool {
    number.is_multiple_of(3)
}

/// Returns a configuration whose bridge br0 belongs to people and br1 to a machine. Each contains the number of the last
/// change of its owner.
fn content(number: u64) -> Config {
    let last = |local: bool| (1..=number).rev().find(|number| is_local(*number) == local);
    let mut config = Config::default();
    for (name, local) in [("br0", true), ("br1", false)] {
        let Some(number) = last(local) else { continue };
        let mut bridge = Bridge::new(name.parse().unwrap());
        bridge.mac_table_size = MacTableSize::new(100 + u32::try_from(number).unwrap()).unwrap();
        config.bridges.push(bridge);
    }
    config
}

#[test]
fn a_store_whose_medium_failed_for_a_while_goes_on() {
    let medium = |operations_left| {
        SimulatedDisk(Arc::new(Mutex::new(Medium {
            operations_left,
            ..Medium::default()
        })))
    };
    let proposal = |number| Proposal {
        expected: None,
        config: content(number),
        note: Note::default(),
    };
    // In each round, the medium carries out `works` operations of the rollback, and then fails until the
    // end of the tick. A later tick rolls back.
    for works in 0.. {
        let disk = medium(u64::MAX);
        let store = Store::start(
            Disk::with_backend(disk.clone(), Retention::default(), NOW).unwrap(),
            NOW,
        )
        .unwrap();
        store.commit(proposal(1), NOW).unwrap();
        store.commit_confirm(proposal(2), NOW.plus(60), NOW).unwrap();
        disk.0.lock().operations_left = works;
        let result = store.tick(NOW.plus(60));
        let left = std::mem::replace(&mut disk.0.lock().operations_left, u64::MAX);
        if left > 0 {
            assert!(works > 0, "the rollback writes");
            break;
        }
        if result.is_err() {
            assert_eq!(store.head().revision.number.0, 2);
            store.tick(NOW.plus(61)).unwrap().unwrap();
        }
        assert_eq!(*store.head().config, content(1));
        assert_eq!(store.head().pending, None);
        store.commit(proposal(3), NOW.plus(62)).unwrap();
        let numbers: Vec<u64> = store
            .history(9)
            .unwrap()
            .iter()
            .map(|revision| revision.number.0)
            .collect();
        assert_eq!(numbers, [4, 3, 2, 1, 0]);
    }
}

#[test]
fn a_full_disk_at_the_start_does_not_make_the_store_corrupt() {
    let disk = SimulatedDisk(Arc::new(Mutex::new(Medium {
        operations_left: u64::MAX,
        ..Medium::default()
    })));
    let open = || Disk::with_backend(disk.clone(), Retention::default(), NOW);
    let store = Store::start(open().unwrap(), NOW).unwrap();
    let proposal = Proposal {
        expected: None,
        config: content(1),
        note: Note::default(),
    };
    store.commit_confirm(proposal, NOW.plus(60), NOW).unwrap();
    drop(store);
    // The start after the time to confirm writes the rollback.
    let (late, path) = (NOW.plus(60), Path::new("store.redb"));
    let opened = open().unwrap();
    disk.0.lock().failures = u64::MAX;
    let error = storage_error(path, Store::start(opened, late).unwrap_err());
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    assert!(!error.to_string().contains("move it away"), "{error}");
    disk.0.lock().failures = 0;
    let store = Store::start(open().unwrap(), late).unwrap();
    assert_eq!(store.head().revision.number.0, 2);
    let error = storage_error(path, StorageError::new(&"there is no revision"));
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
}

#[test]
fn a_single_failure_of_the_medium_is_not_noticed() {
    let disk = SimulatedDisk(Arc::new(Mutex::new(Medium {
        operations_left: u64::MAX,
        ..Medium::default()
    })));
    let store = Store::start(
        Disk::with_backend(disk.clone(), Retention::default(), NOW).unwrap(),
        NOW,
    )
    .unwrap();
    disk.0.lock().failures = 1;
    let proposal = Proposal {
        expected: None,
        config: content(1),
        note: Note::default(),
    };
    assert_eq!(store.commit(proposal, NOW).unwrap().number.0, 1);
    assert_eq!(disk.0.lock().failures, 0);
}

#[test]
fn a_power_cut_at_any_operation_loses_no_acknowledged_revision() {
    let retention = Retention {
        revisions: 10,
        machine_revisions: 10,
        bytes: 64 << 20,
    };
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let unlimited = u64::MAX;
    let first = SimulatedDisk(Arc::new(Mutex::new(Medium {
        operations_left: unlimited,
        ..Medium::default()
    })));
    drop(Store::start(Disk::with_backend(first.clone(), retention, NOW).unwrap(), NOW).unwrap());
    let mut disc = first.after_restart(|| true, unlimited);
    let mut acknowledged = 0;
    let mut attempted = 0;
    for round in 0..300 {
        let operations_left = next() % 150;
        disc = disc.after_restart(|| next() & 1 == 0, operations_left);
        // The power may fail while the store is opened.
        if let Ok(store) =
            Disk::with_backend(disc.clone(), retention, NOW).and_then(|disk| Store::start(disk, NOW))
        {
            let head = store.head().revision.number.0;
            assert!(
                head >= acknowledged,
                "round {round}: acknowledged {acknowledged}, found {head}"
            );
            assert!(head <= attempted, "round {round}: {head} was never proposed");
            if head > 0 {
                assert_eq!(*store.head().config, content(head), "round {round}");
            }
            if store.head().revision.origin == Origin::OVSDB {
                assert_eq!(
                    store.head().externals.get(&Origin::OVSDB),
                    Some(&head),
                    "round {round}"
                );
                assert_eq!(store.head().revision.external, Some(head), "round {round}");
            }
            for pair in store.history(6).unwrap().windows(2) {
                let first = pair[0].replaces.unwrap_or(pair[0].number).0;
                assert_eq!(first, pair[1].number.0 + 1, "round {round}: {pair:?}");
            }
            acknowledged = head;
            loop {
                attempted = acknowledged + 1;
                let proposal = Proposal {
                    expected: None,
                    config: content(attempted),
                    note: match is_local(attempted) {
                        true => Note::default(),
                        false => Note::default().of(Origin::OVSDB).external(attempted),
                    },
                };
                match store.commit(proposal, NOW) {
                    Ok(revision) => acknowledged = revision.number.0,
                    Err(_) => break,
                }
            }
        }
    }
    assert!(
        acknowledged > 300,
        "there were commits between the cuts: {acknowledged}"
    );
}
