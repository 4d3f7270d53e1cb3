//! Prints the figures of a connection for a month, from rates on standard input: `month 2026-02 UTC_OFFSET_MINUTES < RATES`.
//!
//! A line has the start of five minutes in seconds since 1970, and the rates in bit/s towards the exchange and from it during them. The
//! answer is the two 95th percentiles and the known share in thousandths. tests/interop/check_percentiles.py compares them with other
//! programs' answers.

use std::error::Error;
use std::io::stdin;

use millrace_ix_series::{Figure, Key, Measure, Month, Offset, Store, Subject, TimeZone};

/// The connection of the rates.
const CONNECTION: u32 = 7;
/// The times in s of the rates of a line, and of the pushes of an engine.
const FIVE_MINUTES: u64 = 300;
const PUSH: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [month, offset] = &arguments[..] else {
        return Err("expected a month and the offset from UTC in minutes, such as `2026-02 540`".into());
    };
    let (month, offset): (Month, i32) = (month.parse()?, offset.parse()?);
    let zone = TimeZone::fixed(Offset::from_seconds(offset * 60)?);
    // The store writes to its medium with each push: a month of them takes minutes on a disk.
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let mut store = Store::open(folder.path())?;
    for line in stdin().lines() {
        let line = line?;
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [time, incoming, outgoing] = numbers[..] else {
            return Err(format!("`{line}`: expected a time and two rates").into());
        };
        let key = |measure| Key::new(Subject::Connection(CONNECTION), measure);
        for at in (time..time + FIVE_MINUTES).step_by(PUSH) {
            store.push(at, &[(key(Measure::In), incoming), (key(Measure::Out), outgoing)])?;
        }
    }
    let figure = Figure::of(&store, CONNECTION, month, &zone, month.next().start(&zone));
    let value = |found: Option<u64>| found.map_or_else(|| "none".to_owned(), |value| value.to_string());
    println!(
        "{} {} {}",
        value(figure.incoming.value),
        value(figure.outgoing.value),
        figure.coverage_permille()
    );
    Ok(())
}
