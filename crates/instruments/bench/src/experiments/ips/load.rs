//! The rows beside E7: HTTP connections by the size of objects (RFC 9411, sections 7.2 and 7.3), latency at half load (section
//! 7.4), connections that are open at a time (section 7.5), twice the load, a reload of all rules under load, and lanes.

use serde_json::Value as Json;

use super::{Experiment, IpsBenchError, Recorder, System, number, parsed};
use crate::gated::Gate;
use crate::gated::recorder::case;

/// Sizes of HTTP objects in KiB.
const OBJECTS: [u16; 6] = [1, 2, 4, 16, 64, 256];
/// HTTP connections a second with objects of 1 KiB that the design asks for.
const CONNECTIONS: f64 = 100_000.0;
/// The size of frames under load, with check sequence.
const FRAME: u16 = 512;
/// Latencies in microseconds that the design asks for: median and 99.9th percentile.
const LATENCY: [f64; 2] = [10.0, 200.0];
/// The part of its largest rate that a function carries at twice the load, in percent.
const OVERLOADED: f64 = 95.0;
/// Seconds in which all rules are loaded.
const RELOAD: f64 = 30.0;
/// The part of the largest rate that is offered during a reload.
const RELOAD_LOAD: f64 = 0.4;
/// Numbers of lanes, and the rates over that of one lane that the design asks for.
const LANES: [(usize, f64); 2] = [(2, 1.8), (4, 3.4)];
/// Connections that are open at a time.
const OPEN: u32 = 32_768;
/// Segments with data of each of them, and all of its segments.
const OPEN_SEGMENTS: [u32; 2] = [2, 8];

impl Experiment {
    /// Measures connections with an HTTP request and a response.
    pub(super) fn http(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        system: &System,
    ) -> Result<(), IpsBenchError> {
        for kib in OBJECTS {
            let asked = format!("{kib} KiB");
            let name = format!("RFC 9411 {}: {asked}", system.name);
            let arguments = ["--http".to_owned(), kib.to_string()];
            let json = match self.measure(system, Some(self.core), recorder.length.seconds, &arguments) {
                Ok(json) => json,
                Err(error) => {
                    recorder.missing(&name, &asked, &error.to_string())?;
                    continue;
                }
            };
            let per_second = number(&json, "/connections_per_second")?;
            let gate = if kib == 1 {
                Gate::AtLeast(CONNECTIONS)
            } else {
                Gate::None
            };
            let row = case(format!("{name}, connections"), asked.clone(), gate, "a second");
            recorder.value(&row, round, per_second)?;
            let gbps = per_second * f64::from(kib) * 1024.0 * 8.0 / 1e9;
            let row = case(format!("{name}, bodies"), asked, Gate::None, "Gbit/s");
            recorder.value(&row, round, gbps)?;
        }
        Ok(())
    }

    /// Measures a function at half of its rate, and at twice of it with both profiles.
    pub(super) fn under_load(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        system: &System,
    ) -> Result<(), IpsBenchError> {
        let name = |what: &str| format!("load, {}: {what}", system.name);
        let full = match self.rate(system, FRAME, recorder.length.seconds) {
            Ok(full) => full.packets_per_second,
            Err(error) => return recorder.missing(&name("rate"), "", &error.to_string()),
        };
        let asked = format!("{FRAME} B");
        if let Some(json) = self.offered(recorder, system, full / 2.0, &name("half"))? {
            let rows = [
                ("half, p50", LATENCY[0], "/under_load/latency_us/p50"),
                ("half, p99.9", LATENCY[1], "/under_load/latency_us/p999"),
            ];
            for (what, gate, pointer) in rows {
                let row = case(name(what), asked.clone(), Gate::AtMost(gate), "us");
                recorder.value(&row, round, number(&json, pointer)?)?;
            }
        }
        for profile in ["closed", "open"] {
            let mut settings = system.settings.clone();
            settings.push(format!("profile={profile}"));
            let overloaded = System { settings, ..*system };
            let what = format!("twice, {profile}");
            let Some(json) = self.offered(recorder, &overloaded, full * 2.0, &name(&what))? else {
                continue;
            };
            let carried = number(&json, "/packets_per_second")? / full * 100.0;
            let row = case(
                name(&format!("{what}, carried")),
                asked.clone(),
                Gate::AtLeast(OVERLOADED),
                "% of its rate",
            );
            recorder.value(&row, round, carried)?;
            // Closed: each packet that leaves was inspected. Open: those that were not are counted.
            let (carried, inspected) = (number(&json, "/packets")?, counter(&json, "frames")?);
            let uninspected = counter(&json, "uninspected")?;
            let rows = match profile {
                "closed" => vec![("not inspected", carried - inspected)],
                _ => vec![
                    ("neither inspected nor counted", carried - inspected - uninspected),
                    ("not inspected", uninspected),
                ],
            };
            for (place, (of, value)) in rows.into_iter().enumerate() {
                let gate = if place == 0 {
                    Gate::Exactly(0.0)
                } else {
                    Gate::None
                };
                let row = case(name(&format!("{what}, {of}")), asked.clone(), gate, "packets");
                recorder.value(&row, round, value)?;
            }
        }
        Ok(())
    }

    /// Measures a function under a load; `None` if that fails, which is recorded.
    fn offered(
        &self,
        recorder: &mut Recorder<'_>,
        system: &System,
        rate: f64,
        name: &str,
    ) -> Result<Option<Json>, IpsBenchError> {
        let arguments = [
            "--frame".to_owned(),
            FRAME.to_string(),
            "--offered".to_owned(),
            rate.to_string(),
        ];
        match self.measure(system, Some(self.core), recorder.length.seconds, &arguments) {
            Ok(json) => Ok(Some(json)),
            Err(error) => {
                recorder.missing(name, "", &error.to_string())?;
                Ok(None)
            }
        }
    }

