//! Grants: the keys that may write, read or list a directory, and the limits of their transfers.
//!
//! A path is the name of a grant and a path below its directory. A key without a grant learns only that it has none:
//! neither names of grants nor paths.

use crate::activity::{Activity, RunningTransfer};
use crate::audit::Audit;
use crate::config::{Config, GrantConfig, Symlinks, Verb};
use crate::quota::{Ledger, Quota, QuotaStore};
use crate::transfer::{Direction, DirectionCounters, Transfer};
use millrace_courier::access::{Access, DirectoryEntry, EntryType, ReadAccess, Refusal, WriteAccess};
use millrace_courier::files::Source as _;
use millrace_courier::identity::PublicKey;
use millrace_courier::local::{LocalSource, PlaceOptions, ScanOptions};
use millrace_courier::{RefuseCode, SharedRate};
use millrace_fileset::RelativePath;
use millrace_fileset::fs::{Access as FileAccess, FileSystem, FileType, Metadata, Root};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

/// The largest number of entries of a listing.
const ENTRIES_MAX: usize = 100_000;
/// The verbs that allow a transfer to a grant; one of them suffices.
const WRITES: &[Verb] = &[Verb::Create, Verb::Replace];

/// A grant with its usage. It outlives a reload that keeps name and directory.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) config: RwLock<GrantConfig>,
    pub(crate) ledger: Arc<Ledger>,
    /// The rate of all transfers of the grant together.
    rate: Arc<SharedRate>,
    pub(crate) counters: Arc<[DirectionCounters; 2]>,
    /// Held while transfers are counted and another one begins, so that the limit on their number holds.
    admission: Mutex<()>,
}

impl Grant {
    fn new(config: &GrantConfig) -> Grant {
        Grant {
            ledger: Arc::new(Ledger::new(&config.name, &config.directory, quota(config))),
            rate: SharedRate::new(config.rate),
            config: RwLock::new(config.clone()),
            counters: Arc::default(),
            admission: Mutex::new(()),
        }
    }

    /// Returns the present configuration.
    pub(crate) fn config(&self) -> GrantConfig {
        self.config.read().clone()
    }

    fn set_config(&self, config: &GrantConfig) {
        // The lock is released here: a new quota may need a walk through the directory, and the network
        // thread reads the configuration meanwhile.
        self.config.write().clone_from(config);
        self.ledger.set_quota(quota(config));
        self.rate.set(config.rate);
    }

    /// Returns the number of transfers that run.
    fn running(&self) -> usize {
        self.counters
            .iter()
            .map(|counters| counters.running.load(Ordering::Relaxed))
            .sum()
    }
}

fn quota(config: &GrantConfig) -> Quota {
    Quota {
        bytes: config.quota_bytes.map(|size| size.0),
        entries: config.quota_files,
    }
}

/// The grants of a daemon.
pub(crate) struct Grants {
    table: RwLock<Vec<Arc<Grant>>>,
    pool_max: u64,
    pub(crate) activity: Arc<Activity>,
    audit: Arc<Audit>,
}

/// A path that a key may use.
struct GrantPath {
    grant: Arc<Grant>,
    config: GrantConfig,
    path: RelativePath,
    /// The path ends with a slash.
    contents: bool,
}

impl Grants {
    /// Opens the audit log again, as after its rotation.
    pub(crate) fn reopen_audit(&self) {
        self.audit.reopen();
    }

    pub(crate) fn new(config: &Config, audit: Audit) -> Grants {
        let grants = config.grants.iter().map(|grant| Arc::new(Grant::new(grant)));
        Grants {
            table: RwLock::new(grants.collect()),
            pool_max: config.pool.0,
            activity: Arc::default(),
            audit: Arc::new(audit),
        }
    }

    /// Returns the present grants.
    pub(crate) fn all(&self) -> Vec<Arc<Grant>> {
        self.table.read().clone()
    }

    /// Replaces the grants. Running transfers continue; the new quota and rate apply to them, the other new limits do not.
    pub(crate) fn reload(&self, config: &Config) {
        let known = self.all();
        let keep = |new: &GrantConfig| {
            let same = |old: &&Arc<Grant>| {
                let old = old.config();
                old.name == new.name && old.directory == new.directory
            };
            let Some(old) = known.iter().find(same) else {
                return Arc::new(Grant::new(new));
            };
            old.set_config(new);
            Arc::clone(old)
        };
        let grants = config.grants.iter().map(keep).collect();
        *self.table.write() = grants;
    }

    /// Returns the grants of a key that have not expired, with their configuration.
    fn of(&self, key: PublicKey) -> Vec<(Arc<Grant>, GrantConfig)> {
        let now = SystemTime::now();
        let all = self.all().into_iter().map(|grant| {
            let config = grant.config();
            (grant, config)
        });
        all.filter(|(_, config)| config.keys.contains(&key) && config.until.is_none_or(|until| now < until))
            .collect()
    }

