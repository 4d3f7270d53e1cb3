//! Selection of the configuration at start: the newest revision of the store, the revision of `--revision`, or the
//! configuration file. The store is changed only after the switch runs with the configuration, so that a configuration
//! that fails to start is not used by the next start.
//!
//! ```text
//!  plan() ──▶ start of the switch ──┬─ runs ──▶ commit()
//!                                   └─ fails ─▶ explain(error): the store is unchanged
//! ```

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Error, Result, anyhow};
use millrace_api::view::format_utc;
use millrace_model::{Change, ChangeKind, Config, System, diff};
use millrace_store::{FILE_NAME, FileImport, Note, Operation, Revision, RevisionNo, Store, UnixTime};

/// The number of revisions that the message of a failed start lists.
const LISTED: usize = 5;

/// The configuration file.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) config: Config,
}

enum Source {
    /// The file, which is new or differs from the last imported version.
    File,
    /// The newest revision of the store.
    Head,
    /// The revision of `--revision`.
    Revision(RevisionNo),
}

/// A start in progress.
pub(crate) struct Start {
    store: Store,
    directory: PathBuf,
    file: Option<File>,
    source: Source,
    config: Arc<Config>,
    is_committed: Cell<bool>,
}

/// Returns the current wall-clock time, for the store.
pub(crate) fn unix_now() -> UnixTime {
    UnixTime::from(SystemTime::now())
}

impl Start {
    /// Opens the store and selects the configuration; commits nothing.
    pub(crate) fn plan(
        state_dir: Option<PathBuf>,
        file: Option<File>,
        revision: Option<u64>,
    ) -> Result<Start> {
        let is_of_file = state_dir.is_none();
        let directory = state_dir.unwrap_or_else(|| match &file {
            Some(file) => file.config.system.state_dir.clone(),
            None => System::default().state_dir,
        });
        let store = Store::open(&directory, unix_now())
            .with_context(|| format!("the configuration store in {}", directory.display()))?;
        if is_of_file && let Some(unused) = unused_store(&store, &directory, &System::default().state_dir) {
            tracing::warn!(
                directory = %directory.display(),
                unused = %unused.display(),
                "a new configuration store, without the revisions of the unused one: to keep them, stop millraced and \
                 move that directory"
            );
        }
        let (source, config) = match (revision.map(RevisionNo), &file) {
            (Some(number), _) => {
                let (_, config) = store.at(number).context("--revision")?;
                (Source::Revision(number), Arc::new(config))
            }
            (None, Some(file)) if !store.has_imported(&file.config)? => {
                (Source::File, Arc::new(file.config.clone()))
            }
            (None, _) => (Source::Head, Arc::clone(&store.head().config)),
        };
        Ok(Start {
            store,
            directory,
            file,
            source,
            config,
            is_committed: Cell::new(false),
        })
    }

