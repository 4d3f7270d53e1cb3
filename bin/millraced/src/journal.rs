//! The log as entries of the journal, by the protocol of systemd-journald (systemd.io, "Native Journal Protocol"): one datagram
//! for each event, with a field for each of its values. `journalctl MILLRACE_BRIDGE=br0` finds them, and `MESSAGE_ID` tells what
//! happened, whatever the text says.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_log::Lines;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The socket of systemd-journald.
pub(crate) const SOCKET: &str = "/run/systemd/journal/socket";

/// The longest time for which an event waits for journald. Later events tell how many were lost.
const WRITE_TIME: Duration = Duration::from_millis(200);

/// The longest value, in bytes: an entry fits in a datagram.
const VALUE_MAX: usize = 8 << 10;

/// The kinds of events, by their texts: the field `MESSAGE_ID` (systemd.journal-fields(7)). An id stays when its text changes.
pub(crate) const MESSAGE_IDS: [(&str, &str); 12] = [
    ("configuration applied", "512721e9514a4bf5b9eae2a0bdb87f75"),
    ("not running", "64215df4891549ae8335eeea51e679d0"),
    ("bridge added", "7a0e3dc1915b4de4bb4910a1d385c1f1"),
    ("port added", "93d4a7a867584efc8987d264a3135cd0"),
    ("port removed", "4d575d2722954b0ebda32bc7ae703478"),
    ("link", "75012c7c2c874841b4c80e15bd2d2258"),
    ("link of a member", "43ae4f6e9ce642c5b9c8138e9e86df07"),
    ("member added", "93dfdd93e38946c895ceacde7ce0ecbf"),
    ("controller connected", "9d59f5a997a548d8a24177fa5ac3a295"),
    ("controller disconnected", "60d5e2a5430640849a224f75522e2d29"),
    ("a row is not in effect", "39ff49f545b24e43b66e3dc240d85923"),
    ("function down", "0251fec8e66c48b5aefad5c11d744bbe"),
];

/// The layer that sends events to the journal.
#[derive(Debug)]
pub(crate) struct Journal {
    socket: UnixDatagram,
    /// The number of events that journald did not take.
    lost: AtomicU64,
}

impl Journal {
    /// Connects to the socket of journald.
    ///
    /// # Errors
    /// There is no such socket.
    pub(crate) fn connect(path: &Path) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_write_timeout(Some(WRITE_TIME))?;
        Ok(Journal {
            socket,
            lost: AtomicU64::new(0),
        })
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut values = Values::default();
        event.record(&mut values);
        // The thread that takes the number reports it, and gives it back if it cannot.
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if self.socket.send(&entry(event, &values, lost)).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

/// Returns true if standard error is the journal, as systemd says it (systemd.exec(5), `JOURNAL_STREAM`).
pub(crate) fn is_stderr() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let found = nix::sys::stat::fstat(io::stderr());
    found.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// The values of an event.
#[derive(Default)]
struct Values {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Values {
    fn add(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name, value)),
        }
    }
}

