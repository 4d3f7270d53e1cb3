//! Simulates one flow over one path: `one CONTROLLER SECONDS KEY=TEXT… [back:KEY=TEXT…]`. Prints a line for
//! each second.

use millrace_transport::congestion::Controller;
use millrace_transport::congestion::bbr::{Bbr, BbrConfig};
use millrace_transport_simulator::{FlowSpec, LinkSpec, PACKET, Simulation, rivals};
use millrace_types::{Duration, Time};

#[allow(clippy::print_stdout, reason = "a program that prints")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "bbr".to_owned());
    let seconds: u64 = arguments.next().unwrap_or_else(|| "20".to_owned()).parse()?;
    let (mut forward, mut return_path) = (LinkSpec::default(), LinkSpec::default());
    for setting in arguments {
        let (key, text) = setting.split_once('=').ok_or("settings are KEY=TEXT")?;
        match key.strip_prefix("back:") {
            Some(key) => return_path.path.set(key, text)?,
            None => forward.path.set(key, text)?,
        }
    }
    let controller: Box<dyn Controller> = match name.as_str() {
        "reno" => Box::new(rivals::Reno::new(PACKET)),
        "cubic" => Box::new(rivals::Cubic::new(PACKET)),
        "bbr1" => Box::new(rivals::Bbr1::new(PACKET)),
        _ => Box::new(Bbr::new(BbrConfig::new(PACKET, 1), Time::ZERO)),
    };
    let mut simulation = Simulation::new(1);
    let link = simulation.add_link(&forward)?;
    simulation.add_flow(FlowSpec {
        controller,
        start: Time::ZERO,
        link,
        return_path: return_path.path,
        bytes: None,
    })?;
    let started = std::time::Instant::now();
    for second in 1..=seconds {
        let end = Time::from_secs(second);
        simulation.run_until(end);
        let (from, report, flow) = (
            end - Duration::from_secs(1),
            simulation.report(0),
            simulation.flow(0),
        );
        println!(
            "{second:4} s  sent {:8.1}  arrived {:8.1}  goodput {:8.1} Mbit/s  rtt {:6.1} ms  in flight {:6}  {} {:?}",
            report.sent.rate(from, end) / 1e6,
            report.arrived.rate(from, end) / 1e6,
            report.goodput.rate(from, end) / 1e6,
            flow.rtt().as_secs_f64() * 1e3,
            flow.in_flight() / PACKET,
            flow.controller().state(),
            flow.controller().bandwidth().map(|rate| rate.bps() / 1_000_000),
        );
    }
    let stats = simulation.report(0).sender;
    println!("{stats:?} {:?}", simulation.report(0).receiver);
    println!(
        "states {:?}",
        simulation
            .report(0)
            .states
            .iter()
            .map(|(at, s)| (at.nanos() / 1_000_000, *s))
            .take(60)
            .collect::<Vec<_>>()
    );
    println!(
        "{} packets, {:.2} us each",
        simulation.packets(),
        started.elapsed().as_secs_f64() * 1e6 / simulation.packets() as f64
    );
    Ok(())
}