    /// Returns the selected configuration.
    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the directory of the store.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.directory
    }

    /// Commits the selected configuration to the store. To be called after the switch runs with it.
    pub(crate) fn commit_start(&self) -> Result<()> {
        let before = self.store.head();
        match (&self.source, &self.file) {
            (Source::Revision(number), _) => {
                let note = Note::new("millraced", &format!("started with --revision {number}"));
                let taken = self.store.restart_from(*number, note, unix_now())?;
                tracing::info!(
                    revision = taken.number.0,
                    from = number.0,
                    "started with an earlier revision"
                );
            }
            (_, Some(file)) => {
                let note = Note::new("millraced", "configuration file");
                let (wanted, left_alone) = self
                    .store
                    .of_file(&file.config)
                    .context("the configuration file")?;
                let import = self.store.import(&file.config, note, unix_now());
                match import.context("the configuration file")? {
                    FileImport::Committed(taken) => {
                        tracing::info!(revision = taken.number.0, "configuration file imported");
                        for owned in &left_alone {
                            tracing::warn!("the configuration file says something else: {owned}");
                        }
                        let removed = removed(&diff(&before.config, &wanted));
                        if !removed.is_empty() {
                            tracing::warn!(
                                revision = taken.number.0,
                                removes = removed.join(", "),
                                "the configuration file removes configured items; `millrace rollback {}` restores them",
                                before.revision.number
                            );
                        }
                    }
                    FileImport::Unchanged(head) => tracing::info!(
                        revision = head.number.0,
                        "configuration file unchanged; later changes are kept"
                    ),
                    FileImport::RolledBack(head) => tracing::warn!(
                        revision = head.number.0,
                        "the configuration file has the content of a revision that was rolled back, and is not imported: \
                         `millrace apply {}` applies it again",
                        file.path.display()
                    ),
                }
            }
            (_, None) => {}
        }
        self.is_committed.set(true);
        Ok(())
    }

    /// Returns `error` with the selected configuration and the way to start with another one. An error after the start
    /// is returned unchanged.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if self.is_committed.get() {
            return error;
        }
        let store = format!("the store in {}", self.directory.display());
        let head = &self.store.head().revision;
        let reason = match (&self.source, &self.file) {
            (Source::File, Some(file)) => {
                return anyhow!(
                    "{error:#}\n  The start used {}, which is not imported: {store} stays at revision {}.",
                    file.path.display(),
                    head.number
                );
            }
            (Source::Revision(number), _) => {
                return anyhow!(
                    "{error:#}\n  The start used revision {number} of {store}, which stays at revision {}.",
                    head.number
                );
            }
            (_, Some(file)) if has_equal_start_settings(&file.config, &self.config) => return error,
            (_, Some(file)) => format!(
                ", not {}: the file is unchanged since its last import, or its content was rolled back; later changes are kept.",
                file.path.display()
            ),
            (_, None) => ", the newest.".to_owned(),
        };
        let mut text = format!(
            "{error:#}\n  The start used revision {} of {store}{reason}",
            head.number
        );
        if let Some(other) = self.newest_other() {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\n  To start with an earlier revision, add `--revision {other}` to the options of millraced once."
            );
        }
        text.push_str("\n  The newest revisions:");
        for revision in self.store.history(LISTED).unwrap_or_default() {
            text.push_str(&line(&revision));
        }
        anyhow!(text)
    }

    /// Returns the newest other revision with different start settings ([`has_equal_start_settings`]).
    fn newest_other(&self) -> Option<RevisionNo> {
        let revisions = self.store.history(usize::MAX).ok()?;
        let other = |revision: &&Revision| {
            let found = self.store.at(revision.number);
            found.is_ok_and(|(_, config)| !has_equal_start_settings(&config, &self.config))
        };
        revisions.iter().find(other).map(|revision| revision.number)
    }
}

/// Returns `default`, the default directory, if the store in `directory` is new and that directory has another one, as
/// after a change of `system.state_dir`.
fn unused_store<'a>(store: &Store, directory: &Path, default: &'a Path) -> Option<&'a Path> {
    let is_new = store.head().revision.operation == Operation::Initial;
    (is_new && directory != default && default.join(FILE_NAME).exists()).then_some(default)
}

/// Returns true if both configurations have equal `system` and `api` settings, which only a start uses. Other
/// settings cannot make a start fail.
fn has_equal_start_settings(one: &Config, other: &Config) -> bool {
    (&one.system, &one.api) == (&other.system, &other.api)
}

fn line(revision: &Revision) -> String {
    let what = match revision.number.0 {
        0 => "a new store, nothing configured",
        _ => revision.comment.lines().next().unwrap_or(""),
    };
    let line = format!(
        "\n    {:>4}  {}  {}  {what}",
        revision.number,
        format_utc(revision.time.0),
        revision.author
    );
    line.trim_end().to_owned()
}