    /// Returns the directory or file at a path, if the key has one of the verbs there.
    fn grant_path(&self, key: PublicKey, path: &[u8], verbs: &[Verb]) -> Result<GrantPath, Refusal> {
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        let (path, contents) = (&path[start..], path.ends_with(b"/"));
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let (name, rest) = match path.iter().position(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (path, &[][..]),
        };
        let allows = |config: &GrantConfig| verbs.iter().any(|verb| config.verbs.contains(verb));
        let mut grants = self.of(key);
        if name.is_empty() {
            grants.retain(|(_, config)| allows(config));
        } else {
            grants.retain(|(_, config)| config.name.as_bytes() == name);
        }
        let shown = String::from_utf8_lossy(name).escape_default().to_string();
        let [(grant, config)] = &grants[..] else {
            let names: Vec<String> = grants.into_iter().map(|(_, config)| config.name).collect();
            return Err(Refusal::not_admitted(match names.len() {
                0 if name.is_empty() => format!(
                    "the key {key} has no grant with {}; ask the operator for one",
                    words(verbs)
                ),
                0 => format!(
                    "the key {key} has no grant `{shown}`; `millrace courier ls` shows its grants, and the operator adds one"
                ),
                _ => format!(
                    "the key {key} has several grants ({}); name one, as in millrace://HOST/{}/",
                    names.join(", "),
                    names[0]
                ),
            }));
        };
        if !allows(config) {
            return Err(Refusal::not_admitted(format!(
                "grant `{}` does not allow {}; it allows {}",
                config.name,
                words(verbs),
                words(&config.verbs.iter().copied().collect::<Vec<_>>())
            )));
        }
        let path = RelativePath::new(rest).map_err(|error| Refusal::not_admitted(error.to_string()))?;
        if path.is_reserved() {
            return Err(Refusal::not_admitted(format!(
                "{path} is a name of temporary files of transfers; use another one"
            )));
        }
        Ok(GrantPath {
            grant: Arc::clone(grant),
            config: config.clone(),
            path,
            contents,
        })
    }

    /// Begins a transfer, unless the grant has reached its limit of transfers.
    fn begin(&self, granted: &GrantPath, key: PublicKey, direction: Direction) -> Result<Transfer, Refusal> {
        let GrantPath { grant, config, .. } = granted;
        let _admission = grant.admission.lock();
        let running = grant.running();
        if running >= config.transfers {
            return Err(Refusal {
                code: RefuseCode::Busy,
                reason: format!(
                    "grant `{}` has {running} of {} transfers at once; try again later",
                    config.name, config.transfers
                ),
            });
        }
        let transfer = RunningTransfer {
            grant: config.name.clone(),
            verb: direction.name(),
            key: key.to_string(),
            path: granted.path.to_string(),
            verified_bytes: 0,
            bytes: 0,
            rate_bps: 0,
            started: Instant::now(),
        };
        let (activity, audit) = (Arc::clone(&self.activity), Arc::clone(&self.audit));
        Ok(Transfer::begin(
            Arc::clone(&grant.counters),
            direction,
            activity,
            audit,
            transfer,
        ))
    }

    /// Counts a refusal, and logs it.
    fn noted<T>(&self, key: PublicKey, verb: &str, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if let Err(refusal) = &result {
            self.activity.refused(refusal.code);
            tracing::info!(%key, verb, reason = refusal.reason, "refused");
        }
        result
    }
}

/// Returns verbs as text.
fn words(verbs: &[Verb]) -> String {
    let words: Vec<&str> = verbs.iter().map(|verb| verb.name()).collect();
    words.join(" or ")
}

fn files_error(path: &RelativePath, error: impl std::fmt::Display) -> Refusal {
    Refusal {
        code: RefuseCode::Files,
        reason: format!("{path}: {error}"),
    }
}

impl Access for Grants {
    fn admit(&self, key: PublicKey) -> Result<(), Refusal> {
        let result = if self.of(key).is_empty() {
            Err(Refusal::not_admitted(format!(
                "the key {key} has no grant here; ask the operator for a [[grant]] with it"
            )))
        } else {
            Ok(())
        };
        self.noted(key, "hello", result)
    }

    fn may_write(&self, key: PublicKey, path: &[u8]) -> Result<(), Refusal> {
        let result = self.grant_path(key, path, WRITES).map(|_| ());
        self.noted(key, "write", result)
    }

    fn write(&self, key: PublicKey, path: &[u8]) -> Result<WriteAccess, Refusal> {
        let result = self.grant_path(key, path, WRITES).and_then(|granted| {
            let transfer = self.begin(&granted, key, Direction::Write)?;
            let options = PlaceOptions {
                keep_existing: !granted.config.verbs.contains(&Verb::Replace),
                modes_and_times: granted.config.modes_and_times,
                symlinks_beneath: granted.config.symlinks == Symlinks::Beneath,
                ..PlaceOptions::default()
            };
            let store = QuotaStore {
                ledger: Arc::clone(&granted.grant.ledger),
                path: granted.path,
                options,
            };
            Ok(WriteAccess {
                store: Arc::new(store),
                rate: Arc::clone(&granted.grant.rate),
                pool_max: self.pool_max,
                observer: Box::new(transfer),
            })
        });
        self.noted(key, "write", result)
    }

