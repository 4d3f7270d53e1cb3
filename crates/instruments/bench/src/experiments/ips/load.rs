//! The rows of gates I8 to I11 and I15 (docs/gates.md): HTTP connections by the size of objects (RFC 9411, sections 7.2 and 7.3),
//! latency at half load (RFC 9411, section 7.4), connections that are open at the same time (RFC 9411, section 7.5),
//! twice the load, and a reload of all rules under load.

use serde_json::Value as Json;

use super::rows::{
    FRAME, OPEN, PROFILES, RELOAD_LOAD, TWICE, half_rows, http_rows, open_rows, reload_rows, twice_rows,
};
use super::{Experiment, IpsBenchError, Recorder, System, number, reason};

/// The number of segments with data, and of all segments, of each open connection.
const OPEN_SEGMENTS: [u32; 2] = [2, 8];
/// The smallest latency in microseconds that a ratio is of, so that the ratio is finite.
const LATENCY_MIN_US: f64 = 0.1;

impl Experiment {
    /// Measures connections with an HTTP request and a response of `kib` KiB.
    pub(super) fn http(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        system: &System<'_>,
        kib: u16,
    ) -> Result<(), IpsBenchError> {
        let [connections, bodies] = http_rows(system.name, kib);
        let arguments = ["--http".to_owned(), kib.to_string()];
        let json = self.measure(system, Some(self.core), recorder.length.seconds, &arguments);
        let per_second = match json.and_then(|json| number(&json, "/connections_per_second")) {
            Ok(per_second) => per_second,
            Err(error) => return recorder.all_missing([connections, bodies], &reason(error)?),
        };
        recorder.value(&connections, round, per_second)?;
        let gbps = per_second * f64::from(kib) * 1024.0 * 8.0 / 1e9;
        recorder.value(&bodies, round, gbps)
    }

    /// Measures a function at half of its highest rate, and with both profiles at twice that rate.
    pub(super) fn under_load(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        system: &System<'_>,
    ) -> Result<(), IpsBenchError> {
        let full = match self.rate(system, FRAME, recorder.length.seconds) {
            Ok(full) => full.packets_per_second,
            Err(error) => {
                let rows = PROFILES
                    .into_iter()
                    .flat_map(|profile| twice_rows(system.name, profile));
                return recorder.all_missing(half_rows(system.name).into_iter().chain(rows), &reason(error)?);
            }
        };
        let rows = half_rows(system.name);
        let half = self.offered(recorder, system, full / 2.0).and_then(|json| {
            let latency = |percentile: &str| number(&json, &format!("/under_load/latency_us/{percentile}"));
            Ok([latency("p50")?, latency("p999")?])
        });
        match half {
            Ok(values) => {
                for (row, value) in rows.iter().zip(values) {
                    recorder.value(row, round, value)?;
                }
            }
            Err(error) => recorder.all_missing(rows, &reason(error)?)?,
        }
        for profile in PROFILES {
            let mut settings = system.settings.clone();
            settings.push(format!("profile={profile}"));
            let overloaded = System { settings, ..*system };
            let rows = twice_rows(system.name, profile);
            let values = self
                .offered(recorder, &overloaded, full * TWICE)
                .and_then(|json| twice_values(&json, profile, full));
            let values = match values {
                Ok(values) => values,
                Err(error) => {
                    recorder.all_missing(rows, &reason(error)?)?;
                    continue;
                }
            };
            for (row, value) in rows.iter().zip(values) {
                recorder.value(row, round, value)?;
            }
        }
        Ok(())
    }

    /// Measures a function under a load.
    fn offered(
        &self,
        recorder: &Recorder<'_>,
        system: &System<'_>,
        rate: f64,
    ) -> Result<Json, IpsBenchError> {
        let arguments = [
            "--frame".to_owned(),
            FRAME.to_string(),
            "--offered".to_owned(),
            rate.to_string(),
        ];
        self.measure(system, Some(self.core), recorder.length.seconds, &arguments)
    }

    /// Loads all rules again under load. The compilation runs on another core than the function, as in a switch.
    pub(super) fn reload(
        &self,
        recorder: &mut Recorder<'_>,
        system: &System<'_>,
    ) -> Result<(), IpsBenchError> {
        let full = match self.rate(system, FRAME, recorder.length.seconds) {
            Ok(full) => full.packets_per_second,
            Err(error) => return recorder.all_missing(reload_rows(""), &reason(error)?),
        };
        let offered = (full * RELOAD_LOAD).to_string();
        let frame = FRAME.to_string();
        let arguments = ["--frame", &frame, "--offered", &offered, "--reload"].map(str::to_owned);
        let seconds = recorder.length.seconds.max(1.0) * 4.0;
        let measured = self
            .measure(system, None, seconds, &arguments)
            .and_then(|json| Ok((reload_values(&json)?, json)));
        let (values, json) = match measured {
            Ok(measured) => measured,
            Err(error) => return recorder.all_missing(reload_rows(""), &reason(error)?),
        };
        let rows = reload_rows(json["loaded"].as_str().unwrap_or_default());
        for (row, value) in rows.iter().zip(values) {
            recorder.value(row, 0, value)?;
        }
        Ok(())
    }

    /// Measures connections that are open at the same time: the share that the function tracks, and the rate.
    pub(super) fn open_connections(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        system: &System<'_>,
    ) -> Result<(), IpsBenchError> {
        let [share, one_core] = open_rows(system.name);
        let [data, all] = OPEN_SEGMENTS;
        let arguments = ["--connections".to_owned(), OPEN.to_string()];
        let arguments = [&arguments[..], &["--data".to_owned(), data.to_string()]].concat();
        let measured = self
            .measure(system, Some(self.core), recorder.length.seconds, &arguments)
            .and_then(|json| {
                let followed = counter(&json, "tcp_sessions")? * f64::from(all) / number(&json, "/packets")?;
                Ok((followed * 100.0, number(&json, "/packets_per_second")? / 1e6))
            });
        match measured {
            Ok((followed, mpps)) => {
                recorder.value(&share, round, followed)?;
                recorder.value(&one_core, round, mpps)
            }
            Err(error) => recorder.all_missing([share, one_core], &reason(error)?),
        }
    }
}

/// Returns the values of the rows of a profile at twice the highest rate `full`. With the profile `closed`, every packet that
/// leaves must have been inspected. With `open`, packets that leave without inspection must have been counted.
fn twice_values(json: &Json, profile: &str, full: f64) -> Result<Vec<f64>, IpsBenchError> {
    let share = number(json, "/packets_per_second")? / full * 100.0;
    let (carried, inspected) = (number(json, "/packets")?, counter(json, "frames")?);
    let uninspected = counter(json, "uninspected")?;
    Ok(match profile {
        "closed" => vec![share, carried - inspected],
        _ => vec![share, carried - inspected - uninspected, uninspected],
    })
}

/// Returns the values of the rows of a reload.
fn reload_values(json: &Json) -> Result<[f64; 5], IpsBenchError> {
    let before = number(json, "/under_load/latency_us/p999")?;
    let during = number(json, "/under_load/reload/latency_us/p999")?;
    Ok([
        number(json, "/under_load/reload/lost")?,
        number(json, "/under_load/reload/seconds")?,
        during / before.max(LATENCY_MIN_US),
        during,
        number(json, "/under_load/reload/exchange_us")?,
    ])
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
