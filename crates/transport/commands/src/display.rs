//! The parts that both commands share: the identity, and progress as lines, on a terminal, or as JSON.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_courier::identity::Identity;
use millrace_courier::{Event, Interrupts, KeyLog, Outcome, Session as Transfer};

use crate::error::CommandError;

/// The result of a part of a command.
pub(crate) type Result<T> = std::result::Result<T, CommandError>;

/// The least time between two progress lines of a peer if standard error is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
const PEER_WIDTH: usize = 21;
/// The number of pending bytes at which they are written to standard output.
const PENDING_MAX: usize = 64 << 10;

/// Returns the directory of this user's configuration.
pub(crate) fn config_directory() -> Result<PathBuf> {
    millrace_courier::target::config_directory().ok_or(CommandError::NoHome)
}

/// Returns the identity in a file; without a file, that of this user.
pub(crate) fn identity(path: Option<&Path>) -> Result<Identity> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => config_directory()?.join("identity"),
    };
    Ok(Identity::load_or_create(&path)?)
}

/// Opens the key log that the user names.
pub(crate) fn key_log(path: Option<&Path>) -> Result<Option<KeyLog>> {
    let opened = path.map(|path| {
        KeyLog::open(path).map_err(|error| CommandError::List {
            path: path.to_owned(),
            error,
        })
    });
    opened.transpose()
}

/// Writes to standard output and flushes it.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Shows the events of a transfer until it ends, and ends it when the user interrupts it; returns its outcomes.
pub(crate) fn watch(transfer: Transfer, stop: Interrupts, display: &mut Display) -> Result<Vec<Outcome>> {
    stop.cancel(transfer.handle());
    while let Some(first) = transfer.events().next() {
        // Events that wait are written together: a set of small files has many.
        let waiting = std::iter::from_fn(|| transfer.poll_event());
        for event in std::iter::once(first).chain(waiting) {
            display.show(&event);
        }
        display.flush();
    }
    Ok(transfer.join()?)
}

/// Shows events.
pub(crate) struct Display {
    json: bool,
    terminal: bool,
    /// The line of each peer, and the time at which it was last printed.
    lines: BTreeMap<String, (String, Option<Instant>)>,
    drawn: usize,
    /// Text that is not written to standard output yet.
    pending: String,
    failed: Option<CommandError>,
}

impl Display {
    pub(crate) fn new(json: bool) -> Display {
        Display {
            json,
            terminal: !json && std::io::stderr().is_terminal(),
            lines: BTreeMap::new(),
            drawn: 0,
            pending: String::new(),
            failed: None,
        }
    }

    /// Shows an event: JSON on standard output, text on standard error.
    pub(crate) fn show(&mut self, event: &Event) {
        let result = if self.json {
            serde_json::to_string(event)
                .map_err(Into::into)
                .and_then(|line| self.write(&(line + "\n")))
        } else {
            self.text(event)
        };
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }

    /// Appends to the pending text, and writes it to standard output if it has [`PENDING_MAX`] bytes.
    fn write(&mut self, text: &str) -> Result<()> {
        self.pending.push_str(text);
        if self.pending.len() < PENDING_MAX {
            return Ok(());
        }
        say(&std::mem::take(&mut self.pending))
    }

    /// Writes what was shown to standard output.
    pub(crate) fn flush(&mut self) {
        if !self.pending.is_empty()
            && let Err(error) = say(&std::mem::take(&mut self.pending))
        {
            self.failed.get_or_insert(error);
        }
    }