    fn read(&self, key: PublicKey, path: &[u8]) -> Result<ReadAccess, Refusal> {
        let result = self.grant_path(key, path, &[Verb::Read]).and_then(|granted| {
            let transfer = self.begin(&granted, key, Direction::Read)?;
            let scan = ScanOptions::default();
            let source =
                LocalSource::scan_below(&granted.config.directory, &granted.path, granted.contents, &scan)
                    .map_err(|error| files_error(&granted.path, error))?;
            if let [first, others @ ..] = source.unreadable() {
                let more = match others.len() {
                    0 => String::new(),
                    more => format!(", and {more} more files or directories"),
                };
                let error = format!("the daemon may not read {first}{more}; ask the operator to permit it");
                return Err(files_error(&granted.path, error));
            }
            Ok(ReadAccess {
                source: Box::new(source),
                rate: Arc::clone(&granted.grant.rate),
                observer: Box::new(transfer),
            })
        });
        self.noted(key, "read", result)
    }

    fn list(&self, key: PublicKey, path: &[u8]) -> Result<Vec<DirectoryEntry>, Refusal> {
        let is_top = path.iter().all(|byte| *byte == b'/');
        let result = if is_top {
            let grants = self.of(key).into_iter().map(|(_, config)| DirectoryEntry {
                name: config.name.into_bytes(),
                entry_type: EntryType::Directory,
                size: 0,
                modified: 0,
            });
            Ok(grants.collect())
        } else {
            self.grant_path(key, path, &[Verb::List])
                .and_then(|granted| entries(&granted).map_err(|error| files_error(&granted.path, error)))
        };
        self.noted(key, "list", result)
    }
}

/// Returns the entries of a directory; for a file, its own entry.
fn entries(granted: &GrantPath) -> io::Result<Vec<DirectoryEntry>> {
    let root = Root::open(&granted.config.directory)?;
    let metadata = root.metadata(&granted.path)?;
    if metadata.file_type != FileType::Directory {
        let name = granted.path.split().1;
        return Ok(entry(name, &metadata).into_iter().collect());
    }
    // open(2) without following symlinks refuses a symlink, whose target must not be listed.
    root.open(&granted.path, FileAccess::Directory)?;
    let mut names = root.names(&granted.path)?;
    if names.len() > ENTRIES_MAX {
        return Err(io::Error::other(format!(
            "{} entries are more than {ENTRIES_MAX}; list a directory below it",
            names.len()
        )));
    }
    names.sort_unstable();
    let mut entries = Vec::new();
    for name in names {
        let Ok(path) = granted.path.join(&name) else {
            continue;
        };
        if path.is_reserved() {
            continue;
        }
        match root.metadata(&path) {
            Ok(metadata) => entries.extend(entry(&name, &metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(entries)
}

/// Returns the entry of a listing; `None` for a type that transfers do not carry.
fn entry(name: &[u8], metadata: &Metadata) -> Option<DirectoryEntry> {
    let entry_type = match metadata.file_type {
        FileType::File => EntryType::File,
        FileType::Directory => EntryType::Directory,
        FileType::Symlink => EntryType::Symlink,
        FileType::Other => return None,
    };
    let size = if entry_type == EntryType::File {
        metadata.size
    } else {
        0
    };
    Some(DirectoryEntry {
        name: name.to_vec(),
        entry_type,
        size,
        modified: u64::try_from(metadata.modified.seconds).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use millrace_courier::identity::Identity;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_request_for_files_that_the_daemon_may_not_read_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let permit = |name: &str, mode| {
            std::fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir_all(path("out/deep")).unwrap();
        std::fs::write(path("out/a"), "a").unwrap();
        std::fs::write(path("out/deep/secret"), "secret").unwrap();
        permit("", 0o755);
        permit("out/deep/secret", 0);
        let key = Identity::generate().unwrap().public_key();
        let text = format!(
            "[[grant]]\nname = \"out\"\nkeys = [\"{key}\"]\ndirectory = \"{}\"\nverbs = [\"read\"]\n",
            path("out").display()
        );
        let config: Config = toml::from_str(&text).unwrap();
        let grants = Grants::new(&config, Audit::open(dir.path()).unwrap());
        let read = || {
            // setfsuid(2) applies to the calling thread only, and removes root's right to read everything.
            nix::unistd::setfsuid(65_534.into());
            let denied = File::open(path("out/deep/secret")).is_err();
            denied.then(|| grants.read(key, b"out/").err())
        };
        let refusal = std::thread::scope(|scope| scope.spawn(read).join().unwrap());
        let Some(refusal) = refusal else {
            println!("skipped: this system lets root be nobody else");
            return;
        };
        let Refusal { code, reason } = refusal.unwrap();
        assert_eq!(code, RefuseCode::Files);
        assert!(reason.contains("deep/secret"), "{reason}");
        assert!(grants.read(key, b"out/a").is_ok());
    }
}
