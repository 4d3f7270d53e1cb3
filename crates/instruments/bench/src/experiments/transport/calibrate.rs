//! Calibration: the rate that plain UDP passes through the path without loss.

use serde_json::Value;

use super::error::{TransportBenchError, output};
use super::test_bed::{PathSettings, SENDER, TestBed, address};
use std::time::Duration;

/// Offered rates in Mbit/s, from the highest.
const OFFERED: [u32; 9] = [2_000, 1_500, 1_000, 700, 500, 350, 250, 150, 80];
/// The share of packets that may be lost.
const LOSS: f64 = 1e-5;
/// The share of the offered rate that must be received, so that a sender that cannot offer the rate does not pass.
const RECEIVED_MIN: f64 = 0.98;
/// Seconds of each trial.
const SECONDS: &str = "3";

/// Returns the highest offered rate in bit/s at which the share of lost packets is below 1e-5. The emulator
/// does not limit the rate: it is set to 10 Gbit/s.
pub(super) fn calibrate(
    test_bed: &mut TestBed,
    progress: &mut dyn FnMut(&str),
) -> Result<f64, TransportBenchError> {
    test_bed.link_bps = 10e9;
    test_bed.set_path(&PathSettings::new(10.0, 0.0))?;
    for mbps in OFFERED {
        let (received, lost) = trial(test_bed, mbps)?;
        progress(&format!(
            "  calibration: {mbps} Mbit/s offered, {received:.0} received, {:.5} % lost",
            100.0 * lost
        ));
        if lost < LOSS && received > RECEIVED_MIN * f64::from(mbps) {
            return Ok(f64::from(mbps) * 1e6);
        }
    }
    Err(output(
        "iperf3",
        "UDP loses packets at every rate: the machine is too busy for live rows",
    ))
}

/// Returns the rate received in Mbit/s, and the share lost.
fn trial(test_bed: &TestBed, mbps: u32) -> Result<(f64, f64), TransportBenchError> {
    let mut server = test_bed.start(
        "iperf3 server",
        "r1",
        &["iperf3", "--server", "--one-off", "--json"],
    )?;
    test_bed.wait_for_port("r1", "tcp", 5201, &mut server)?;
    let rate = format!("{mbps}M");
    let argv = [
        "iperf3",
        "--client",
        &address(0),
        "--udp",
        "--bitrate",
        &rate,
        "--length",
        "1428",
        "--window",
        "4M",
        "--time",
        SECONDS,
        "--json",
    ];
    let text = test_bed.start("iperf3", SENDER, &argv)?.finish()?;
    server.wait_for("its end", Duration::from_secs(10), |_| Ok(Some(())))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| output("iperf3", error.to_string()))?;
    let number = |path: &str| {
        json.pointer(path)
            .and_then(Value::as_f64)
            .ok_or_else(|| output("iperf3", format!("no number at {path}")))
    };
    let (packets, lost) = (number("/end/sum/packets")?, number("/end/sum/lost_packets")?);
    let sent = number("/end/sum/bits_per_second")? / 1e6;
    let share = lost.max(0.0) / packets.max(1.0);
    Ok((sent * (1.0 - share), share))
}
