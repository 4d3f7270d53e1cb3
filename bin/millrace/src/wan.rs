//! `millrace wan`: emulated paths of `millrace-wan`, by their control sockets, and of the daemon.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use millrace_api::client::ChangeOptions;
use millrace_lab::find_program;
use millrace_model::Config;
use millrace_wan_control::args::BetweenArgs;
use millrace_wan_control::{
    Change, Delay, DirectionStatus, PathStatus, Reply, Request, SocketError, ask, bases_first, is_base,
    sockets,
};

use crate::change::follow;
use crate::cli::{Wait, Wan, WanName};
use crate::human::{bps, short};
use crate::output::{Session, author, say};
use crate::table::Table;

/// The program that forwards. Unlike the command line, it is linked with DPDK.
const PROGRAM: &str = "millrace-wan";
/// The longest wait until the daemon has applied a change of a path.
const APPLIED_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn run(session: &Session, what: &Wan) -> Result<ExitCode> {
    match what {
        Wan::Between(between) => start(between)?,
        Wan::Show(of) => {
            let paths = paths(session, of)?;
            session.print(&paths, |paths| {
                paths.iter().map(text).collect::<Vec<_>>().join("\n")
            })?;
        }
        Wan::Watch { of, interval, count } => watch(session, of, *interval, *count)?,
        Wan::Set { of, settings } => return set(session, of, &settings.change()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the settings, and replaces this process with the emulator.
fn start(between: &BetweenArgs) -> Result<()> {
    between.settings().directions()?;
    let program = find_program(PROGRAM).ok_or_else(|| {
        anyhow!("{PROGRAM} was not found beside this program, in the sbin beside its folder or in $PATH: build it (`make build`)")
    })?;
    let error = Command::new(&program).arg("between").args(between.words()).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// The owner of a path.
enum Owner {
    Emulator(PathBuf),
    Daemon,
}

/// Returns the status of the emulator at a socket.
fn status(socket: &Path) -> Result<PathStatus> {
    match ask(socket, &Request::Show)? {
        Reply::Status(status) => Ok(*status),
        Reply::Error(reason) => bail!("{}: {reason}", socket.display()),
    }
}

/// Returns the selected paths, each with its owner.
fn owned(session: &Session, of: &WanName) -> Result<Vec<(Owner, PathStatus)>> {
    if let Some(socket) = &of.control {
        return Ok(vec![(Owner::Emulator(socket.clone()), status(socket)?)]);
    }
    let mut found = Vec::new();
    for socket in sockets() {
        match status(&socket) {
            Ok(path) => found.push((Owner::Emulator(socket), path)),
            // A process that was killed leaves its socket.
            Err(error) if matches!(error.downcast_ref(), Some(SocketError::Unreachable { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    let of_daemon = session.client().and_then(|client| Ok(client.wans()?));
    match of_daemon {
        Ok(paths) => found.extend(paths.into_iter().map(|path| (Owner::Daemon, path))),
        Err(error) if found.is_empty() => {
            return Err(error
                .context("no `millrace wan between` is running, and the paths of a switch cannot be read"));
        }
        Err(_) => {}
    }
    let Some(name) = &of.name else { return Ok(found) };
    let names: Vec<String> = found.iter().map(|(_, path)| path.name.clone()).collect();
    found.retain(|(_, path)| path.name == *name);
    if found.is_empty() {
        let known = if names.is_empty() {
            "there is none".to_owned()
        } else {
            format!("expected one of {}", names.join(", "))
        };
        bail!("there is no path `{name}`: {known}");
    }
    Ok(found)
}

fn paths(session: &Session, of: &WanName) -> Result<Vec<PathStatus>> {
    Ok(owned(session, of)?.into_iter().map(|(_, path)| path).collect())
}

/// Changes a path.
fn set(session: &Session, of: &WanName, change: &Change) -> Result<ExitCode> {
    if *change == Change::default() {
        bail!("nothing to change: expected an option, as in --delay 200ms");
    }
    let mut found = owned(session, of)?;
    let (owner, path) = match (found.pop(), found.is_empty()) {
        (Some(one), true) => one,
        (None, _) => bail!("there is no path: start one with `millrace wan between`, or configure [[wan]]"),
        (Some(last), false) => {
            let names: Vec<_> = found
                .iter()
                .chain([&last])
                .map(|(_, path)| path.name.clone())
                .collect();
            bail!(
                "several paths run: expected the name of one of {}",
                names.join(", ")
            );
        }
    };
    match owner {
        Owner::Emulator(socket) => match ask(&socket, &Request::Set(change.clone()))? {
            Reply::Status(status) => {
                session.print(&vec![*status], |paths| {
                    paths.iter().map(PathStatus::settings_text).collect()
                })?;
                Ok(ExitCode::SUCCESS)
            }
            Reply::Error(reason) => bail!("{reason}"),
        },
        Owner::Daemon => set_configured(session, &path.name, change),
    }
}

/// Changes a path of the daemon by a change of the configuration.
fn set_configured(session: &Session, name: &str, change: &Change) -> Result<ExitCode> {
    let client = session.client()?;
    let (mut json, revision) = client.config()?;
    change_configured(&mut json, name, change)?;
    let config = Config::from_json(&json).map_err(|errors| anyhow!("the change is refused\n{errors}"))?;
    let options = ChangeOptions {
        author: author(),
        comment: format!("millrace wan set {name}"),
        ..ChangeOptions::default()
    };
    let committed = client.replace_config(&config.to_json(), Some(revision), &options)?;
    follow(session, committed, revision, &Wait { wait: APPLIED_WITHIN })
}

/// Changes a path in a configuration, and removes the path's scenario, which would undo the change.
fn change_configured(json: &mut serde_json::Value, name: &str, change: &Change) -> Result<()> {
    let list = json.get_mut("wan").and_then(serde_json::Value::as_array_mut);
    let mut items = list.into_iter().flatten();
    let wan = items
        .find(|item| item.get("name").and_then(serde_json::Value::as_str) == Some(name))
        .with_context(|| format!("path {name} is not configured"))?;
    for (tables, settings) in [
        (&["path", "a_to_b", "b_to_a"][..], &change.both),
        (&["a_to_b"], &change.a_to_b),
        (&["b_to_a"], &change.b_to_a),
    ] {
        for (key, text) in bases_first(settings) {
            // A preset replaces all keys. A setting for both directions replaces that of each direction.
            tables.iter().for_each(|table| remove(wan, table, key));
            put(wan, tables[0], key, text);
        }
    }
    if let Some(wan) = wan.as_object_mut() {
        wan.remove("scenario");
    }
    Ok(())
}

/// Removes the keys that a setting replaces from a table of a path: the same key, or all keys for a preset.
fn remove(wan: &mut serde_json::Value, table: &str, key: &str) {
    match wan.get_mut(table).and_then(serde_json::Value::as_object_mut) {
        Some(table) if is_base(key) => table.clear(),
        Some(table) => drop(table.remove(key)),
        None => {}
    }
}

/// Sets a key in a table of a path. A missing table is created.
fn put(wan: &mut serde_json::Value, table: &str, key: &str, text: &str) {
    let value = number_or_text(key, text);
    match wan[table].as_object_mut() {
        Some(table) => drop(table.insert(key.to_owned(), value)),
        None => wan[table] = serde_json::json!({ key: value }),
    }
}

/// Returns the value of a key in the configuration: the MTU is a number there.
fn number_or_text(key: &str, text: &str) -> serde_json::Value {
    match (key, text.parse::<u64>()) {
        ("mtu", Ok(number)) => number.into(),
        _ => text.into(),
    }
}

/// Returns the full description of a path, as `show` prints it.
fn text(path: &PathStatus) -> String {
    let mut page = path.title() + "\n";
    page += &path.settings_text();
    page += "\n";
    page += &counters(path).to_string();
    page += "\n";
    page += &delays(path).to_string();
    for interface in &path.interfaces {
        if interface.rx_missed + interface.rx_errors + interface.tx_refused + interface.tx_errors > 0 {
            page += &format!(
                "{}: {} frames missed, {} not forwarded, {} not taken, {} not sent\n",
                interface.device,
                interface.rx_missed,
                interface.rx_errors,
                interface.tx_refused,
                interface.tx_errors
            );
        }
    }
    for warning in path.warnings() {
        page += &format!("warning: {warning}\n");
    }
    page
}

/// Returns the frames by outcome, one row for each.
fn counters(path: &PathStatus) -> Table {
    let mut table = Table::new(&["FRAMES", ">A TO B", ">B TO A"], "no direction");
    let [forward, backward] = path.directions.as_slice() else {
        return table;
    };
    let mut row = |name: &str, of: &dyn Fn(&DirectionStatus) -> u64| {
        table.row([name.to_owned(), of(forward).to_string(), of(backward).to_string()]);
    };
    row("offered", &|direction| direction.offered);
    let mut reasons: Vec<&str> = path
        .directions
        .iter()
        .flat_map(|direction| direction.drops.iter().map(|drop| drop.reason.as_str()))
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    for reason in reasons {
        row(&format!("  dropped: {reason}"), &|direction| {
            let drops = direction.drops.iter().filter(|drop| drop.reason == reason);
            drops.map(|drop| drop.frames).sum()
        });
    }
    if path
        .directions
        .iter()
        .any(|direction| direction.icmp_errors_sent > 0)
    {
        row("  answered by ICMP", &|direction| direction.icmp_errors_sent);
        row("  not answered: rate limit", &|direction| {
            direction.icmp_errors_rate_limited
        });
    }
    row("  duplicated", &|direction| direction.duplicated);
    row("  reordered", &|direction| direction.reordered);
    row("  corrupted", &|direction| direction.corrupted);
    row("in flight", &|direction| direction.in_flight);
    row("released", &|direction| direction.released);
    row("  late (> 1 ms)", &|direction| direction.late);
    table
}

/// Returns the requested delays, the realised delays, and the lateness of frames.
fn delays(path: &PathStatus) -> Table {
    let headings = ["DELAY, ms", ">MEAN", ">P50", ">P90", ">P99", ">P99.9", ">MAX"];
    let mut table = Table::new(&headings, "no direction");
    let ms = |us: f64| format!("{:.3}", us / 1000.0);
    for direction in &path.directions {
        let rows: [(&str, Delay); 3] = [
            ("asked", direction.delay_asked),
            ("realised", direction.delay_given),
            ("left later by", direction.lateness),
        ];
        for (name, delay) in rows {
            table.row([
                format!("{} {name}", direction.direction),
                ms(delay.mean_us),
                ms(delay.p50_us),
                ms(delay.p90_us),
                ms(delay.p99_us),
                ms(delay.p999_us),
                ms(delay.max_us),
            ]);
        }
    }
    table
}

/// Prints a table of rates at each interval.
fn watch(session: &Session, of: &WanName, interval: Duration, count: Option<u32>) -> Result<()> {
    let (mut before, mut at) = (paths(session, of)?, Instant::now());
    let mut left = count;
    while left != Some(0) {
        std::thread::sleep(interval);
        let (now, then) = (paths(session, of)?, std::mem::replace(&mut at, Instant::now()));
        if session.json() {
            say(&(serde_json::to_string(&now)? + "\n"))?;
        } else {
            say(&format!("{}\n", rates(&before, &now, (at - then).as_secs_f64())))?;
        }
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// Returns the rates between two readings, and the median of the delay of all frames since the start.
fn rates(before: &[PathStatus], now: &[PathStatus], seconds: f64) -> Table {
    let headings = [
        "PATH",
        "DIRECTION",
        ">OFFERED/S",
        ">DROPS/S",
        ">RELEASED/S",
        ">BITS/S",
        ">IN FLIGHT",
        ">LATE/S",
        ">P50 SINCE START, ms",
    ];
    let mut table = Table::new(&headings, "no path");
    for path in now {
        for direction in &path.directions {
            let earlier = before
                .iter()
                .find(|other| other.name == path.name)
                .and_then(|other| {
                    other
                        .directions
                        .iter()
                        .find(|other| other.direction == direction.direction)
                });
            let rate = |of: &dyn Fn(&DirectionStatus) -> u64| {
                let then = earlier.map_or(0, of);
                of(direction).saturating_sub(then) as f64 / seconds
            };
            table.row([
                path.name.clone(),
                direction.direction.clone(),
                short(rate(&|direction| direction.offered)),
                short(rate(&DirectionStatus::dropped)),
                short(rate(&|direction| direction.released)),
                bps(8.0 * rate(&|direction| direction.released_bytes)),
                direction.in_flight.to_string(),
                short(rate(&|direction| direction.late)),
                format!("{:.3}", direction.delay_given.p50_us / 1000.0),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use millrace_wan_emulator::{DirectionId, NoSources, Plan, Seed, heap_memory};

    use super::*;

    fn path() -> PathStatus {
        let json =
            serde_json::json!({"name": "eth1+eth2", "ends": ["eth1", "eth2"], "seed": 1, "directions": []});
        let mut path: PathStatus = serde_json::from_value(json).unwrap();
        let config = millrace_wan_control::Settings {
            both: vec![
                ("delay".to_owned(), "20ms".to_owned()),
                ("jitter".to_owned(), "5ms,normal".to_owned()),
            ],
            memory: Some("4MiB".to_owned()),
            ..millrace_wan_control::Settings::default()
        };
        for (name, config) in ["a_to_b", "b_to_a"].into_iter().zip(config.directions().unwrap()) {
            let plan = Plan::new(&config, Seed::new(1), DirectionId::Forward, &NoSources).unwrap();
            let memory = heap_memory(plan.memory_size());
            let halves = plan.start(memory, millrace_types::Time::ZERO).unwrap();
            let status = DirectionStatus::new(name, &config, &halves.controller.stats(), &[]);
            path.directions.push(status);
        }
        path
    }

    #[test]
    fn show_has_asked_and_realised_delays_side_by_side_and_warns() {
        let mut path = path();
        path.directions[0].offered = 10;
        path.interfaces.push(millrace_wan_control::InterfaceStatus {
            device: "eth2".to_owned(),
            link_up: false,
            rx_missed: 0,
            rx_errors: 0,
            tx_refused: 0,
            tx_errors: 0,
        });
        path.directions[0].drops = vec![millrace_wan_control::DropCount {
            reason: "loss_bernoulli".to_owned(),
            frames: 3,
        }];
        let page = text(&path);
        assert!(
            page.starts_with("eth1+eth2: eth1 (a), eth2 (b), seed 1\n"),
            "{page}"
        );
        for part in [
            "a_to_b asked",
            "a_to_b realised",
            "left later by",
            "dropped: loss_bernoulli",
            "warning: a_to_b: ",
            "warning: eth2: the link is down",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn a_change_of_a_configured_path_ends_its_scenario() {
        let other = serde_json::json!({"name": "leo", "scenario": "/etc/leo.txt"});
        let mut json = serde_json::json!({"wan": [
            {"name": "geo", "scenario": "/etc/geo.txt", "path": {"delay": "250ms"}, "a_to_b": {"loss": "1%"}},
            other,
        ]});
        let change = Change {
            both: vec![("loss".to_owned(), "none".to_owned())],
            ..Change::default()
        };
        change_configured(&mut json, "geo", &change).unwrap();
        let geo =
            serde_json::json!({"name": "geo", "path": {"delay": "250ms", "loss": "none"}, "a_to_b": {}});
        assert_eq!(json, serde_json::json!({"wan": [geo, other]}));
        let error = change_configured(&mut json, "moon", &change).unwrap_err();
        assert!(error.to_string().contains("moon is not configured"), "{error}");
    }

    #[test]
    fn rates_are_differences_over_the_time_between_two_readings() {
        let (before, mut now) = (path(), path());
        now.directions[1].offered = 500;
        let table = rates(&[before], &[now], 0.5).to_string();
        assert!(
            table.lines().nth(2).is_some_and(|line| line.contains("1.00 k")),
            "{table}"
        );
    }
}
