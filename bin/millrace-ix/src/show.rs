//! Answers of the engine as text for people.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Result;
use serde_json::Value;

/// Prints a text; a reader that closed the pipe is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns a value as a word: strings without quotes, lists with commas.
fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(word).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Returns rows as columns that are as wide as their widest cell.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn heading(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the answer to `status`.
pub(crate) fn status(value: &Value) -> String {
    let mut text = format!(
        "mode {}, revision {}\n",
        word(&value["mode"]["name"]),
        value["revision"]
    );
    if value["mode"]["name"] == "read_only" {
        let _always = writeln!(
            text,
            "{} remembers revision {}, the database is at {}: run `millrace-ix adopt` or `millrace-ix enforce`",
            word(&value["mode"]["switch"]),
            value["mode"]["their_revision"],
            value["mode"]["revision"]
        );
    }
    text.push_str(&crate::standing::text(&value["engine"]));
    for jump in items(&value["clock"]["jumps"]) {
        let _always = writeln!(text, "{}: {}", word(&jump["time"]), word(&jump["text"]));
    }
    let ahead = value["clock"]["ahead_millis"].as_u64().unwrap_or_default();
    if ahead > CLOCK_AHEAD_MILLIS {
        let _always = writeln!(
            text,
            "the engine's time is {} s ahead of the system clock: check NTP. If the system clock is right, and was far ahead \
             before, stop the engine, and run `millrace-ix reset-clock`",
            ahead / 1000
        );
    }
    let mut rows = vec![heading(&[
        "SWITCH",
        "NAME",
        "DPID",
        "STATE",
        "ENTRIES",
        "DIFFERING",
        "FOREIGN",
    ])];
    rows.extend(items(&value["switches"]).map(|switch| {
        ["id", "name", "dpid", "state", "entries", "differing", "foreign"]
            .map(|name| word(&switch[name]))
            .to_vec()
    }));
    text.push_str(&table(&rows));
    let mut rows = vec![heading(&["TRUNK", "NAME", "ENDS", "STATE", "DRAINED"])];
    rows.extend(items(&value["trunks"]).map(|trunk| {
        ["id", "name", "ends", "state", "drained"]
            .map(|name| word(&trunk[name]))
            .to_vec()
    }));
    if rows.len() > 1 {
        text.push_str(&table(&rows));
    }
    let mut rows = vec![heading(&["CHANGE", "PHASE", "OBJECTS", "WAITS FOR"])];
    rows.extend(items(&value["changes"]).map(|change| {
        let waits = [&change["waits_for_switches"], &change["waits_for_changes"]]
            .map(word)
            .join(" ");
        vec![
            word(&change["id"]),
            word(&change["phase"]),
            word(&change["objects"]),
            waits,
        ]
    }));
    if rows.len() > 1 {
        text.push_str(&table(&rows));
    }
    text
}

/// The difference between the engine's time and the system clock that the status mentions, in milliseconds.
const CLOCK_AHEAD_MILLIS: u64 = 1000;

/// Returns the answer to an order.
pub(crate) fn ordered(value: &Value) -> String {
    let applied = &value["applied"];
    let mut text = match &value["change"] {
        Value::Null => "nothing is written\n".to_owned(),
        change => format!("change {change} accepted, revision {}\n", value["revision"]),
    };
    for (name, ids) in [
        ("created", &applied["created"]),
        ("changed", &applied["changed"]),
        ("deleted", &applied["deleted"]),
    ] {
        if items(ids).next().is_some() {
            let _always = writeln!(text, "{name} {}", word(ids));
        }
    }
    let deletions: Vec<String> = items(&value["deletions"]).map(word).collect();
    if !deletions.is_empty() {
        let _always = writeln!(
            text,
            "deletes {} services, ends and connections:",
            deletions.len()
        );
        for name in &deletions {
            let _always = writeln!(text, "  {name}");
        }
    }
    for problem in items(&value["problems"]) {
        let _always = writeln!(text, "would be refused: {}", word(problem));
    }
    for (switch, counts) in value["entries"].as_object().into_iter().flatten() {
        let _always = writeln!(
            text,
            "{switch}: {} entries added, {} changed, {} removed",
            counts["added"], counts["changed"], counts["removed"]
        );
    }
    let count = |name: &str| value["kept"][name].as_u64().unwrap_or(0);
    if count("added") + count("removed") > 0 {
        let _always = writeln!(
            text,
            "contacts, joining rules and sessions with route servers: {} added, {} removed",
            count("added"),
            count("removed")
        );
    }
    let effects: Vec<String> = items(&value["effects"]).map(word).collect();
    for effect in effects.iter().take(EFFECTS_MAX) {
        let _always = writeln!(text, "{effect}");
    }
    if effects.len() > EFFECTS_MAX {
        let _always = writeln!(
            text,
            "and {} more: --json prints all",
            effects.len() - EFFECTS_MAX
        );
    }
    text
}

/// The largest number of effects that a dry run prints.
const EFFECTS_MAX: usize = 20;

/// Returns the violations that a verification has found.
pub(crate) fn violations(value: &Value) -> String {
    let mut text = String::new();
    for found in items(value) {
        let _always = writeln!(text, "{}", word(found));
    }
    if text.is_empty() {
        text.push_str("all frames leave where they should, and nowhere else\n");
    }
    text
}

/// Returns the figures of a month.
pub(crate) fn billing(value: &Value) -> String {
    let mut rows = vec![heading(&[
        "ACCOUNT",
        "CONNECTION",
        "IN",
        "OUT",
        "95TH",
        "COVERAGE",
        "",
    ])];
    let rate = |rate: &Value| rate.as_u64().map_or_else(|| "unknown".to_owned(), si);
    rows.extend(items(&value["rows"]).map(|row| {
        let coverage = row["coverage"].as_f64().unwrap_or(0.0) * 100.0;
        let note = if row["billable"] == true {
            ""
        } else {
            "below 98 %: not billed by itself"
        };
        vec![
            word(&row["account_name"]),
            word(&row["connection_name"]),
            rate(&row["in_bps"]),
            rate(&row["out_bps"]),
            rate(&row["billed_bps"]),
            format!("{coverage:.1} %"),
            note.to_owned(),
        ]
    }));
    let state = if value["frozen"] == true {
        "frozen"
    } else {
        "so far"
    };
    format!(
        "{} ({state}), 95th percentiles of 5 minutes\n{}",
        word(&value["month"]),
        table(&rows)
    )
}

/// Returns a rate with an SI prefix and four digits.
fn si(bps: u64) -> String {
    let (mut value, mut unit) = (bps as f64, "bit/s");
    for next in ["kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"] {
        if value < 1000.0 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    format!("{value:.2} {unit}")
}

/// Returns the list of services.
pub(crate) fn services(value: &Value) -> String {
    let mut rows = vec![heading(&["SERVICE", "KIND", "NAME", "STATE", "ENDS", "STATUS"])];
    rows.extend(items(value).map(|service| {
        let end = |end: &Value| format!("{} {}", word(&end["connection"]), word(&end["vlan"]));
        let ends = items(&service["ends"]).map(end).collect::<Vec<_>>().join(", ");
        let status = items(&service["status"])
            .map(|status| word(&status["message"]))
            .collect::<Vec<_>>()
            .join("; ");
        let cell = |name: &str| word(&service[name]);
        vec![
            cell("id"),
            cell("kind"),
            cell("name"),
            cell("state"),
            ends,
            status,
        ]
    }));
    table(&rows)
}

/// Returns the list of BGP sessions.
pub(crate) fn sessions(value: &Value) -> String {
    let mut rows = vec![heading(&[
        "PEER",
        "AS",
        "KIND",
        "ACCOUNT",
        "STATE",
        "SINCE",
        "PREFIXES",
        "RULES",
        "LAST ERROR",
    ])];
    let names = [
        "peer",
        "asn",
        "kind",
        "account",
        "state",
        "since",
        "prefixes",
        "rules",
        "last_error",
    ];
    rows.extend(items(value).map(|session| names.map(|name| word(&session[name])).into()));
    table(&rows)
}

/// Returns a verdict about a filter.
pub(crate) fn verdict(value: &Value) -> String {
    let evidence: Vec<String> = items(&value["evidence"]).map(word).collect();
    if value["allowed"] == true {
        return format!("allowed: {}\n", evidence.join("; "));
    }
    let missing = match &value["missing"] {
        Value::Null => String::new(),
        missing => format!("missing: {}\n", word(missing)),
    };
    format!("refused: {}\n{missing}", word(&value["reason"]))
}

/// Returns the list of ends in quarantine: one line for each finding, or one that says what is missing.
pub(crate) fn quarantine(value: &Value) -> String {
    let mut rows = vec![heading(&[
        "END",
        "CONNECTION",
        "CLEAN SINCE",
        "CHECK",
        "COUNT",
        "FINDING",
    ])];
    for end in items(value) {
        let cells = |check: String, count: String, text: String| {
            let end = ["end", "connection", "clean_since"].map(|name| word(&end[name]));
            end.into_iter().chain([check, count, text]).collect::<Vec<_>>()
        };
        let mut findings = items(&end["findings"]).peekable();
        if findings.peek().is_none() {
            let text = if end["seen"] == true {
                "nothing is wrong so far"
            } else {
                "no frame of the router was seen yet"
            };
            rows.push(cells("-".to_owned(), "-".to_owned(), text.to_owned()));
        }
        rows.extend(findings.map(|finding| {
            cells(
                word(&finding["check"]),
                word(&finding["count"]),
                word(&finding["text"]),
            )
        }));
    }
    table(&rows)
}

/// Returns the list of changes.
pub(crate) fn changes(value: &Value) -> String {
    let mut rows = vec![heading(&["CHANGE", "STATE", "BY", "OPERATIONS", "OBJECTS"])];
    rows.extend(items(value).map(|change| {
        let detail = &change["detail"];
        let names = items(&detail["operations"]).map(|operation| word(&operation["operation"]));
        let names = names.collect::<Vec<_>>().join(",");
        vec![
            word(&change["id"]),
            word(&change["state"]),
            word(&detail["actor"]),
            names,
            word(&detail["objects"]),
        ]
    }));
    table(&rows)
}

/// Returns the journal of a change.
pub(crate) fn journal(value: &Value) -> String {
    let mut rows = vec![heading(&["STATE", "AT", "REASON"])];
    rows.extend(items(value).map(|record| {
        let at = millrace_ix_model::Timestamp::from_millis(record["at"].as_u64().unwrap_or(0));
        vec![
            word(&record["state"]),
            at.to_string(),
            word(&record["detail"]["reason"]),
        ]
    }));
    table(&rows)
}

/// Returns the secret of a second factor, for an authenticator.
pub(crate) fn totp(value: &Value) -> String {
    format!(
        "secret  {}\nuri     {}\n",
        word(&value["secret"]),
        word(&value["uri"])
    )
}
