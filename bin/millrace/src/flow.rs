//! `millrace flow` and `millrace port`: flow entries of an operator, and counters that are reset.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use millrace_api::client::{Client, ClientError};
use millrace_api::view::{
    CountersReset, FlowModCommand, FlowMods, FlowModsDone, FlowsSaved, ResetFlowCounters, ResetPortCounters,
};

use crate::bridges::bridge_names;
use crate::cli::{BridgeSelection, Flow, FlowTexts};
use crate::output::{Session, author};

/// The largest number of additions in one request.
const ADDS_LEN: usize = 5000;
/// The largest number of changes or removals in one request: few, because each non-strict one is compared with
/// every entry of the bridge.
const SELECTS_LEN: usize = 100;
/// The largest size of the entries in one request, in bytes; well below the daemon's limit for bodies.
const REQUEST_SIZE: usize = 1 << 20;

pub(crate) fn run(session: &Session, args: &Flow) -> Result<()> {
    match args {
        Flow::Add(add) => change(session, &add.texts, FlowModCommand::Add, false),
        Flow::Mod(select) => change(session, &select.texts, FlowModCommand::Modify, select.strict),
        Flow::Del(delete) if delete.all => {
            let all = FlowTexts {
                bridge: delete.select.texts.bridge.clone(),
                flows: vec![String::new()],
                file: None,
            };
            change(session, &all, FlowModCommand::Delete, false)
        }
        Flow::Del(delete) => {
            let FlowTexts { flows, file, .. } = &delete.select.texts;
            // An empty match would select every entry. An unset shell variable expands to one, so it is rejected.
            if file.is_none() && (flows.is_empty() || flows.iter().any(|flow| flow.trim().is_empty())) {
                bail!(
                    "a match is empty or not given: expected a match, or --all to remove every entry of the bridge"
                );
            }
            let select = &delete.select;
            change(session, &select.texts, FlowModCommand::Delete, select.strict)
        }
        Flow::Reset(reset) => {
            let request = ResetFlowCounters {
                table: reset.table,
                matching: reset.matching.clone(),
                cookie: reset.cookie.clone(),
            };
            let done = session.client()?.reset_flow_counters(&reset.bridge, &request)?;
            session.print(&done, |done| {
                format!("counters of {} set to zero\n", entries(done.reset))
            })
        }
        Flow::Save(of) => save(session, of),
    }
}

/// Saves the flow entries, groups and meters of bridges in the daemon's state directory.
fn save(session: &Session, of: &BridgeSelection) -> Result<()> {
    let client = session.client()?;
    let saved = bridge_names(client, of)?
        .iter()
        .map(|bridge| client.save_flows(bridge))
        .collect::<Result<Vec<_>, _>>()?;
    session.print(&saved, |saved| {
        let line = |saved: &FlowsSaved| {
            let FlowsSaved {
                bridge,
                flows,
                groups,
                meters,
                file,
            } = saved;
            let flows = entries(*flows);
            format!("{bridge}: {flows}, {groups} groups and {meters} meters saved to {file}\n")
        };
        saved.iter().map(line).collect()
    })
}

/// Sets the counters of a port, or of all ports of a bridge, to zero.
pub(crate) fn reset_ports(session: &Session, bridge: &str, port: Option<&str>) -> Result<()> {
    let request = ResetPortCounters {
        port: port.map(str::to_owned),
    };
    let done = session.client()?.reset_port_counters(bridge, &request)?;
    session.print(&done, |CountersReset { reset }| {
        let ports = if *reset == 1 { "port" } else { "ports" };
        format!("counters of {reset} {ports} set to zero\n")
    })
}

/// A flow entry and its location.
struct Line {
    /// `FILE:LINE: `; empty for an argument.
    location: String,
    text: String,
}

fn lines(texts: &FlowTexts) -> Result<Vec<Line>> {
    let Some(path) = &texts.file else {
        let argument = |text: &String| Line {
            location: String::new(),
            text: text.clone(),
        };
        return Ok(texts.flows.iter().map(argument).collect());
    };
    let (name, text) = read(path)?;
    let numbered = text.lines().enumerate();
    let kept =
        numbered.filter(|(_, line)| !matches!(line.trim_start().as_bytes().first(), None | Some(b'#')));
    Ok(kept
        .map(|(number, line)| Line {
            location: format!("{name}:{}: ", number + 1),
            text: line.trim().to_owned(),
        })
        .collect())
}

/// Returns the name for messages and the content of a file, or of standard input for `-`.
fn read(path: &Path) -> Result<(String, String)> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
        return Ok(("standard input".to_owned(), text));
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path.display().to_string(), text))
}