/// Returns the removed parts of a configuration, in words.
fn removed(changes: &[Change]) -> Vec<String> {
    let removed = changes.iter().filter(|change| change.kind == ChangeKind::Removed);
    removed.map(Change::subject).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;
    use millrace_store::Proposal;

    const BRIDGES: &str = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"memory\"\n\
        [[bridge]]\nname = \"br1\"\n";

    fn config(text: &str) -> Config {
        Config::from_toml("s.toml", text).unwrap()
    }

    fn plan(directory: &std::path::Path, text: Option<&str>, revision: Option<u64>) -> Start {
        let file = text.map(|text| File {
            path: "s.toml".into(),
            config: config(text),
        });
        Start::plan(Some(directory.to_owned()), file, revision).unwrap()
    }

    fn commit(start: &Start, text: &str) {
        let proposal = Proposal {
            expected: None,
            config: config(text),
            note: Note::new("alice", "a core"),
        };
        start.store().commit(proposal, UnixTime(1_700_000_000)).unwrap();
    }

    #[test]
    fn a_file_is_committed_over_once_the_switch_runs_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let start = plan(directory.path(), Some(BRIDGES), None);
        assert_eq!(**start.config(), config(BRIDGES));
        let message = start.explain(anyhow!("no")).to_string();
        assert!(
            message.starts_with("no\n") && message.contains("s.toml, which is not imported"),
            "{message}"
        );
        assert_eq!(start.store().head().revision.number, RevisionNo(0));
        drop(start);
        let start = plan(directory.path(), Some(BRIDGES), None);
        start.commit_start().unwrap();
        assert_eq!(start.store().head().revision.number, RevisionNo(1));
        assert_eq!(start.explain(anyhow!("no")).to_string(), "no");
    }

    #[test]
    fn a_start_confirms_no_change_of_the_file_that_awaits_confirmation() {
        let (edited, later) = ("[[bridge]]\nname = \"br2\"\n", "[[bridge]]\nname = \"br3\"\n");
        for is_restarted_meanwhile in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let mut start = plan(directory.path(), Some(BRIDGES), None);
            start.commit_start().unwrap();
            let proposal = Proposal {
                expected: None,
                config: config(edited),
                note: Note::default(),
            };
            let now = unix_now();
            let deadline = now.plus(86_400);
            start.store().commit_confirm(proposal, deadline, now).unwrap();
            if is_restarted_meanwhile {
                drop(start);
                start = plan(directory.path(), Some(edited), None);
                start.commit_start().unwrap();
                assert_eq!(start.store().head().revision.number, RevisionNo(2));
            }
            start.store().tick(deadline).unwrap().unwrap();
            drop(start);
            let start = plan(directory.path(), Some(edited), None);
            assert_eq!(**start.config(), config(BRIDGES));
            start.commit_start().unwrap();
            assert_eq!(start.store().head().revision.number, RevisionNo(3));
            // Nor does a later start import the file.
            commit(&start, later);
            drop(start);
            let start = plan(directory.path(), Some(edited), None);
            assert_eq!(**start.config(), config(later));
        }
    }

    #[test]
    fn a_start_that_fails_for_a_later_revision_says_so_and_how_to_go_back() {
        let directory = tempfile::tempdir().unwrap();
        let start = plan(directory.path(), Some(BRIDGES), None);
        start.commit_start().unwrap();
        commit(&start, "[system]\nworker_cores = [900]\n");
        commit(
            &start,
            "[system]\nworker_cores = [900]\n[[bridge]]\nname = \"br9\"\n",
        );
        drop(start);
        for (file, not_the_file) in [(Some(BRIDGES), true), (None, false)] {
            let start = plan(directory.path(), file, None);
            let message = start.explain(anyhow!("no core 900")).to_string();
            for part in [
                "no core 900\n",
                "start used revision 3 of the store in ",
                "`--revision 1`",
                "2023-11-14 22:13:20Z  alice  a core",
            ] {
                assert!(message.contains(part), "{part}: {message}");
            }
            assert_eq!(message.contains("not s.toml"), not_the_file, "{message}");
        }
        let start = plan(directory.path(), Some(BRIDGES), Some(1));
        assert_eq!(**start.config(), config(BRIDGES));
        assert_eq!(start.store().head().revision.number, RevisionNo(3));
        start.commit_start().unwrap();
        assert_eq!(start.store().head().revision.number, RevisionNo(4));
        assert_eq!(*start.store().head().config, config(BRIDGES));
    }

    #[test]
    fn a_start_that_fails_for_what_the_file_says_too_blames_no_revision() {
        let directory = tempfile::tempdir().unwrap();
        let start = plan(directory.path(), Some(BRIDGES), None);
        start.commit_start().unwrap();
        commit(&start, "");
        drop(start);
        let start = plan(directory.path(), Some(BRIDGES), None);
        assert_eq!(start.explain(anyhow!("in use")).to_string(), "in use");
    }

    #[test]
    fn a_new_store_beside_one_in_the_default_directory_is_noticed() {
        let (default, moved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let start = plan(moved.path(), Some(BRIDGES), None);
        let unused = |start: &Start| unused_store(start.store(), moved.path(), default.path());
        assert_eq!(unused(&start), None, "the default directory has no store");
        drop(plan(default.path(), None, None));
        assert_eq!(unused(&start), Some(default.path()));
        assert_eq!(unused_store(start.store(), moved.path(), moved.path()), None);
        start.commit_start().unwrap();
        assert_eq!(unused(&start), None, "the store is not new");
    }

    #[test]
    fn what_a_file_removes_is_named() {
        assert_eq!(
            removed(&diff(&config(BRIDGES), &config("# nothing\n"))),
            ["bridge br0", "bridge br1"]
        );
        let without_port = config("[[bridge]]\nname = \"br0\"\n[[bridge]]\nname = \"br1\"\ntables = 3\n");
        assert_eq!(
            removed(&diff(&config(BRIDGES), &without_port)),
            ["bridge br0 port p1"]
        );
    }
}
