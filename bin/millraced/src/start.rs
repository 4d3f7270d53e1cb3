//! What the daemon starts with: the newest revision of the store, one that `--revision` names, or the configuration
//! file. The store learns of it only once the switch runs with it, so that what does not start is not what the next
//! start begins with.

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Error, Result, anyhow};
use millrace_api::view::moment;
use millrace_model::{Change, ChangeKind, Config, System, diff};
use millrace_store::{Adopted, Note, Revision, RevisionNo, Store, UnixTime};

/// Revisions that a failed start lists.
const LISTED: usize = 5;

/// The configuration file.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) config: Config,
}

enum Source {
    /// The file, which is new or has changed since it was last taken over.
    File,
    /// The newest revision.
    Head,
    /// One that was asked for.
    Revision(RevisionNo),
}

/// A start under way.
pub(crate) struct Start {
    store: Store,
    directory: PathBuf,
    file: Option<File>,
    source: Source,
    config: Arc<Config>,
    is_taken: Cell<bool>,
}

/// The wall clock, for the store.
pub(crate) fn unix_now() -> UnixTime {
    UnixTime::from(SystemTime::now())
}

impl Start {
    /// Opens the store and decides; nothing is committed yet.
    pub(crate) fn plan(
        state_dir: Option<PathBuf>,
        file: Option<File>,
        revision: Option<u64>,
    ) -> Result<Start> {
        let directory = state_dir.unwrap_or_else(|| match &file {
            Some(file) => file.config.system.state_dir.clone(),
            None => System::default().state_dir,
        });
        let store = Store::open(&directory, unix_now())
            .with_context(|| format!("the configuration store in {}", directory.display()))?;
        let (source, config) = match (revision.map(RevisionNo), &file) {
            (Some(number), _) => {
                let (_, config) = store.at(number).context("--revision")?;
                (Source::Revision(number), Arc::new(config))
            }
            (None, Some(file)) if !store.has_adopted(&file.config)? => {
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
            is_taken: Cell::new(false),
        })
    }

    /// What the switch is to start with.
    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Where the store is.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.directory
    }

    /// The switch runs with it: now it is what the store holds.
    pub(crate) fn take(&self) -> Result<()> {
        let before = self.store.head();
        match (&self.source, &self.file) {
            (Source::Revision(number), _) => {
                let note = Note::new("millraced", &format!("started with --revision {number}"));
                let taken = self.store.restart_from(*number, note, unix_now())?;
                tracing::info!(
                    revision = taken.number.0,
                    from = number.0,
                    "an earlier revision is taken"
                );
            }
            (Source::File, Some(file)) => {
                let note = Note::new("millraced", "configuration file");
                let adopted = self.store.adopt(&file.config, note, unix_now());
                let (Adopted::Committed(taken) | Adopted::Unchanged(taken)) =
                    adopted.context("the configuration file")?;
                tracing::info!(revision = taken.number.0, "configuration file taken over");
                let removed = removed(&diff(&before.config, &file.config));
                if !removed.is_empty() {
                    tracing::warn!(
                        revision = taken.number.0,
                        removes = removed.join(", "),
                        "the configuration file removes what was configured; `millrace rollback {}` brings it back",
                        before.revision.number
                    );
                }
            }
            (_, Some(_)) => tracing::info!(
                revision = before.revision.number.0,
                "configuration file unchanged; later changes stay"
            ),
            (_, None) => {}
        }
        self.is_taken.set(true);
        Ok(())
    }

    /// What `error` means to the one who started the daemon: which configuration was to be started with, and how
    /// to start with another. An error after the start stays as it is.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if self.is_taken.get() {
            return error;
        }
        let store = format!("the store in {}", self.directory.display());
        let head = &self.store.head().revision;
        let began_with = match (&self.source, &self.file) {
            (Source::File, Some(file)) => {
                return anyhow!(
                    "{error:#}\n  The switch was to start with {}, which is not taken over: {store} stays at revision {}.",
                    file.path.display(),
                    head.number
                );
            }
            (Source::Revision(number), _) => {
                return anyhow!(
                    "{error:#}\n  The switch was to start with revision {number} of {store}, which stays at revision {}.",
                    head.number
                );
            }
            (_, Some(file)) if says_the_same(&file.config, &self.config) => return error,
            (_, Some(file)) => format!(
                ", not with {}: the file is as it was when it was last taken over, and later changes stay.",
                file.path.display()
            ),
            (_, None) => ", the newest.".to_owned(),
        };
        let mut text = format!(
            "{error:#}\n  The switch was to start with revision {} of {store}{began_with}",
            head.number
        );
        if let Some(other) = self.newest_other() {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\n  To go back, start millraced once with `--revision {other}` besides its other options."
            );
        }
        text.push_str("\n  The newest revisions:");
        for revision in self.store.history(LISTED).unwrap_or_default() {
            text.push_str(&line(&revision));
        }
        anyhow!(text)
    }

    /// The newest revision that says something else of what only a start uses.
    fn newest_other(&self) -> Option<RevisionNo> {
        let revisions = self.store.history(usize::MAX).ok()?;
        let other = |revision: &&Revision| {
            let found = self.store.at(revision.number);
            found.is_ok_and(|(_, config)| !says_the_same(&config, &self.config))
        };
        revisions.iter().find(other).map(|revision| revision.number)
    }
}