    /// Ends the display.
    ///
    /// # Errors
    /// If standard output failed.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush();
        self.failed.map_or(Ok(()), Err)
    }

    fn text(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Listening { ticket, key, address } => {
                self.line(&format!("listening at {address} as {key}; on the other machine:"));
                say(&format!("millrace send SOURCE {ticket}\n"))?;
            }
            Event::Accepted { peer, bytes, present } => {
                let kept = if *present > 0 {
                    format!(", {} of them are there", size(*present))
                } else {
                    String::new()
                };
                self.line(&format!("{}: accepted, {}{kept}", short(peer), size(*bytes)));
            }
            Event::Progress { peer, .. } => {
                let line = progress_line(event);
                let now = Instant::now();
                let (text, printed) = self.lines.entry(peer.clone()).or_default();
                *text = line;
                if self.terminal {
                    self.draw();
                } else if printed.is_none_or(|at| now.duration_since(at) >= LINE_INTERVAL) {
                    *printed = Some(now);
                    let text = text.clone();
                    self.line(&text);
                }
            }
            Event::Lost { peer, reason } => {
                self.lines.remove(peer);
                self.line(&format!("{}: lost, waiting for it: {reason}", short(peer)));
            }
            Event::Stalled { peer, seconds } => {
                self.line(&format!("{}: no progress for {seconds} s", short(peer)));
            }
            Event::HeavyLoss { peer, loss } => {
                self.line(&format!(
                    "{}: the path lost {:.0} % of the packets; the rate stays low until less than half are lost",
                    short(peer),
                    loss * 100.0
                ));
            }
            Event::File {
                peer,
                problem: Some(problem),
                ..
            } => {
                let what = if peer == "source" {
                    "not sent"
                } else {
                    "not in place"
                };
                self.line(&format!("{what}: {problem}"));
            }
            Event::Notice { peer, text } => self.line(&format!("{}: {text}", short(peer))),
            Event::File { .. } | Event::Summary { .. } => {}
            Event::Done {
                peer,
                outcome,
                bytes,
                sent,
                seconds,
            } => {
                self.lines.remove(peer);
                let text = match outcome {
                    Outcome::Delivered => {
                        let sent = sent.map_or_else(String::new, |sent| format!(" ({} sent)", size(sent)));
                        format!("delivered and verified, {} in {seconds:.1} s{sent}", size(*bytes))
                    }
                    Outcome::Refused { reason, .. } => format!("refused: {reason}"),
                    Outcome::Integrity { reason } => format!("not everything: {reason}"),
                    Outcome::Resumable { reason } => format!("not complete: {reason}"),
                };
                self.line(&format!("{}: {text}", short(peer)));
            }
        }
        Ok(())
    }

    /// Prints a permanent line above the progress lines.
    fn line(&mut self, text: &str) {
        let mut out = self.erase();
        out += text;
        out.push('\n');
        self.put(&out);
        if self.terminal {
            self.draw();
        }
    }

    fn draw(&mut self) {
        let mut out = self.erase();
        // A line that takes two rows would not be erased. A terminal that does not report its width cuts lines off (DECAWM of the
        // VT100), and shows their last character in its last column.
        out += "\x1b[?7l";
        let columns = rustix::termios::tcgetwinsize(std::io::stderr())
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|columns| *columns > 0);
        for (line, _) in self.lines.values() {
            out += &row(line, columns);
        }
        out += "\x1b[?7h";
        self.drawn = self.lines.len();
        self.put(&out);
    }

    /// Returns the control sequence that moves the cursor to the first progress line and clears from there
    /// (ECMA-48: CUU, ED).
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        }
    }

    fn put(&mut self, text: &str) {
        // A closed standard error is no reason to end a transfer.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

/// Returns a line for a terminal of a width, with its end. One character more would take a second row.
fn row(line: &str, columns: Option<usize>) -> String {
    let cut: String = line.chars().take(columns.unwrap_or(usize::MAX)).collect();
    cut + "\n"
}

fn progress_line(event: &Event) -> String {
    let Event::Progress {
        peer,
        verified,
        bytes,
        rate_bps,
        eta_s,
        rtt_ms,
        loss,
        limit,
        ..
    } = event
    else {
        return String::new();
    };
    let share = if *bytes == 0 {
        100.0
    } else {
        *verified as f64 * 100.0 / *bytes as f64
    };
    let eta = eta_s.map_or_else(
        || "-".to_owned(),
        |seconds| format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60),
    );
    let mbps = *rate_bps as f64 / 1e6;
    format!(
        "{:<PEER_WIDTH$} {share:5.1} %  {mbps:8.1} Mbit/s  ETA {eta}  RTT {rtt_ms:.1} ms  loss {:.2} %  limit: {}",
        short(peer),
        loss * 100.0,
        limit.name()
    )
}

/// Returns the name of a peer, shortened if it is long.
fn short(peer: &str) -> String {
    if peer.chars().count() <= PEER_WIDTH {
        return peer.to_owned();
    }
    peer.chars().take(PEER_WIDTH - 1).chain(['…']).collect()
}

/// Returns a number of bytes as text with a binary unit.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1_024.0 && unit + 1 < units.len() {
        value /= 1_024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} bytes")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_courier::Limit;

    #[test]
    fn a_line_as_long_as_the_terminal_is_wide_is_whole_and_a_longer_one_is_cut_at_its_width() {
        let line = "ä".repeat(80);
        assert_eq!(row(&line, Some(80)), format!("{line}\n"));
        assert_eq!(row(&format!("{line}b"), Some(80)), format!("{line}\n"));
        assert_eq!(row(&format!("{line}b"), None), format!("{line}b\n"));
    }

    #[test]
    fn a_progress_line_has_share_rate_eta_rtt_loss_and_limit() {
        let line = progress_line(&Event::Progress {
            peer: "mr1abcdefghijklmnopqrstuvwxyz".into(),
            verified: 250 << 20,
            bytes: 1_000 << 20,
            rate_bps: 941_500_000,
            eta_s: Some(3_725),
            rtt_ms: 50.04,
            loss: 0.0101,
            limit: Limit::PeerDisk,
            mtu: Some(9_000),
        });
        assert_eq!(
            line,
            "mr1abcdefghijklmnopq…  25.0 %     941.5 Mbit/s  ETA 1:02:05  RTT 50.0 ms  loss 1.01 %  limit: peer's disk"
        );
        assert_eq!(
            [size(12), size(1 << 20), size(1_536 << 20)],
            ["12 bytes", "1.0 MiB", "1.5 GiB"]
        );
    }
}
