//! `millrace send`: files and directories to receivers.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use millrace_courier::files::{Requests, Source};
use millrace_courier::identity::PublicKey;
use millrace_courier::io::via::Via;
use millrace_courier::local::{LocalSource, ScanOptions};
use millrace_courier::target::{SCHEME, TargetError, known_receivers, parse, remember};
use millrace_courier::ticket::{PREFIX, Ticket};
use millrace_courier::{
    EXIT_INTEGRITY, EXIT_REFUSED, Event, Interrupts, Outcome, SendOptions, Session as Transfer, Target,
    exit_status,
};
use millrace_types::shell::quoted;
use parking_lot::Mutex;

use crate::args::{Commit, OnChange, Send};
use crate::device::{OpenDpdk, open};
use crate::display::{Display, Result, identity, key_log, say, size, watch};
use crate::error::CommandError;
use crate::remote::{self, Remote};

/// The reason of a refusal, for a line of a list that names no receiver.
const NO_TARGET: &str = "target";
/// The option that names a list of targets.
const LIST_OPTION: &str = "--targets-from";
/// Characters of the shortest ticket.
const TICKET_MIN: usize = 90;

/// Sends files; returns the exit status. `json`: events are printed as JSON; `open_dpdk`: opens DPDK devices.
///
/// # Errors
/// If the transfer cannot begin, or cannot continue with any target.
pub fn send(json: bool, args: &Send, open_dpdk: OpenDpdk<'_>) -> Result<ExitCode> {
    // A dry run needs no target.
    let (mut sources, words) = split(
        &args.words,
        args.files_from.is_none(),
        args.targets_from.is_none() && !args.dry_run,
    )?;
    if sources.iter().any(|source| source == Path::new("-")) {
        return Err(CommandError::Stdin);
    }
    if let Some(path) = &args.files_from {
        sources.extend(listed_sources(path)?);
    }
    let known = known_receivers();
    let identity = identity(args.identity.as_deref())?;
    let stop = Interrupts::new().map_err(CommandError::Signals)?;
    let scan = ScanOptions {
        stop_on_change: match args.on_change {
            Some(on_change) => on_change == OnChange::Stop,
            None => args.commit == Commit::All,
        },
        preserve: args.preserve,
    };
    let source = LocalSource::scan(&sources, &scan)?;
    for (path, reason) in source.skipped() {
        let _ = writeln!(std::io::stderr(), "not sent: {path}: {reason}");
    }
    if args.dry_run {
        for problem in source.unreadable() {
            let _ = writeln!(std::io::stderr(), "not sent: {problem}");
        }
        let (files, bytes) = (source.files(), source.layout().bytes());
        let text = if json {
            format!("{}\n", serde_json::json!({ "files": files, "bytes": bytes }))
        } else {
            format!("{files} files, {}\n", size(bytes))
        };
        say(&text)?;
        return Ok(if source.unreadable().is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(EXIT_INTEGRITY)
        });
    }
    // Receivers that were started over ssh end with the transfer.
    let (mut targets, mut remotes) = (Vec::new(), Vec::new());
    for word in &words {
        match target(word, known.as_deref(), args, &stop, &mut remotes) {
            Ok(target) => targets.push(target),
            Err(error) => return Err(error),
        }
    }
    // The words of all targets, in the order of the outcomes.
    let all_words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let all_words = Arc::new(Mutex::new(all_words));
    let mut more = match &args.targets_from {
        Some(path) => Some(lines(path)?),
        None => None,
    };
    let wrong = WrongTargets::default();
    while targets.is_empty() {
        let Some(first) = more.as_mut().and_then(Iterator::next) else {
            return if wrong.count() > 0 {
                Ok(ExitCode::from(EXIT_REFUSED))
            } else {
                Err(CommandError::NoTarget)
            };
        };
        let first = String::from_utf8_lossy(&first?).into_owned();
        match target(first.trim(), known.as_deref(), args, &stop, &mut remotes) {
            Ok(target) => {
                targets.push(target);
                all_words.lock().push(first.trim().to_owned());
            }
            Err(CommandError::Target(error)) => wrong.add(&first, &error),
            Err(error) => return Err(error),
        }
    }
    let options = SendOptions {
        rate: args.rate,
        loss_tolerance: args.loss_tolerance.map(|percent| percent / 100.0),
        policy: args.policy,
        stragglers: args.stragglers,
        requests: Requests {
            delta: args.delta,
            all_at_once: args.commit == Commit::All,
        },
        silence: args.silence,
        patience: args.patience,
        key_log: key_log(args.key_log.as_deref())?,
    };
    let mut display = Display::new(json);
    let peers = targets.clone();
    let source = Box::new(source);
    let transfer = match &args.via {
        Some(via) => {
            let io = open(via, Via::dynamic_port()?, open_dpdk)?;
            Transfer::send_over(io, source, identity, targets, options)?
        }
        None => Transfer::send(source, identity, targets, options)?,
    };
    let unread = Arc::default();
    if let Some(more) = more {
        let (all_words, unread) = (Arc::clone(&all_words), Arc::clone(&unread));
        add_targets(&transfer, more, known.clone(), all_words, unread, wrong.clone());
    }
    let mut outcomes = watch(transfer, stop, &mut display)?;
    let delivered = |outcome: &Outcome| matches!(outcome, Outcome::Delivered);
    for (peer, outcome) in peers.iter().zip(&outcomes) {
        // The port of a receiver that was started for this transfer is free again.
        let is_lasting = !remotes.iter().any(|remote| remote.key() == peer.key);
        if let (true, true, Some(known)) = (delivered(outcome), is_lasting, &known) {
            note(known, peer);
        }
    }
    drop(remotes);
    // A line that names no receiver counts as one that got nothing.
    let no_target = || Outcome::Refused {
        code: NO_TARGET,
        reason: "the line names no receiver".into(),
    };
    outcomes.extend(std::iter::repeat_with(no_target).take(wrong.count()));
    display.show(&Event::Summary {
        delivered: outcomes.iter().filter(|outcome| delivered(outcome)).count(),
        peers: outcomes.len(),
    });
    display.finish()?;
    let resumable = |outcome: &Outcome| matches!(outcome, Outcome::Resumable { .. });
    if outcomes.iter().any(resumable) && !json {
        let all_words = all_words.lock().clone();
        let left = all_words
            .iter()
            .zip(&outcomes)
            .filter(|(_, outcome)| resumable(outcome));
        let left: Vec<&str> = left.map(|(word, _)| &**word).collect();
        let command = command_for(std::env::args().skip(1), &all_words, &left);
        let command: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        let _ = writeln!(
            std::io::stderr(),
            "to go on, run it again: {} {}",
            program(),
            command.join(" ")
        );
        for word in &left {
            if let Ok(ticket) = word.parse::<Ticket>()
                && ticket.is_expired(SystemTime::now())
            {
                let _ = writeln!(
                    std::io::stderr(),
                    "(by this machine's clock the ticket {}… has expired; if its transfer had not begun, start `millrace receive` again \
                     for a new one)",
                    &word[..12.min(word.len())]
                );
            }
        }
        if left.iter().any(|word| is_ticket(word)) {
            let _ = writeln!(
                std::io::stderr(),
                "(a receiver that has ended, such as one with --once, is started again first; it takes the same ticket)"
            );
        }
    }
    // After an error in the list of targets, its later receivers were not added.
    if let Some(error) = unread.lock().take() {
        return Err(error);
    }
    Ok(ExitCode::from(exit_status(&outcomes)))
}

