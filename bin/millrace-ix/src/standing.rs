//! The part of this engine among those of a shared database, for the command line.

use std::fmt::Write as _;

use millrace_ix_service::{Handle, Snapshot};
use millrace_ix_store::Role;
use serde_json::{Value, json};

/// Returns the part of this engine.
pub(crate) fn describe(handle: &Handle, snapshot: &Snapshot) -> Value {
    let standing = handle.standing();
    let standing = standing.borrow();
    let silent = snapshot
        .silent_since
        .map(|since| handle.now().millis().saturating_sub(since.0) / 1000);
    let mut value = match (&standing.role, &snapshot.follows) {
        (Role::Leads { epoch }, None) => json!({"role": "leads", "epoch": epoch}),
        (_, leader) => {
            let leader = leader.clone().unwrap_or_default();
            json!({"role": "follows", "leader": leader.name, "address": leader.address})
        }
    };
    value["database_silent_secs"] = json!(silent);
    value
}

/// Returns what an operator should know about it; nothing if this engine leads and its database answers.
pub(crate) fn text(value: &Value) -> String {
    let mut text = String::new();
    if value["role"] == "follows" {
        let leader = match (value["leader"].as_str(), value["address"].as_str()) {
            (None | Some(""), _) => "another engine".to_owned(),
            (Some(name), None | Some("")) => name.to_owned(),
            (Some(name), Some(address)) => format!("{name} ({address})"),
        };
        let _always = writeln!(
            text,
            "this engine follows {leader}: it shows the exchange, and accepts nothing"
        );
    }
    if let Some(seconds) = value["database_silent_secs"].as_u64() {
        let _always = writeln!(
            text,
            "the database has not answered for {seconds} s: nothing is accepted until it does"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_whose_database_answers_says_nothing() {
        let leads = json!({"role": "leads", "epoch": 3, "database_silent_secs": null});
        assert_eq!(text(&leads), "");
        let away = json!({"role": "leads", "epoch": 3, "database_silent_secs": 7});
        assert!(text(&away).contains("for 7 s"));
        let follows = json!({"role": "follows", "leader": "ix-1", "address": "https://ix-1.example"});
        assert!(text(&follows).contains("ix-1 (https://ix-1.example)"));
    }
}