/// Whether a start uses the same of both; what comes after it does not end it.
fn says_the_same(one: &Config, other: &Config) -> bool {
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
        moment(revision.time.0),
        revision.author
    );
    line.trim_end().to_owned()
}

/// What is there no more, in words.
fn removed(changes: &[Change]) -> Vec<String> {
    let gone = changes.iter().filter(|change| change.kind == ChangeKind::Removed);
    gone.map(Change::subject).collect()
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
    fn a_file_is_taken_over_once_the_switch_runs_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let start = plan(directory.path(), Some(BRIDGES), None);
        assert_eq!(**start.config(), config(BRIDGES));
        let told = start.explain(anyhow!("no")).to_string();
        assert!(
            told.starts_with("no\n") && told.contains("s.toml, which is not taken over"),
            "{told}"
        );
        assert_eq!(start.store().head().revision.number, RevisionNo(0));
        drop(start);
        let start = plan(directory.path(), Some(BRIDGES), None);
        start.take().unwrap();
        assert_eq!(start.store().head().revision.number, RevisionNo(1));
        assert_eq!(start.explain(anyhow!("no")).to_string(), "no");
    }

    #[test]
    fn a_start_that_fails_for_a_later_revision_says_so_and_how_to_go_back() {
        let directory = tempfile::tempdir().unwrap();
        let start = plan(directory.path(), Some(BRIDGES), None);
        start.take().unwrap();
        commit(&start, "[system]\nworker_cores = [900]\n");
        commit(
            &start,
            "[system]\nworker_cores = [900]\n[[bridge]]\nname = \"br9\"\n",
        );
        drop(start);
        for (file, not_the_file) in [(Some(BRIDGES), true), (None, false)] {
            let start = plan(directory.path(), file, None);
            let told = start.explain(anyhow!("no core 900")).to_string();
            for part in [
                "no core 900\n",
                "start with revision 3 of the store in ",
                "`--revision 1`",
                "2023-11-14 22:13:20Z  alice  a core",
            ] {
                assert!(told.contains(part), "{part}: {told}");
            }
            assert_eq!(told.contains("not with s.toml"), not_the_file, "{told}");
        }
        let start = plan(directory.path(), Some(BRIDGES), Some(1));
        assert_eq!(**start.config(), config(BRIDGES));
        assert_eq!(start.store().head().revision.number, RevisionNo(3));
        start.take().unwrap();
        assert_eq!(start.store().head().revision.number, RevisionNo(4));
        assert_eq!(*start.store().head().config, config(BRIDGES));
    }

    #[test]
    fn a_start_that_fails_for_what_the_file_says_too_blames_no_revision() {
        let directory = tempfile::tempdir().unwrap();
        let start = plan(directory.path(), Some(BRIDGES), None);
        start.take().unwrap();
        commit(&start, "");
        drop(start);
        let start = plan(directory.path(), Some(BRIDGES), None);
        assert_eq!(start.explain(anyhow!("in use")).to_string(), "in use");
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