impl Visit for Values {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

/// Returns the text for people: the message and its values, in one line whatever a peer put into them.
fn line(values: &Values) -> String {
    let mut text = values.message.clone();
    for (name, value) in &values.fields {
        // Writing to a String cannot fail.
        let _written = write!(text, " {name}={value}");
    }
    let mut line = Vec::new();
    // Nor can writing to a Vec.
    let _written = Lines::new(&mut line, false).write_all(text.as_bytes());
    String::from_utf8_lossy(&line).into_owned()
}

/// Returns the datagram of an event.
fn entry(event: &Event<'_>, values: &Values, lost: u64) -> Vec<u8> {
    let metadata = event.metadata();
    let priority = match *metadata.level() {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    };
    let mut entry = Vec::new();
    put(&mut entry, "MESSAGE", &line(values));
    put(&mut entry, "PRIORITY", priority);
    put(&mut entry, "SYSLOG_IDENTIFIER", env!("CARGO_PKG_NAME"));
    put(&mut entry, "MILLRACE_TARGET", metadata.target());
    if let Some((_, id)) = MESSAGE_IDS.iter().find(|(text, _)| *text == values.message) {
        put(&mut entry, "MESSAGE_ID", id);
    }
    if let (Some(file), Some(line)) = (metadata.file(), metadata.line()) {
        put(&mut entry, "CODE_FILE", file);
        put(&mut entry, "CODE_LINE", &line.to_string());
    }
    if lost != 0 {
        put(&mut entry, "MILLRACE_LOST_EVENTS", &lost.to_string());
    }
    for (name, value) in &values.fields {
        put(&mut entry, &field_name(name), value);
    }
    entry
}

/// Returns the field of a key: upper-case letters, digits and underscores, at most 64.
fn field_name(key: &str) -> String {
    let plain = key.chars().map(|char| match char {
        char if char.is_ascii_alphanumeric() => char.to_ascii_uppercase(),
        _ => '_',
    });
    "MILLRACE_".chars().chain(plain).take(64).collect()
}

/// Appends a field. A value with line feeds has its length before it.
fn put(entry: &mut Vec<u8>, name: &str, value: &str) {
    let mut end = value.len().min(VALUE_MAX);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    let value = value.get(..end).unwrap_or_default();
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use std::collections::BTreeMap;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Reads an entry as journald does.
    fn fields(mut bytes: &[u8]) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
            let (head, rest) = bytes.split_at(end);
            let head = std::str::from_utf8(head).unwrap();
            bytes = &rest[1..];
            let (name, value) = match head.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    let size = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
                    let value = String::from_utf8(bytes[8..8 + size].to_vec()).unwrap();
                    assert_eq!(bytes[8 + size], b'\n');
                    bytes = &bytes[8 + size + 1..];
                    (head, value)
                }
            };
            assert!(fields.insert(name.to_owned(), value).is_none(), "{name} twice");
        }
        fields
    }

    #[test]
    fn an_event_is_an_entry_with_its_values_and_what_happened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        let subscriber = tracing_subscriber::registry().with(Journal::connect(&path).unwrap());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(bridge = %"br0", port = "p1", number = 7, "port added");
            tracing::warn!(reason = "two\nlines\u{1b}[2K", "something else");
        });
        let mut bytes = vec![0; 65_536];
        let mut receive = || {
            let size = journal.recv(&mut bytes).unwrap();
            fields(&bytes[..size])
        };
        let first = receive();
        let of = |name: &str| first[name].as_str();
        assert_eq!(of("MESSAGE"), "port added bridge=br0 port=p1 number=7");
        assert_eq!((of("PRIORITY"), of("SYSLOG_IDENTIFIER")), ("6", "millraced"));
        assert_eq!(
            (of("MILLRACE_BRIDGE"), of("MILLRACE_PORT"), of("MILLRACE_NUMBER")),
            ("br0", "p1", "7")
        );
        assert_eq!(of("MESSAGE_ID"), "93d4a7a867584efc8987d264a3135cd0");
        let second = receive();
        assert_eq!(second["PRIORITY"], "4");
        assert!(!second.contains_key("MESSAGE_ID"));
        assert_eq!(
            second["MILLRACE_REASON"], "two\nlines\u{1b}[2K",
            "a field has the value as it is"
        );
        assert_eq!(
            second["MESSAGE"], "something else reason=two\\nlines\\u{1b}[2K",
            "the text is one line"
        );
    }

    #[test]
    fn events_that_journald_does_not_take_are_told_later_and_cost_no_more_than_their_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        journal.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let subscriber = tracing_subscriber::registry().with(Journal::connect(&path).unwrap());
        tracing::subscriber::with_default(subscriber, || {
            // The queue of a socket has room for some datagrams only, and nobody reads it.
            let mut sent = 0;
            let text = "x".repeat(VALUE_MAX);
            let began = std::time::Instant::now();
            while began.elapsed() < WRITE_TIME {
                tracing::info!(text, "filling");
                sent += 1;
            }
            assert!(sent > 1);
            let mut bytes = vec![0; 65_536];
            journal.recv(&mut bytes).unwrap();
            tracing::info!("after");
            let last = loop {
                let size = journal.recv(&mut bytes).unwrap();
                let entry = fields(&bytes[..size]);
                if entry["MESSAGE"] == "after" {
                    break entry;
                }
            };
            assert!(last["MILLRACE_LOST_EVENTS"].parse::<u64>().unwrap() >= 1);
        });
    }

    #[test]
    fn no_id_is_given_twice_and_every_text_is_in_the_sources() {
        let mut ids: Vec<&str> = MESSAGE_IDS.iter().map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), MESSAGE_IDS.len());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut sources = String::new();
        for folder in [
            "bin/millraced/src",
            "crates/control/agent/src",
            "crates/management/ovs-follower/src",
            "crates/functions/chain/src",
        ] {
            read(&root.join(folder), &mut sources);
        }
        for (text, _) in MESSAGE_IDS {
            assert!(sources.contains(&format!("\"{text}\"")), "no event says `{text}`");
        }
    }

    /// Adds the text of the Rust files below a folder, apart from this one.
    fn read(folder: &Path, sources: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, sources);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("journal.rs")
            {
                sources.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
}
