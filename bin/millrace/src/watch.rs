//! `millrace watch`: live rates. On a terminal the screen is redrawn with each reading, until `q`; otherwise the
//! tables follow each other.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use millrace_api::client::Client;
use millrace_api::view::{Counters, Drop, Port, Rates, Worker};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde::Serialize;

use crate::bridges::bridge_names;
use crate::cli::{BridgeSelection, Watch};
use crate::human::{bps, port, short};
use crate::output::{Session, say};
use crate::show::{dropped, workers};
use crate::table::Table;

/// A reading of all ports, workers and drop reasons.
#[derive(Serialize)]
struct Reading {
    ports: Vec<Port>,
    workers: Vec<Worker>,
    /// Drop reasons that occurred since the previous reading.
    drops: Vec<Drop>,
}

/// Computes rates from two readings.
struct Watcher {
    at: Option<Instant>,
    ports: HashMap<(String, String), (Counters, Counters)>,
    drops: HashMap<(Option<String>, String), u64>,
}

impl Watcher {
    fn read(&mut self, client: &Client, of: &BridgeSelection) -> Result<Reading> {
        let mut ports = Vec::new();
        for bridge in bridge_names(client, of)? {
            ports.extend(client.ports(&bridge)?);
        }
        let now = Instant::now();
        let seconds = self
            .at
            .replace(now)
            .map(|before| now.duration_since(before).as_secs_f64());
        for port in &mut ports {
            let key = (port.bridge.clone(), port.name.clone());
            let before = self.ports.insert(key, (port.rx, port.tx));
            // The first reading has the rates that the daemon measured.
            if let (Some((rx, tx)), Some(seconds)) = (before, seconds.filter(|seconds| *seconds > 0.0)) {
                port.rates = Some(rates(seconds, (rx, tx), (port.rx, port.tx)));
            }
        }
        let mut drops = client.drops()?;
        drops.retain_mut(|drop| {
            let key = (drop.bridge.clone(), drop.reason.clone());
            let before = self.drops.insert(key, drop.packets);
            drop.packets = before.map_or(0, |before| drop.packets.saturating_sub(before));
            drop.packets > 0
        });
        Ok(Reading {
            ports,
            workers: client.workers()?,
            drops,
        })
    }
}

fn rates(seconds: f64, old: (Counters, Counters), new: (Counters, Counters)) -> Rates {
    let per_second = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds;
    Rates {
        rx_pps: per_second(new.0.packets, old.0.packets),
        rx_bps: 8.0 * per_second(new.0.bytes, old.0.bytes),
        tx_pps: per_second(new.1.packets, old.1.packets),
        tx_bps: 8.0 * per_second(new.1.bytes, old.1.bytes),
        drop_pps: per_second(new.0.drops + new.1.drops, old.0.drops + old.1.drops),
    }
}

impl Reading {
    fn text(&self) -> String {
        let headings = [
            "BRIDGE", ">NO", "PORT", ">RX PPS", ">RX", ">TX PPS", ">TX", ">DROPS/S",
        ];
        let mut table = Table::new(&headings, "no port");
        for given in &self.ports {
            let rates = given.rates.unwrap_or_default();
            table.row([
                given.bridge.clone(),
                port(given.number),
                given.name.clone(),
                short(rates.rx_pps),
                bps(rates.rx_bps),
                short(rates.tx_pps),
                bps(rates.tx_bps),
                short(rates.drop_pps),
            ]);
        }
        let drops = if self.drops.is_empty() {
            String::new()
        } else {
            format!("\n{}", dropped(&self.drops))
        };
        format!("{table}\n{}{drops}", workers(&self.workers))
    }
}

pub(crate) fn run(session: &Session, args: &Watch) -> Result<()> {
    let interval = args.interval;
    let client = session.client()?;
    let mut watcher = Watcher {
        at: None,
        ports: HashMap::new(),
        drops: HashMap::new(),
    };
    // The first reading fails if the daemon does not respond, before the terminal mode changes.
    let mut reading = watcher.read(client, &args.of)?;
    let screen = if session.json() || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        None
    } else {
        Some(Screen::take()?)
    };
    let mut readings = 1;
    loop {
        match &screen {
            Some(screen) => screen.draw(&format!(
                "{}  every {} s, q ends\n\n{}",
                session.api(),
                interval.as_secs_f64(),
                reading.text()
            ))?,
            None if session.json() => say(&(serde_json::to_string(&reading)? + "\n"))?,
            None => say(&(reading.text() + "\n"))?,
        }
        if args.count.is_some_and(|count| readings >= count) {
            return Ok(());
        }
        let ended = match &screen {
            Some(screen) => screen.waits_for_quit(interval)?,
            None => {
                std::thread::sleep(interval);
                false
            }
        };
        if ended {
            return Ok(());
        }
        reading = watcher.read(client, &args.of)?;
        readings += 1;
    }
}

/// The terminal; its mode is restored on drop.
struct Screen {
    before: Termios,
}

impl Screen {
    fn take() -> Result<Screen> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        // Raw mode without echo; Ctrl-C is read as a key, so that the mode can be restored.
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let screen = Screen { before };
        // The alternate screen buffer, without a cursor.
        say("\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }

    /// Draws as much of the text as fits.
    fn draw(&self, text: &str) -> Result<()> {
        // A terminal of unknown size has zero rows and columns.
        let known = |cells: u16, usual: usize| if cells == 0 { usual } else { usize::from(cells) };
        let size = tcgetwinsize(io::stdout()).ok();
        let (rows, columns) = size.map_or((24, 80), |size| (known(size.ws_row, 24), known(size.ws_col, 80)));
        let mut frame = "\x1b[H".to_owned();
        for line in text.lines().take(rows.max(2) - 1) {
            frame.extend(line.chars().take(columns));
            // Erases the rest of the line.
            frame += "\x1b[K\r\n";
        }
        frame += "\x1b[J";
        say(&frame)
    }

    /// Returns true if a key that ends the program is pressed within `interval`.
    fn waits_for_quit(&self, interval: Duration) -> Result<bool> {
        let deadline = Instant::now() + interval;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let stdin = io::stdin();
            let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
            if poll(&mut waiting, Some(&timeout))? == 0 {
                return Ok(false);
            }
            let mut key = [0];
            // End of input, Ctrl-C, Ctrl-D, Escape, q.
            if stdin.lock().read(&mut key)? == 0 || matches!(key[0], 3 | 4 | 27 | b'q' | b'Q') {
                return Ok(true);
            }
        }
    }
}

impl std::ops::Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is closed, there is no mode to restore.
        let _ = io::stdout().write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = io::stdout().flush();
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
