//! Sources that are not whole: files that a reader asked a daemon for and that change.

use crate::memory::content;
use millrace_courier::access::{Access, DirectoryEntry, ReadAccess, Refusal, TransferObserver, WriteAccess};
use millrace_courier::identity::{Identity, PublicKey};
use millrace_courier::local::{LocalSource, LocalStore, PlaceOptions, ScanOptions};
use millrace_courier::{
    EXIT_INTEGRITY, Event, Outcome, ReceiveOptions, Session, SharedRate, Target, exit_status,
};
use millrace_fileset::RelativePath;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Gives everybody a directory whose file `log` grows whenever it was scanned.
struct GrowingLog(PathBuf);

struct Unobserved;

impl TransferObserver for Unobserved {
    fn on_accept(&mut self, _: u64) {}
    fn on_progress(&mut self, _: u64, _: u64, _: u64) {}
    fn on_end(&mut self, _: &Outcome, _: u64) {}
}

impl Access for GrowingLog {
    fn admit(&self, _: PublicKey) -> Result<(), Refusal> {
        Ok(())
    }
    fn write(&self, _: PublicKey, _: &[u8]) -> Result<WriteAccess, Refusal> {
        Err(Refusal::not_admitted("nobody writes"))
    }
    fn read(&self, _: PublicKey, _: &[u8]) -> Result<ReadAccess, Refusal> {
        let options = ScanOptions {
            withdraw_changed: true,
            ..ScanOptions::default()
        };
        let source = LocalSource::scan_below(&self.0, &RelativePath::root(), true, &options).unwrap();
        let mut log = File::options().append(true).open(self.0.join("log")).unwrap();
        log.write_all(b"one line more").unwrap();
        Ok(ReadAccess {
            source: Box::new(source),
            rate: SharedRate::new(None),
            observer: Box::new(Unobserved),
        })
    }
    fn list(&self, _: PublicKey, _: &[u8]) -> Result<Vec<DirectoryEntry>, Refusal> {
        Ok(Vec::new())
    }
}

#[test]
fn a_fetch_of_a_file_that_grows_names_it_and_is_not_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let [out, to] = ["out", "to"].map(|name| dir.path().join(name));
    fs::create_dir(&out).unwrap();
    fs::create_dir(&to).unwrap();
    fs::write(out.join("log"), content(900_000, 1)).unwrap();
    fs::write(out.join("still"), content(2 << 20, 2)).unwrap();
    let options = ReceiveOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        ..ReceiveOptions::default()
    };
    let access = Arc::new(GrowingLog(out.clone()));
    let daemon = Session::serve(access, Identity::generate().unwrap(), options).unwrap();
    let Some(Event::Listening { key, address, .. }) = daemon.events().next() else {
        panic!("the daemon does not listen");
    };
    let from = Target {
        name: "daemon".into(),
        addresses: vec![address.parse().unwrap()],
        key: key.parse().unwrap(),
        secret: None,
        into: Vec::new(),
    };
    let store = LocalStore::new(&to, PlaceOptions::default());
    let reader = Session::fetch(
        Box::new(store),
        Identity::generate().unwrap(),
        from,
        b"x/".to_vec(),
        ReceiveOptions::default(),
    )
    .unwrap();
    let events: Vec<Event> = reader.events().collect();
    let outcomes = reader.join().unwrap();
    assert!(
        matches!(&outcomes[..], [Outcome::Integrity { reason }] if reason.starts_with("1 files changed")),
        "{outcomes:?}: {events:?}"
    );
    assert_eq!(exit_status(&outcomes), EXIT_INTEGRITY);
    let named = |event: &Event| matches!(event, Event::File { problem: Some(problem), .. } if problem.starts_with("log: "));
    assert!(events.iter().any(named), "{events:?}");
    let names: Vec<_> = fs::read_dir(&to)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["still"], "the journal goes, too");
    assert!(fs::read(to.join("still")).unwrap() == fs::read(out.join("still")).unwrap());
    daemon.handle().cancel();
    daemon.join().unwrap();
}
