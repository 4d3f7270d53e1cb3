//! State and counters of a path in the form for users: requested and realised delays side by side.

use std::collections::BTreeMap;

use millrace_wan_emulator::{DirectionConfig, HistogramSnapshot, PathConfig, Stats};
use serde::{Deserialize, Serialize};

/// The settings and counters of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WanPath))]
pub struct PathStatus {
    /// The name.
    pub name: String,
    /// The ends of the path, a and b: an interface of `millrace-wan`; in a switch, `port` or `unused`.
    pub ends: Vec<String>,
    /// The seed of all random draws.
    pub seed: u64,
    /// The directions: a to b, then b to a.
    pub directions: Vec<DirectionStatus>,
    /// The interfaces of `millrace-wan`, a and b; a switch has ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceStatus>,
}

/// The settings and counters of a direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WanDirection))]
pub struct DirectionStatus {
    /// `a_to_b` or `b_to_a`.
    pub direction: String,
    /// The settings in force.
    pub settings: BTreeMap<String, String>,
    /// Frames that entered the path.
    pub offered: u64,
    /// Frames that entered and were released at once (ARP, neighbour discovery, multicast, if configured).
    pub bypassed: u64,
    /// Second copies of duplicated frames.
    pub duplicated: u64,
    /// Frames that were reordered.
    pub reordered: u64,
    /// Frames that were delivered with inverted bits. Frames that were dropped because of them are in
    /// `drops`.
    pub corrupted: u64,
    /// Frames that left the path.
    pub released: u64,
    /// Bytes of frames that left.
    pub released_bytes: u64,
    /// Frames that left more than 1 ms after they were due, because the emulator was not running on its core.
    pub late: u64,
    /// Frames in flight.
    pub in_flight: u64,
    /// ICMP errors sent in answer to packets over the MTU.
    #[serde(default)]
    pub icmp_errors_sent: u64,
    /// Packets over the MTU that got no ICMP error because of the limit of 1,000 a second.
    #[serde(default)]
    pub icmp_errors_rate_limited: u64,
    /// The size of the memory in bytes.
    pub memory_size: u64,
    /// The bytes of memory that frames in flight use.
    pub memory_used: u64,
    /// The maximum number of bytes in use so far.
    pub memory_high: u64,
    /// Dropped frames by reason. Reasons without a frame are left out.
    pub drops: Vec<DropCount>,
    /// Delays as drawn from the configured distribution, without the waiting time for the rate.
    pub delay_asked: Delay,
    /// Delays after ordering, reordering and duplication, from the moment at which the link has sent the frame.
    pub delay_given: Delay,
    /// Times from the moment at which a frame was due until it left.
    pub lateness: Delay,
    /// Warnings: settings with an effect that differs from the request, or with another meaning here.
    pub warnings: Vec<String>,
}

/// Dropped frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WanDrop))]
pub struct DropCount {
    /// The reason.
    pub reason: String,
    /// The number of dropped frames.
    pub frames: u64,
}

/// A distribution of times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WanDelay))]
pub struct Delay {
    /// The number of frames.
    pub count: u64,
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The maximum.
    pub max_us: f64,
}

/// An interface at an end of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WanInterface))]
pub struct InterfaceStatus {
    /// The device.
    pub device: String,
    /// True if the link of the interface is up.
    pub link_up: bool,
    /// Frames that the interface dropped because the emulator did not fetch them in time.
    pub rx_missed: u64,
    /// Received frames that cannot be forwarded.
    pub rx_errors: u64,
    /// Frames that left the path but were refused by the interface.
    pub tx_refused: u64,
    /// Frames that could not be sent, such as those longer than the MTU.
    pub tx_errors: u64,
}

impl PathStatus {
    /// Returns the name, the ends and the seed in one line.
    pub fn title(&self) -> String {
        let ends = self
            .ends
            .iter()
            .zip(["a", "b"])
            .map(|(end, name)| format!("{end} ({name})"));
        let ends: Vec<String> = ends.collect();
        format!("{}: {}, seed {}", self.name, ends.join(", "), self.seed)
    }

    /// Returns the settings, one line for each direction.
    pub fn settings_text(&self) -> String {
        let line = |direction: &DirectionStatus| {
            let settings = direction
                .settings
                .iter()
                .map(|(key, text)| format!("{key} {text}"));
            let settings: Vec<String> = settings.collect();
            let list = match settings.is_empty() {
                true => "as a wire".to_owned(),
                false => settings.join(", "),
            };
            format!("{}  {list}\n", direction.direction)
        };
        self.directions.iter().map(line).collect()
    }

    /// Returns the warnings of interfaces and directions, each with its subject.
    pub fn warnings(&self) -> Vec<String> {
        let down = self.interfaces.iter().filter(|interface| !interface.link_up);
        let down = down.map(|interface| {
            let device = &interface.device;
            format!(
                "{device}: the link is down, or the interface is gone: no frame arrives, and frames to it are lost. To fix \
                 it: `ip link set {device} up` at both ends of its cable"
            )
        });
        let of_directions = self.directions.iter().flat_map(|direction| {
            let warnings = direction.warnings.iter();
            warnings.map(|warning| format!("{}: {warning}", direction.direction))
        });
        down.chain(of_directions).collect()
    }
}

