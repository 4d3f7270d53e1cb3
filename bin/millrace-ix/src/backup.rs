//! Backup of the database while the engine runs, and its restoration while no engine runs.
//!
//! ```text
//!   backup:   database --(one moment, VACUUM INTO)--> FILE, checked
//!   restore:  FILE, checked --> database.restored --(rename)--> database; the previous one becomes database.before-restore
//! ```

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use millrace_ix_store::{Sqlite, Store as _};

use crate::control;

/// The files that SQLite keeps beside a database.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Checks a database, and describes its moment.
fn checked(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let store = Sqlite::open_read_only(path).with_context(|| name.clone())?;
    store.check().with_context(|| name.clone())?;
    let revision = store.load().with_context(|| name.clone())?.revision.0;
    // A backup of an older version does not have the time.
    let time = store.newest_time().map_or_else(
        |_| "an unknown time".to_owned(),
        |time| millrace_ix_model::Timestamp::from_millis(time.0).to_string(),
    );
    Ok(format!("revision {revision}, written until {time}"))
}

/// Writes a backup to a new file, while an engine may be running.
pub(crate) fn back_up(database: &Path, file: &Path) -> Result<String> {
    let store = Sqlite::open_read_only(database)?;
    store.back_up(file)?;
    let moment = checked(file)?;
    Ok(format!("{}: {moment}\n", file.display()))
}

/// Puts a backup in the place of the database. The previous database stays beside it.
pub(crate) fn restore(database: &Path, socket: &Path, file: &Path) -> Result<String> {
    control::check_free(socket).context("stop the engine before the restore")?;
    let moment = checked(file)?;
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let name = database.display().to_string();
    let (new, previous) = (
        with_suffix(database, ".restored"),
        with_suffix(database, ".before-restore"),
    );
    if previous.exists() {
        bail!(
            "{}: a previous restore has left it; move it away first",
            previous.display()
        );
    }
    if new.exists() {
        std::fs::remove_file(&new).with_context(|| new.display().to_string())?;
    }
    // The copy of SQLite has no journal, and the mode 0600.
    Sqlite::open_read_only(file)?.back_up(&new)?;
    let owner = std::fs::metadata(database).or_else(|_| std::fs::metadata(folder));
    let owner = owner.with_context(|| name.clone())?;
    chown(&new, Some(owner.uid()), Some(owner.gid())).with_context(|| new.display().to_string())?;
    let mut text = String::new();
    if database.exists() {
        std::fs::rename(database, &previous).with_context(|| name.clone())?;
        // A journal of the previous database must not be applied to the restored one.
        for suffix in COMPANIONS {
            let companion = with_suffix(database, suffix);
            if companion.exists() {
                let aside = with_suffix(&previous, suffix);
                std::fs::rename(&companion, aside).with_context(|| companion.display().to_string())?;
            }
        }
        text = format!("the previous database is {}\n", previous.display());
    }
    std::fs::rename(&new, database).with_context(|| name.clone())?;
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(|| folder.display().to_string())?;
    Ok(format!(
        "{name}: {moment}\n{text}start the engine. Switches that were changed since make it read-only: `millrace-ix status` \
         names them, and `millrace-ix adopt` or `millrace-ix enforce` decides which side is right\n"
    ))
}
