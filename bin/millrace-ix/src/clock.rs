//! The reset of an exchange's time after the clock of the server was far ahead, while no engine runs.
//!
//! The engine's time never runs behind the newest time in the database (ADR 34). A clock that stood in 2040 for a minute
//! has left that time there, and only a person can say that it was wrong.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use millrace_ix_api::session::SESSION_PREFIX;
use millrace_ix_model::Timestamp;
use millrace_ix_store::{AuditEntry, Sqlite, Store as _, UnixMillis};
use serde_json::json;

use crate::control;

/// The longest time for which a filter or a service key lasts, in days. A later end was ordered while the clock was ahead.
const VALID_DAYS_MAX: u64 = 31;
const DAY_MILLIS: u64 = 86_400_000;
/// The difference of both times, in milliseconds, that the engine works off by itself within a day.
const AHEAD_MIN: u64 = DAY_MILLIS / 10;

/// Sets the newest time of a database to the time of the system. Returns the text for the operator.
pub(crate) fn reset(database: &Path, socket: &Path) -> Result<String> {
    control::check_free(socket).context("stop the engine before the reset")?;
    let name = database.display().to_string();
    if !database.exists() {
        bail!("{name}: there is no such file; name the engine's with --database");
    }
    let system = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let now = u64::try_from(system.as_millis())?;
    let text = |millis: u64| Timestamp::from_millis(millis).to_string();
    let mut store = Sqlite::open(database).with_context(|| name.clone())?;
    let newest = store.newest_time().with_context(|| name.clone())?.0;
    if newest.saturating_sub(now) < AHEAD_MIN {
        bail!(
            "{name}: its newest time {} is not far ahead of the system's {}; the engine works the rest off by itself",
            text(newest),
            text(now)
        );
    }
    for key in store.credential_keys(SESSION_PREFIX)? {
        store.put_credential(&key, None)?;
    }
    let entry = AuditEntry {
        actor: "system".to_owned(),
        action: "reset_clock".to_owned(),
        object: String::new(),
        detail: json!({ "before": text(newest), "after": text(now) }),
    };
    store.reset_time(UnixMillis(now), entry)?;
    let late: Vec<String> = store
        .load()?
        .objects
        .iter()
        .filter(|row| ["fi", "sk"].contains(&row.kind.as_str()))
        .filter_map(|row| {
            let end: Timestamp = row.body["valid_until"].as_str()?.parse().ok()?;
            let is_late = end.millis() > now + VALID_DAYS_MAX * DAY_MILLIS;
            is_late.then(|| format!("  {}-{} ends {end}\n", row.kind, row.id))
        })
        .collect();
    let mut answer = format!(
        "{name}: the newest time was {}, and is {}\neverybody has to sign in again; start the engine\n",
        text(newest),
        text(now)
    );
    if !late.is_empty() {
        answer += "these filters and keys were ordered while the clock was ahead; delete them, or order them again:\n";
        answer += &late.concat();
    }
    Ok(answer)
}