/// Returns the command line that goes on for the targets `left`: `given` without the words of the other targets, and without the list
/// from which further ones came.
fn command_for(given: impl Iterator<Item = String>, all: &[String], left: &[&str]) -> Vec<String> {
    let (mut command, mut is_list) = (Vec::new(), false);
    for word in given {
        let is_done = all.contains(&word) && !left.contains(&&*word);
        let is_option = word == LIST_OPTION;
        if !(is_done || is_option || is_list || word.starts_with(&format!("{LIST_OPTION}="))) {
            command.push(word);
        }
        is_list = is_option;
    }
    let listed = left
        .iter()
        .filter(|word| !command.iter().any(|given| given == *word));
    let listed: Vec<String> = listed.map(|word| (*word).to_owned()).collect();
    command.extend(listed);
    command
}

/// Stores the key of a receiver that has everything. Errors are ignored: the transfer is complete even if the key cannot be stored.
fn note(known: &Path, peer: &Target) {
    for address in remember(known, peer).unwrap_or_default() {
        let _ = writeln!(
            std::io::stderr(),
            "the ticket of {} names {address}, for which {} has another key; the stored key stays",
            peer.name,
            known.display()
        );
    }
}

/// Returns the lines of a file, or of standard input, without those that are empty. The name of a file need not be UTF-8.
fn lines(path: &Path) -> Result<impl Iterator<Item = Result<Vec<u8>>> + std::marker::Send + use<>> {
    let list = path.to_owned();
    let failed = move |error| CommandError::List {
        path: list.clone(),
        error,
    };
    let input: Box<dyn Read + std::marker::Send> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(fs::File::open(path).map_err(&failed)?)
    };
    let lines = BufReader::new(input).split(b'\n').map(move |line| {
        let mut line = line.map_err(&failed)?;
        line.pop_if(|byte| *byte == b'\r');
        Ok(line)
    });
    Ok(lines.filter(|line| line.as_ref().map_or(true, |line| !line.is_empty())))
}