    /// Loads all rules again under load. The compilation runs on another core than the function, as in a switch.
    pub(super) fn reload(&self, recorder: &mut Recorder<'_>, system: &System) -> Result<(), IpsBenchError> {
        let asked = format!("{FRAME} B, {:.0} % load", RELOAD_LOAD * 100.0);
        let full = match self.rate(system, FRAME, recorder.length.seconds) {
            Ok(full) => full.packets_per_second,
            Err(error) => return recorder.missing("reload of all rules", &asked, &error.to_string()),
        };
        let offered = (full * RELOAD_LOAD).to_string();
        let frame = FRAME.to_string();
        let arguments = ["--frame", &frame, "--offered", &offered, "--reload"].map(str::to_owned);
        let seconds = recorder.length.seconds.max(1.0) * 4.0;
        let json = match self.measure(system, None, seconds, &arguments) {
            Ok(json) => json,
            Err(error) => return recorder.missing("reload of all rules", &asked, &error.to_string()),
        };
        let loaded = json["loaded"].as_str().unwrap_or_default().to_owned();
        let before = number(&json, "/under_load/latency_us/p999")?;
        let during = number(&json, "/under_load/reload/latency_us/p999")?;
        let rows = [
            (
                "packets lost",
                Gate::Exactly(0.0),
                number(&json, "/under_load/reload/lost")?,
                "",
            ),
            (
                "time",
                Gate::AtMost(RELOAD),
                number(&json, "/under_load/reload/seconds")?,
                "s",
            ),
            (
                "p99.9 over before",
                Gate::AtMost(2.0),
                during / before.max(0.1),
                "",
            ),
            ("p99.9", Gate::None, during, "us"),
            (
                "exchange",
                Gate::None,
                number(&json, "/under_load/reload/exchange_us")?,
                "us",
            ),
        ];
        for (what, gate, value, unit) in rows {
            let row = case(
                format!("reload of all rules ({loaded}): {what}"),
                asked.clone(),
                gate,
                unit,
            );
            recorder.value(&row, 0, value)?;
        }
        Ok(())
    }

    /// Measures connections that are open at the same time: the share of them that is followed, and the rate.
    pub(super) fn open_connections(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        system: &System,
    ) -> Result<(), IpsBenchError> {
        let name = |what: &str| format!("RFC 9411 7.5, {}: {what}", system.name);
        let asked = format!("{OPEN} open at a time");
        let [data, all] = OPEN_SEGMENTS;
        let arguments = ["--connections".to_owned(), OPEN.to_string()];
        let arguments = [&arguments[..], &["--data".to_owned(), data.to_string()]].concat();
        let json = match self.measure(system, Some(self.core), recorder.length.seconds, &arguments) {
            Ok(json) => json,
            Err(error) => return recorder.missing(&name("followed"), &asked, &error.to_string()),
        };
        let followed = counter(&json, "tcp_sessions")? * f64::from(all) / number(&json, "/packets")? * 100.0;
        let row = case(name("followed"), asked.clone(), Gate::AtLeast(100.0), "%");
        recorder.value(&row, round, followed)?;
        let row = case(name("one core"), asked, Gate::None, "Mpps");
        recorder.value(&row, round, number(&json, "/packets_per_second")? / 1e6)
    }

    /// Measures lanes, each on a core of its own, beside one.
    pub(super) fn lanes(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        system: &System,
    ) -> Result<(), IpsBenchError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let seconds = recorder.length.seconds;
        let arguments = ["--frame".to_owned(), FRAME.to_string()];
        for (count, gate) in LANES {
            let name = format!("lanes, {}: {count} over one", system.name);
            let asked = format!("{FRAME} B");
            if cores < count {
                recorder.missing(&name, &asked, &format!("this machine has {cores} cores"))?;
                continue;
            }
            let one = number(
                &self.measure(system, Some(self.core), seconds, &arguments)?,
                "/packets_per_second",
            )?;
            let lane = |number: usize| {
                let mut command =
                    self.command(system, Some((self.core + number) % cores), seconds, &arguments);
                command
                    .stdout(std::process::Stdio::piped())
                    .stderr(std::process::Stdio::piped())
                    .spawn()
            };
            let lanes: Vec<_> = (0..count).map(lane).collect();
            let mut sum = 0.0;
            for lane in lanes {
                let output = lane.and_then(std::process::Child::wait_with_output);
                sum += number(&parsed(system, output)?, "/packets_per_second")?;
            }
            recorder.value(&case(name, asked, Gate::AtLeast(gate), "times"), round, sum / one)?;
        }
        Ok(())
    }
}

/// Returns a counter of a function.
fn counter(json: &Json, name: &str) -> Result<f64, IpsBenchError> {
    let all = json["counters"].as_array();
    let at = all.and_then(|all| all.iter().position(|counter| counter[0] == name));
    number(
        json,
        &format!("/counters/{}/1", at.map_or("-".to_owned(), |at| at.to_string())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_absent_is_not_zero() {
        let json = serde_json::json!({ "counters": [["frames", 7], ["uninspected", 0]] });
        assert!(counter(&json, "uninspected").is_ok_and(|count| count == 0.0));
        assert!(counter(&json, "not_inspected").is_err());
    }
}
