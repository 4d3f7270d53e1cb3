//! Incomplete sources: files that change while a daemon serves them to a reader, and paths that may not be
//! read.

use crate::memory::{MemorySource, MemoryStore, content};
use crate::testbed::{ReceiverSpec, ReceiverThread, send_all_of};
use millrace_courier::access::{Access, DirectoryEntry, ReadAccess, Refusal, TransferObserver, WriteAccess};
use millrace_courier::files::{FilesError, Source, Value};
use millrace_courier::identity::{Identity, PublicKey};
use millrace_courier::local::{LocalSource, LocalStore, PlaceOptions, ScanOptions};
use millrace_courier::{
    EXIT_INTEGRITY, Event, Outcome, ReceiveOptions, SendOptions, Session, SharedRate, Target, exit_status,
};
use millrace_fileset::RelativePath;
use millrace_transport::extent::Layout;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Serves a directory to everybody. Its file `log` grows after each scan.
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
    fn may_write(&self, _: PublicKey, _: &[u8]) -> Result<(), Refusal> {
        Err(Refusal::not_admitted("nobody writes"))
    }
    fn write(&self, _: PublicKey, _: &[u8]) -> Result<WriteAccess, Refusal> {
        Err(Refusal::not_admitted("nobody writes"))
    }
    fn read(&self, _: PublicKey, _: &[u8]) -> Result<ReadAccess, Refusal> {
        let options = ScanOptions {
            stop_on_change: false,
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

/// A source with two paths that may not be read.
struct Incomplete(MemorySource, [String; 2]);

impl Source for Incomplete {
    fn manifest(&self) -> &[u8] {
        self.0.manifest()
    }
    fn layout(&self) -> Layout {
        self.0.layout()
    }
    fn check_have(&mut self, extent: u64, value: &Value) -> Result<bool, FilesError> {
        self.0.check_have(extent, value)
    }
    fn read(&mut self, address: u64, len: usize) -> Result<&[u8], FilesError> {
        self.0.read(address, len)
    }
    fn poll_value(&mut self) -> Option<(u64, Value)> {
        self.0.poll_value()
    }
    fn value(&self, extent: u64) -> Option<Value> {
        self.0.value(extent)
    }
    fn group_values(&mut self, extent: u64) -> Result<Vec<Value>, FilesError> {
        self.0.group_values(extent)
    }
    fn poll_withdrawn(&mut self) -> Option<(u64, String)> {
        None
    }
    fn root(&self) -> Option<Value> {
        self.0.root()
    }
    fn unreadable(&self) -> &[String] {
        &self.1
    }
}

#[test]
fn a_source_with_paths_that_may_not_be_read_is_sent_and_not_delivered() {
    let store = MemoryStore::default();
    let receiver = ReceiverThread::start(store.clone(), ReceiverSpec::default());
    let paths = ["a: permission denied", "b: permission denied"].map(str::to_owned);
    let mut source = Incomplete(MemorySource::new(content(100_000, 3)), paths.clone());
    let (outcomes, events) = send_all_of(
        &mut source,
        &Identity::generate().unwrap(),
        vec![receiver.target("a")],
        SendOptions::default(),
    );
    assert!(
        matches!(&outcomes[..], [Outcome::Integrity { reason }] if reason.starts_with("2 files or directories")),
        "{outcomes:?}"
    );
    let problems = events.iter().filter_map(|event| match event {
        Event::File { problem, .. } => problem.clone(),
        _ => None,
    });
    assert_eq!(problems.collect::<Vec<_>>(), paths);
    let done = |event: &Event| matches!(event, Event::Done { outcome, .. } if *outcome == outcomes[0]);
    assert!(events.iter().any(done), "{events:?}");
    // The receiver has everything that was sent.
    assert_eq!(receiver.join(), [Outcome::Delivered]);
    assert!(store.0.lock().bytes == source.0.bytes);
}

/// Returns the result of `act`, which runs in a thread as a user other than root; `None` if the system does
/// not permit that.
fn as_nobody<T: Send>(secret: &Path, act: impl FnOnce() -> T + Send) -> Option<T> {
    let attempt = || {
        // setfsuid(2) holds for the calling thread only, and takes root's right to read everything away.
        nix::unistd::setfsuid(65_534.into());
        File::open(secret).is_err().then(act)
    };
    std::thread::scope(|scope| scope.spawn(attempt).join().unwrap())
}

#[test]
fn what_may_not_be_read_is_told_apart_from_what_is_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let permit = |name: &str, mode| {
        fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir_all(path("set/closed/deep")).unwrap();
    fs::write(path("set/a"), "a").unwrap();
    fs::write(path("set/secret"), "secret").unwrap();
    let _socket = UnixListener::bind(path("set/socket")).unwrap();
    permit("", 0o755);
    permit("set/secret", 0);
    permit("set/closed", 0);
    let scan = || LocalSource::scan(&[path("set")], &ScanOptions::default()).unwrap();
    let source = as_nobody(&path("set/secret"), scan);
    permit("set/closed", 0o755);
    let Some(source) = source else {
        println!("skipped: this system lets root be nobody else");
        return;
    };
    assert_eq!(source.files(), 1);
    assert_eq!(
        source.unreadable(),
        ["set/closed: permission denied", "set/secret: permission denied"]
    );
    let special = ("set/socket".to_owned(), "a device, socket or pipe".to_owned());
    assert_eq!(source.skipped(), [special]);
}
