//! Measures how many route messages a second are decoded on one core, and how long after `ip -batch` its routes are events.
//!
//! ```text
//! cargo build --release -p millrace-netlink --example netlink_rates
//! scripts/apart.sh target/release/examples/netlink_rates            # creates a namespace of its own
//! ```

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fmt::Write;
use std::hint::black_box;
use std::process::Command;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use millrace_netlink::translate::{Origin, Translator};
use millrace_netlink::wire::Messages;
use millrace_netlink::{Kernel, Namespace, Settings};
use millrace_rib::event::{Change, Dump, Object};
use millrace_rib::{Action, Event, Netns};

type Outcome<T> = Result<T, Box<dyn Error>>;

const MESSAGES: usize = 1_000_000;
const ROUNDS: usize = 5;
const ROUTES: usize = 100_000;
const NETNS: Netns = Netns(1);
const BOUND: Duration = Duration::from_secs(60);

fn main() -> Outcome<()> {
    let hop = |gateway: u8| {
        let mut bytes = [16_u16.to_ne_bytes(), [0, 1]].concat();
        bytes.extend(3_u32.to_ne_bytes());
        bytes.extend(attribute(5, &[10, 0, 0, gateway]));
        bytes
    };
    let cases = [
        (
            "IPv4 by nexthop object",
            2,
            24,
            attribute(30, &7_u32.to_ne_bytes()),
        ),
        (
            "IPv4 by gateway",
            2,
            24,
            [attribute(5, &[10, 0, 0, 2]), attribute(4, &3_u32.to_ne_bytes())].concat(),
        ),
        (
            "IPv6 by nexthop object",
            10,
            48,
            attribute(30, &7_u32.to_ne_bytes()),
        ),
        (
            "IPv4, 8 weighted next hops",
            2,
            24,
            attribute(9, &(2..10).flat_map(hop).collect::<Vec<u8>>()),
        ),
    ];
    for (name, family, len, more) in cases {
        decoding(name, family, len, &more)?;
    }
    of_the_kernel()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns messages of different prefixes, as the kernel writes them: table, prefix, priority, next hops.
fn messages(family: u8, len: u8, more: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..MESSAGES as u32 {
        let start = bytes.len();
        bytes.extend([0; 4]);
        bytes.extend(24_u16.to_ne_bytes());
        bytes.extend(0x500_u16.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend([family, len, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0]);
        bytes.extend(attribute(15, &254_u32.to_ne_bytes()));
        let prefix = (number + (1 << 20)) << 8;
        if family == 2 {
            bytes.extend(attribute(1, &prefix.to_be_bytes()));
        } else {
            bytes.extend(attribute(
                1,
                &(u128::from(prefix >> 8) << 80 | 0x2001 << 112).to_be_bytes(),
            ));
        }
        bytes.extend(attribute(6, &20_u32.to_ne_bytes()));
        bytes.extend(more);
        let size = (bytes.len() - start) as u32;
        if let Some(at) = bytes.get_mut(start..start + 4) {
            at.copy_from_slice(&size.to_ne_bytes());
        }
    }
    bytes
}

/// Prints the rates of decoding alone, and of decoding and translating to events.
fn decoding(name: &str, family: u8, len: u8, more: &[u8]) -> Outcome<()> {
    let bytes = messages(family, len, more);
    let mut rates = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for message in Messages::new(black_box(&bytes)) {
            black_box(message?.content()?);
        }
        rates.0.push(start.elapsed());
        let mut translator = Translator::default();
        let start = Instant::now();
        let mut count = 0;
        for message in Messages::new(black_box(&bytes)) {
            let change = translator.change(&message?, Origin::Notification)?;
            count += usize::from(black_box(change).is_some());
        }
        rates.1.push(start.elapsed());
        if count != MESSAGES {
            return Err(format!("{count} of {MESSAGES} messages were events").into());
        }
    }
    let rate = |times: &mut Vec<Duration>| {
        times.sort();
        MESSAGES as f64 / times.get(ROUNDS / 2).map_or(f64::NAN, Duration::as_secs_f64) / 1e6
    };
    println!(
        "{name}: {:.1} million messages/s decoded, {:.1} million/s as events (median of {ROUNDS})",
        rate(&mut rates.0),
        rate(&mut rates.1)
    );
    Ok(())
}

/// Prints how fast routes of `ip -batch` become events, and how fast a dump lists them.
fn of_the_kernel() -> Outcome<()> {
    let name = format!("mr-rates-{}", std::process::id());
    ip(&["netns", "add", &name])?;
    let outcome = in_namespace(&name);
    ip(&["netns", "del", &name])?;
    outcome
}

fn in_namespace(name: &str) -> Outcome<()> {
    let (sender, events) = sync_channel(64);
    let kernel = Kernel::open(NETNS, &Namespace::named(name), Settings::default(), sender)?;
    let file = std::env::temp_dir().join(name);
    let lines = (0..ROUTES).fold(String::new(), |mut lines, number| {
        let _written = writeln!(
            lines,
            "route add blackhole {}.{}.{}.0/24",
            20 + (number >> 16),
            (number >> 8) & 255,
            number & 255
        );
        lines
    });
    std::fs::write(&file, lines)?;
    let start = Instant::now();
    let mut batch = Command::new("ip")
        .args(["-n", name, "-batch"])
        .arg(&file)
        .spawn()?;
    let waiter = std::thread::spawn(move || batch.wait().map(|status| (status.success(), Instant::now())));
    count(&events, ROUTES)?;
    let all = Instant::now();
    let (is_done, batch_end) = waiter.join().map_err(|_| "a thread panicked")??;
    std::fs::remove_file(&file)?;
    if !is_done {
        return Err("ip -batch failed".into());
    }
    println!(
        "{ROUTES} routes of ip -batch: {:.2} s for ip, the last event {:.0} ms after its end; {:.0} events/s; {} overruns",
        (batch_end - start).as_secs_f64(),
        all.saturating_duration_since(batch_end).as_secs_f64() * 1e3,
        ROUTES as f64 / (all - start).as_secs_f64(),
        kernel.status().overruns,
    );
    let start = Instant::now();
    kernel.execute(&Action::Dump {
        netns: NETNS,
        dump: Dump::Routes(millrace_fib::Family::V4),
    });
    count(&events, ROUTES)?;
    let time = start.elapsed().as_secs_f64();
    println!(
        "{ROUTES} routes of a dump: {:.0} ms, {:.0} events/s",
        time * 1e3,
        ROUTES as f64 / time
    );
    Ok(())
}

/// Takes events until `wanted` of them are routes that `ip` added.
fn count(events: &Receiver<Vec<Event>>, wanted: usize) -> Outcome<()> {
    let mut count = 0;
    while count < wanted {
        let batch = events.recv_timeout(BOUND)?;
        count += batch
            .iter()
            .filter(
                |event| matches!(&event.change, Change::There(Object::Route(route)) if route.protocol == 3),
            )
            .count();
    }
    Ok(())
}

fn ip(arguments: &[&str]) -> Outcome<()> {
    let status = Command::new("ip").args(arguments).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("ip {arguments:?} failed").into())
    }
}
