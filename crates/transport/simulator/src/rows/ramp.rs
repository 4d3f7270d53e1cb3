//! T7: the time until nine tenths of the rate arrive over 400 ms, without and with a hint.

use super::path::{one_flow, return_path, run};
use super::{Gate, Measured, RowError, Size};
use crate::{LinkSpec, PACKET, ideal_rate};
use millrace_transport::congestion::bbr::{Bbr, BbrConfig, Hint};
use millrace_types::{BitRate, Duration, Time};

const RTT: Duration = Duration::from_millis(400);
/// The time limit of the measurement in seconds.
const LIMIT_S: u64 = 30;

/// Returns a rate's text in bits a second, or 0 if it is not valid. All texts of this file are valid.
fn bps(rate: &str) -> f64 {
    rate.parse::<BitRate>().map_or(0.0, |rate| rate.bps() as f64)
}

/// Measures the number of round trips until 90 % of the rate arrive for 50 ms in a row.
fn measure(
    case: String,
    (rate, loss): (&str, &str),
    hint: Option<Hint>,
    gate: f64,
) -> Result<Measured, RowError> {
    let config = BbrConfig {
        hint,
        ..BbrConfig::new(PACKET, 1)
    };
    let forward = LinkSpec::new(&[("rate", rate), ("delay", "200ms"), ("loss", loss)])?;
    let mut simulation = one_flow(
        Box::new(Bbr::new(config, Time::ZERO)),
        &forward,
        return_path("200ms")?,
    )?;
    for second in 1..=LIMIT_S {
        run(&mut simulation, Time::from_secs(second))?;
        let wanted = 0.9 * ideal_rate(bps(rate));
        if let Some(at) = simulation.report(0).arrived.reaches(wanted, 5) {
            return Ok(Measured {
                case,
                conditions: format!("90 % of {rate} over 50 ms"),
                gate: Gate::AtMost(gate),
                target: None,
                reached: at.since(Time::ZERO).as_secs_f64() / RTT.as_secs_f64(),
                unit: "RTT",
                packets: simulation.packets(),
            });
        }
    }
    Err(RowError::Never {
        case,
        seconds: LIMIT_S,
    })
}

/// Returns the gate of a cold start in round trips: log2(BDP / 10 packets) + 3.
fn cold_gate(rate: &str) -> f64 {
    let bdp = bps(rate) / 8.0 * RTT.as_secs_f64() / PACKET as f64;
    (bdp / 10.0).log2() + 3.0
}

/// Measures row T7 of docs/gates.md: the round trips until the full rate, with and without a hint.
pub(super) fn ramp(size: Size, report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    let mut cold = vec![("100Mbps", "0%"), ("1Gbps", "0%"), ("1Gbps", "2%")];
    if size == Size::Full {
        cold.push(("10Gbps", "0%"));
    }
    for (rate, loss) in cold {
        let case = format!("T7 cold start, {rate}, RTT 400 ms, loss {loss}");
        report(measure(case, (rate, loss), None, cold_gate(rate))?);
    }
    let hint = |rate: &str| Hint {
        rate: rate.parse().unwrap_or(BitRate::from_kbps(100_000)),
        rtt: Some(RTT),
    };
    for (rate, loss) in [
        ("1Gbps", "0%"),
        ("1Gbps", "2%"),
        ("100Mbps", "0%"),
        ("100Mbps", "2%"),
    ] {
        let case = format!("T7 with a hint, {rate}, RTT 400 ms, loss {loss}");
        report(measure(case, (rate, loss), Some(hint(rate)), 5.0)?);
    }
    let case = "T7 with a hint ten times too high, 100Mbps, RTT 400 ms".to_owned();
    let high = Some(hint("1Gbps"));
    report(measure(case, ("100Mbps", "0%"), high, cold_gate("100Mbps"))?);
    Ok(())
}