/// Returns the sources in a file, or in standard input, one a line.
fn listed_sources(path: &Path) -> Result<Vec<PathBuf>> {
    let paths = lines(path)?.map(|line| Ok(PathBuf::from(OsString::from_vec(line?))));
    paths.collect()
}

/// The number of lines of a list that name no receiver: a wrong or expired ticket, or an unknown one.
#[derive(Clone, Debug, Default)]
struct WrongTargets(Arc<AtomicUsize>);

impl WrongTargets {
    /// Reports a line and counts it.
    fn add(&self, line: &str, error: &TargetError) {
        let _ = writeln!(std::io::stderr(), "not a target: {line}: {error}");
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Adds receivers to a transfer when their tickets or addresses arrive. `unread`: the error that ends the
/// list; `wrong`: lines that name no receiver.
fn add_targets(
    transfer: &Transfer,
    more: impl Iterator<Item = Result<Vec<u8>>> + std::marker::Send + 'static,
    known: Option<PathBuf>,
    words: Arc<Mutex<Vec<String>>>,
    unread: Arc<Mutex<Option<CommandError>>>,
    wrong: WrongTargets,
) {
    let handle = transfer.handle();
    // The thread ends after the last line, or with the process.
    std::thread::spawn(move || {
        for line in more {
            let line = match line {
                Ok(line) => String::from_utf8_lossy(&line).into_owned(),
                Err(error) => {
                    *unread.lock() = Some(error);
                    return;
                }
            };
            match parse(line.trim(), known.as_deref()) {
                Ok(target) => {
                    words.lock().push(line.trim().to_owned());
                    handle.add_target(target);
                }
                Err(error) => wrong.add(&line, &error),
            }
        }
    });
}

/// Returns the name by which the program was started.
fn program() -> String {
    let path = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    quoted(&name.to_string_lossy())
}

/// Returns true for a ticket, a path of a daemon, HOST:DIRECTORY, KEY@HOST:PORT and HOST:PORT. As with scp, a slash before the
/// colon makes a word a path.
fn is_target(word: &str) -> bool {
    let is_url = word.starts_with(SCHEME);
    is_url || is_ticket(word) || is_address(word) || remote::parse(word).is_some()
}

fn is_ticket(word: &str) -> bool {
    word.starts_with(PREFIX) && word.len() >= TICKET_MIN && !word.contains(['/', '.'])
}

/// Returns true for KEY@HOST, and for HOST:PORT with or without KEY@.
fn is_address(word: &str) -> bool {
    let has_key = |(key, host): (&str, &str)| key.parse::<PublicKey>().is_ok() && !host.is_empty();
    if word.split_once('@').is_some_and(has_key) {
        return true;
    }
    word.rsplit_once(':')
        .is_some_and(|(host, port)| !host.contains('/') && !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Splits the words into sources and targets.
fn split(words: &[String], need_source: bool, need_target: bool) -> Result<(Vec<PathBuf>, Vec<&str>)> {
    let first = words
        .iter()
        .position(|word| is_target(word))
        .unwrap_or(words.len());
    let (sources, targets) = words.split_at(first);
    if targets.is_empty() {
        let is_cut = |word: &&String| word.starts_with(PREFIX) && !Path::new(word).exists();
        if let Some(word) = sources.iter().find(is_cut) {
            return Err(CommandError::CutTicket {
                word: word.clone(),
                given: word.len(),
                least: TICKET_MIN,
            });
        }
        if need_target {
            return Err(CommandError::NoTarget);
        }
    }
    if sources.is_empty() && need_source {
        return Err(CommandError::NoSource);
    }
    if let Some(path) = targets.iter().find(|word| !is_target(word)) {
        return Err(CommandError::SourceAfterTarget { word: path.clone() });
    }
    Ok((
        sources.iter().map(PathBuf::from).collect(),
        targets.iter().map(String::as_str).collect(),
    ))
}

/// Returns the target of a word; a receiver that has to be started joins `remotes`.
fn target(
    text: &str,
    known: Option<&Path>,
    args: &Send,
    stop: &Interrupts,
    remotes: &mut Vec<Remote>,
) -> Result<Target> {
    match remote::parse(text) {
        Some(place) if !is_address(text) && !text.starts_with(SCHEME) => {
            let (remote, target) = Remote::start(&place, args, stop)?;
            remotes.push(remote);
            Ok(target)
        }
        _ => Ok(parse(text, known)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn sources_end_where_targets_begin() {
        let given = words("data/ ./a:80 mr1.iso host:7800 key@[::1]:7800 user@site:/in site:");
        let (sources, targets) = split(&given, true, true).unwrap();
        assert_eq!(sources, ["data/", "./a:80", "mr1.iso"].map(PathBuf::from));
        assert_eq!(targets, ["host:7800", "key@[::1]:7800", "user@site:/in", "site:"]);
        for wrong in ["a b", "host:1 host:2", "a host:1 b"] {
            assert!(split(&words(wrong), true, true).is_err(), "{wrong}");
        }
        let counted = words("data/");
        assert_eq!(split(&counted, true, false).unwrap().0, [PathBuf::from("data/")]);
        let cut = split(&words("data mr1abcdefgh"), true, true).unwrap_err();
        assert!(cut.to_string().contains("has 11 characters"), "{cut}");
    }

    #[test]
    fn a_list_is_read_to_its_end_and_an_error_ends_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("list");
        fs::write(&list, b"a\n\xff\n\nb\r\nlast").unwrap();
        let names = [
            "a".into(),
            OsString::from_vec(vec![0xff]),
            "b".into(),
            "last".into(),
        ];
        assert_eq!(listed_sources(&list).unwrap(), names.map(PathBuf::from));
        // A directory can be opened, but not read.
        let error = listed_sources(dir.path()).unwrap_err();
        assert!(
            matches!(&error, CommandError::List { path, .. } if path == dir.path()),
            "{error}"
        );
    }

    #[test]
    fn the_command_that_goes_on_names_only_receivers_that_lack_something() {
        let given = |text: &str| words(text).into_iter();
        let all = words("done:1 left:1 done:2 left:2");
        let command = |text: &str| command_for(given(text), &all, &["left:1", "left:2"]).join(" ");
        assert_eq!(
            command("send data/ done:1 left:1 --rate 1Gbps --targets-from list"),
            "send data/ left:1 --rate 1Gbps left:2"
        );
        assert_eq!(
            command("send --targets-from=- data/ done:1 left:1 done:2 left:2"),
            "send data/ left:1 left:2"
        );
    }

    #[test]
    fn the_command_that_goes_on_can_be_pasted() {
        assert_eq!(
            ["a b", "it's", "x/y", ""].map(quoted),
            ["'a b'", r"'it'\''s'", "x/y", "''"]
        );
    }
}