impl From<HistogramSnapshot> for Delay {
    fn from(snapshot: HistogramSnapshot) -> Delay {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        Delay {
            count: snapshot.count,
            mean_us: snapshot.mean_ns / 1000.0,
            p50_us: micros(snapshot.p50_ns),
            p90_us: micros(snapshot.p90_ns),
            p99_us: micros(snapshot.p99_ns),
            p999_us: micros(snapshot.p999_ns),
            max_us: micros(snapshot.max_ns),
        }
    }
}

impl DirectionStatus {
    /// Returns the status of a direction. Its warnings are those of its configuration, and `notes`.
    pub fn new(
        direction: &str,
        config: &DirectionConfig,
        stats: &Stats,
        notes: &[String],
    ) -> DirectionStatus {
        let drops = stats.drops.iter().filter(|(_, frames)| *frames > 0);
        let mut warnings = config.warnings();
        warnings.extend(notes.iter().cloned());
        if stats.late > 0 {
            warnings.push(format!(
                "{} of {} frames left more than 1 ms after they were due: the emulator shares its core. To fix it: give it a \
                 core of its own",
                stats.late, stats.released
            ));
        }
        DirectionStatus {
            direction: direction.to_owned(),
            settings: settings(&config.path),
            offered: stats.offered,
            bypassed: stats.bypassed,
            duplicated: stats.duplicated,
            reordered: stats.reordered,
            corrupted: stats.corrupted,
            released: stats.released,
            released_bytes: stats.released_bytes,
            late: stats.late,
            in_flight: stats.in_flight,
            icmp_errors_sent: stats.icmp_errors_sent,
            icmp_errors_rate_limited: stats.icmp_errors_rate_limited,
            memory_size: stats.memory_size,
            memory_used: stats.memory_used,
            memory_high: stats.memory_high,
            drops: drops
                .map(|(reason, frames)| DropCount {
                    reason: reason.name().to_owned(),
                    frames: *frames,
                })
                .collect(),
            delay_asked: stats.delay_asked.clone().into(),
            delay_given: stats.delay_given.clone().into(),
            lateness: stats.lateness.clone().into(),
            warnings,
        }
    }

    /// Returns the number of dropped frames.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|drop| drop.frames).sum()
    }
}

/// Returns the keys of a path that have a value, with their texts.
fn settings(path: &PathConfig) -> BTreeMap<String, String> {
    let json = serde_json::to_value(path).unwrap_or_default();
    let default = serde_json::to_value(PathConfig::default()).unwrap_or_default();
    let entries = json.as_object().into_iter().flatten();
    entries
        .filter(|(key, value)| !value.is_null() && default.get(key.as_str()) != Some(*value))
        .map(|(key, value)| {
            let text = match value {
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Array(items) => {
                    let texts = items.iter().map(|item| item.as_str().unwrap_or_default());
                    texts.collect::<Vec<_>>().join(";")
                }
                other => other.to_string(),
            };
            (key.replace('-', "_"), text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use millrace_types::Time;
    use millrace_wan_emulator::{ClassConfig, DirectionId, NoSources, Plan, Seed, heap_memory};

    use super::*;

    #[test]
    fn a_status_has_the_settings_that_differ_and_warns_of_what_cannot_be_had() {
        let mut config = DirectionConfig::default();
        config.path.set("delay", "20ms").unwrap();
        config.path.set("jitter", "5ms,normal").unwrap();
        config.path.set("loss", "1%;every:100").unwrap();
        config.path.set("over-mtu", "too-big").unwrap();
        config.memory = Some("4MiB".parse().unwrap());
        let mut path = PathConfig::default();
        path.set("queue", "10ms").unwrap();
        config.class.push(ClassConfig {
            name: "voice".to_owned(),
            filter: "udp".to_owned(),
            path,
        });
        let plan = Plan::new(&config, Seed::new(1), DirectionId::Forward, &NoSources).unwrap();
        let memory = heap_memory(plan.memory_size());
        let halves = plan.start(memory, Time::ZERO).unwrap();
        let stats = halves.controller.stats();
        let status = DirectionStatus::new("a_to_b", &config, &stats, &["a note".to_owned()]);
        let settings: Vec<_> = status
            .settings
            .iter()
            .map(|(key, text)| format!("{key}={text}"))
            .collect();
        assert_eq!(
            settings,
            [
                "delay=20ms",
                "jitter=5ms,normal",
                "loss=1%;every:100",
                "over_mtu=too-big"
            ]
        );
        assert!(
            status.warnings.iter().any(|text| text.contains("mean")),
            "{:?}",
            status.warnings
        );
        assert!(status.warnings.contains(&"a note".to_owned()));
        assert!(
            status.warnings.iter().any(|text| text.contains("set `mtu`")),
            "{:?}",
            status.warnings
        );
        assert!(
            status
                .warnings
                .iter()
                .any(|text| text.starts_with("class voice: a queue without a rate")),
            "{:?}",
            status.warnings
        );
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<DirectionStatus>(&json).unwrap(), status);
    }
}
