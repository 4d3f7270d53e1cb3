//! The reset of an exchange's time after the clock of the server was far ahead, while no engine runs.
//!
//! The engine's time never runs behind the newest time in the database (ADR 34). A clock that stood in 2040 for a minute
//! has left that time there, and only a person can say that it was wrong.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use millrace_ix_api::session::SESSION_PREFIX;
use millrace_ix_model::{FILTER_VALIDITY_MAX, FilterId, KEY_VALIDITY_MAX, ServiceKeyId, Timestamp};
use millrace_ix_store::{AuditEntry, Sqlite, Store as _, UnixMillis};
use serde_json::json;

use crate::control;

/// The difference of both times that the engine works off by itself within a day: its time loses a tenth of each second.
const AHEAD_MIN: Duration = Duration::from_secs(86_400 / 10);

/// Returns true if an object with this end was ordered while the clock was ahead: nobody can order it at `now`.
fn is_late(kind: &str, end: Timestamp, now: Timestamp) -> bool {
    let left = end.since(now);
    match kind {
        FilterId::PREFIX => left > FILTER_VALIDITY_MAX,
        ServiceKeyId::PREFIX => left > KEY_VALIDITY_MAX,
        _ => false,
    }
}

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
    if Duration::from_millis(newest.saturating_sub(now)) < AHEAD_MIN {
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
        .filter_map(|row| {
            let end: Timestamp = row.body["valid_until"].as_str()?.parse().ok()?;
            is_late(&row.kind, end, Timestamp::from_millis(now))
                .then(|| format!("  {}-{} ends {end}\n", row.kind, row.id))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_and_keys_are_late_if_their_ends_cannot_be_ordered() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let late = |kind: &str, days: u64| is_late(kind, now.after(Duration::from_secs(days * 86_400)), now);
        assert_eq!([late("fi", 30), late("fi", 31)], [false, true]);
        assert_eq!([late("sk", 90), late("sk", 91)], [false, true]);
        assert!(!late("cn", 365));
    }
}