/// Sends entries to the daemon, in order. The entries of one request take effect together or not at all.
fn change(session: &Session, texts: &FlowTexts, command: FlowModCommand, strict: bool) -> Result<()> {
    let lines = lines(texts)?;
    if lines.is_empty() {
        match &texts.file {
            Some(path) => bail!("{} has no flow entry", path.display()),
            None => bail!("no flow entry is given: expected one as an argument, or --file FILE"),
        }
    }
    let len_max = match command {
        FlowModCommand::Add => ADDS_LEN,
        FlowModCommand::Modify | FlowModCommand::Delete => SELECTS_LEN,
    };
    let mut sum = FlowModsDone::default();
    let (mut rest, mut sent) = (lines.as_slice(), 0);
    while !rest.is_empty() {
        let (request, later) = rest.split_at(request_len(rest, len_max));
        let mods = FlowMods {
            command,
            strict,
            flows: request.iter().map(|line| line.text.clone()).collect(),
            author: author(),
        };
        let done = send(session.client()?, &texts.bridge, &mods, request, sent)?;
        sum.added += done.added;
        sum.modified += done.modified;
        sum.removed += done.removed;
        sent += request.len();
        rest = later;
    }
    session.print(&sum, |sum| summary(*sum))
}

/// Returns how many entries go into the next request, at least one.
fn request_len(lines: &[Line], len_max: usize) -> usize {
    let mut size = 0;
    let fits = lines.iter().take(len_max).take_while(|line| {
        size += line.text.len();
        size <= REQUEST_SIZE
    });
    fits.count().max(1)
}

/// Sends one request. The error names the rejected entry by its location, if there is one, and the number of entries of
/// earlier requests, which took effect.
fn send(client: &Client, bridge: &str, mods: &FlowMods, lines: &[Line], sent: usize) -> Result<FlowModsDone> {
    let error = match client.flow_mods(bridge, mods) {
        Ok(done) => return Ok(done),
        Err(error) => error,
    };
    let refused = match &error {
        ClientError::Problem(problem) => problem.errors.first().and_then(|mistake| {
            let index: usize = mistake.pointer.strip_prefix("/flows/")?.parse().ok()?;
            Some((lines.get(index)?, mistake))
        }),
        _ => None,
    };
    let Some((line, mistake)) = refused else {
        let error = anyhow::Error::from(error);
        return Err(match sent {
            0 => error,
            sent => error.context(format!(
                "the {sent} entries of earlier requests took effect, the request with the next {} failed",
                lines.len()
            )),
        });
    };
    let location = if line.location.is_empty() {
        format!("`{}`: ", line.text)
    } else {
        line.location.clone()
    };
    let effect = match sent {
        0 => "nothing was changed".to_owned(),
        sent => {
            format!("the {sent} entries of earlier requests took effect, this one and those after it did not")
        }
    };
    bail!("{location}{}; {effect}", mistake.detail)
}

fn entries(count: u64) -> String {
    format!("{count} {}", if count == 1 { "entry" } else { "entries" })
}

/// Returns the numbers of changed entries in words.
fn summary(done: FlowModsDone) -> String {
    let parts = [
        (done.added, "added"),
        (done.modified, "changed"),
        (done.removed, "removed"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, verb)| format!("{} {verb}", entries(count)))
        .collect();
    match parts.is_empty() {
        true => "no entry is selected: nothing was changed\n".to_owned(),
        false => parts.join(", ") + "\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_a_rejected_entry_names_the_entries_that_took_effect() {
        let dir = tempfile::tempdir().unwrap();
        let client = Client::new(&format!("unix:{}/gone.sock", dir.path().display()), None, None).unwrap();
        let lines = [Line {
            location: "flows:5001: ".to_owned(),
            text: "actions=drop".to_owned(),
        }];
        let mods = FlowMods {
            command: FlowModCommand::Add,
            strict: false,
            flows: vec!["actions=drop".to_owned()],
            author: String::new(),
        };
        let fail = |sent| send(&client, "br0", &mods, &lines, sent).unwrap_err();
        let later = fail(5000);
        let text = format!("{later:#}");
        assert!(
            text.starts_with("the 5000 entries of earlier requests took effect"),
            "{text}"
        );
        assert!(text.contains("no response from"), "{text}");
        // The exit status and the next step depend on the error of the request.
        assert!(matches!(
            later.downcast_ref::<ClientError>(),
            Some(ClientError::Unreachable { .. })
        ));
        assert!(fail(0).to_string().starts_with("no response from"));
    }
}
