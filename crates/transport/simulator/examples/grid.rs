//! The grid of gate T1 (docs/gates.md) in virtual time: goodput over Ideal of one flow, by round-trip
//! time and loss. `grid [RATE [SECONDS]]`, 100Mbps and 30 s by default. The first third of each run is the ramp and does not count.

use millrace_transport::congestion::bbr::{Bbr, BbrConfig};
use millrace_transport_simulator::{FlowSpec, LinkSpec, PACKET, Simulation, ideal_goodput};
use millrace_types::{BitRate, Time};
use std::error::Error;

/// The name of a column, the settings that it adds to the path, and the loss that Ideal allows for.
type Column = (&'static str, &'static [(&'static str, &'static str)], f64);

const COLUMNS: [Column; 8] = [
    ("0 %", &[], 0.0),
    ("0.1 %", &[("loss", "0.1%")], 0.001),
    ("0.5 %", &[("loss", "0.5%")], 0.005),
    ("1 %", &[("loss", "1%")], 0.01),
    ("2 %", &[("loss", "2%")], 0.02),
    ("bursts", &[("loss", "ge:1%,burst=8")], 0.01),
    (
        "jitter",
        &[("jitter", "5ms,normal"), ("order", "reordering")],
        0.0,
    ),
    (
        "both",
        &[("jitter", "5ms,normal"), ("order", "reordering"), ("loss", "2%")],
        0.02,
    ),
];

/// Half of the round-trip time, in microseconds.
const ONE_WAY_US: [u64; 6] = [100, 5_000, 25_000, 50_000, 100_000, 200_000];

fn cell(
    rate: &str,
    seconds: u64,
    one_way_us: u64,
    settings: &[(&str, &str)],
    loss: f64,
) -> Result<f64, Box<dyn Error>> {
    let delay = format!("{one_way_us}us");
    let mut forward = LinkSpec::new(&[("rate", rate), ("delay", &delay)])?;
    for (key, text) in settings {
        forward.path.set(key, text)?;
    }
    let mut simulation = Simulation::new(1);
    let link = simulation.add_link(&forward)?;
    simulation.add_flow(FlowSpec {
        controller: Box::new(Bbr::new(BbrConfig::new(PACKET, 1), Time::ZERO)),
        start: Time::ZERO,
        link,
        return_path: LinkSpec::new(&[("delay", &delay)])?.path,
        bytes: None,
    })?;
    let (from, to) = (Time::from_secs(seconds / 3), Time::from_secs(seconds));
    simulation.run_until(to);
    let goodput = simulation.report(0).goodput.rate(from, to);
    let rate: BitRate = rate.parse()?;
    Ok(goodput / ideal_goodput(rate.bps() as f64, loss))
}

#[allow(clippy::print_stdout, reason = "a program that prints")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rate = arguments.next().unwrap_or_else(|| "100Mbps".to_owned());
    let seconds: u64 = arguments.next().unwrap_or_else(|| "30".to_owned()).parse()?;
    print!("{:>10}", "RTT");
    for (name, ..) in COLUMNS {
        print!("{name:>9}");
    }
    println!("    goodput / Ideal at {rate}, {seconds} s");
    for one_way_us in ONE_WAY_US {
        print!("{:>7.1} ms", 2.0 * one_way_us as f64 / 1_000.0);
        for (name, settings, loss) in COLUMNS {
            // A jitter of 5 ms is longer than the shortest paths.
            if settings.iter().any(|(key, _)| *key == "jitter") && one_way_us < 20_000 {
                print!("{:>9}", "-");
                continue;
            }
            let share = cell(&rate, seconds, one_way_us, settings, loss)
                .map_err(|error| format!("{name}, {one_way_us} us: {error}"))?;
            print!("{share:9.3}");
        }
        println!();
    }
    Ok(())
}
