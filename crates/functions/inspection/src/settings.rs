//! The settings of the functions `ips` and `ids`.

use millrace_ips_engine::app::CONTENT_CODINGS;
use millrace_ips_engine::app::file::STORE_LIMIT;
use millrace_ips_engine::{Cause, Encryption, Mode, Overload, Policies, Policy, Settings as EngineSettings};
use millrace_nf::{SettingError, Settings, Setup};
use millrace_types::Duration;

use crate::rules;

/// Settings that decide how packets are inspected.
const OWN: &[(&str, &str)] = &[
    (
        "profile",
        "closed: nothing passes uninspected; open: traffic goes on where it cannot be inspected (closed)",
    ),
    (
        "flows",
        "largest size of the flow table of each function, as far as memory_mib allows (262144)",
    ),
    (
        "memory_mib",
        "memory of flows, stream data, parsers and fragments of each function in MiB (768)",
    ),
    (
        "stream_depth",
        "bytes of each direction of a TCP connection that are inspected; 0 is no limit (1048576)",
    ),
    (
        "body_kib",
        "data of an HTTP body or attachment that are inspected, in KiB (100)",
    ),
    (
        "content_codings",
        "content codings of an HTTP body that are undone, one inside the other, 1 to 5 (2)",
    ),
    (
        "midstream",
        "yes: follow TCP connections whose handshake was not seen (no)",
    ),
    (
        "asymmetric",
        "yes: follow TCP connections of which one direction is seen (no)",
    ),
    ("checksums", "no: accept packets with wrong checksums (yes)"),
    ("minimum_ttl", "smallest TTL or hop limit that passes (0)"),
    ("tcp_fragments", "drop: drop fragments of TCP (inspect)"),
    (
        "encrypted",
        "flows after their TLS or SSH handshake: full, track-only (no contents) or bypass (track-only)",
    ),
    ("hashes", "yes: hash files that flows carry (no)"),
    (
        "shun",
        "no: see every packet of flows that are decided about (yes)",
    ),
    (
        "events",
        "alerts, or all: also transactions, files, flows, drops and anomalies (all)",
    ),
    (
        "frames",
        "yes: with events=all, also an event for each frame of a protocol (no)",
    ),
    (
        "netflow",
        "yes: with events=all, also an event for each direction of a flow that ends (no)",
    ),
    (
        "arp",
        "yes: with events=all, also an event for each packet of ARP (no)",
    ),
    (
        "export",
        "target of events as EVE JSON: file:PATH, unix:PATH or udp:HOST:PORT; none unless given",
    ),
    (
        "data",
        "folder for the files and sets that rules store; needs export; nothing is stored unless given",
    ),
    (
        "data_mib",
        "largest size of all stored files in MiB; those of earlier runs count (1024)",
    ),
    ("eve_version", "layout of events: that of Suricata 7 or 8 (7)"),
    (
        "statistics_s",
        "interval of statistics events in seconds; 0 writes none (8)",
    ),
    (
        "burst_us",
        "with profile open: time for a burst in microseconds, after which the rest passes; 0 is no limit (2000)",
    ),
];

/// Settings of the policies, in the order of [`Cause::ALL`].
const POLICIES: [(&str, &str); Cause::ALL.len()] = [
    (
        "on_flow_table",
        "policy: the flow table is full of established flows",
    ),
    ("on_segment_memory", "policy: the memory of stream data is full"),
    ("on_fragment_memory", "policy: the memory of fragments is full"),
    (
        "on_midstream",
        "policy: the handshake of a connection was not seen",
    ),
    (
        "on_one_sided",
        "policy: the answer to the SYN of a connection was not seen",
    ),
    (
        "on_invalid_tcp",
        "policy: a TCP segment does not belong to its connection",
    ),
    (
        "on_urgent",
        "policy: a TCP segment has urgent data (ignore: its pointer is cleared)",
    ),
    ("on_parser_error", "policy: the bytes contradict their protocol"),
    (
        "on_ambiguous_message",
        "policy: recipients read a message in different ways",
    ),
    (
        "on_parser_memory",
        "policy: the memory of parsers is full, and the flow holds most of it",
    ),
    (
        "on_match_limit",
        "policy: the evaluation of a rule reached a limit",
    ),
    (
        "on_overload",
        "policy: a flow begins while the function cannot keep up",
    ),
    (
        "on_no_rules",
        "policy: no rules are loaded. Each is ignore, pass-packet, bypass, drop-packet, drop-flow or reject",
    ),
];

const LEN: usize = rules::SETTINGS.len() + OWN.len() + POLICIES.len();

/// All settings with their descriptions.
pub(crate) const ALL: [(&str, &str); LEN] = {
    let mut all = [("", ""); LEN];
    let mut at = 0;
    let mut from = 0;
    while from < rules::SETTINGS.len() {
        all[at] = rules::SETTINGS[from];
        (at, from) = (at + 1, from + 1);
    }
    from = 0;
    while from < OWN.len() {
        all[at] = OWN[from];
        (at, from) = (at + 1, from + 1);
    }
    from = 0;
    while from < POLICIES.len() {
        all[at] = POLICIES[from];
        (at, from) = (at + 1, from + 1);
    }
    all
};

/// Settings of a function.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) engine: EngineSettings,
    pub(crate) shuns: bool,
    /// Limit of the time for a burst; `None` without one.
    pub(crate) burst: Option<std::time::Duration>,
    /// The levels of overload that this profile has.
    pub(crate) levels: &'static [Overload],
}

/// Levels of overload with profile closed, which never inspects a flow less.
const CLOSED: &[Overload] = &[Overload::NONE, Overload::RECORDS, Overload::FLOWS];
/// Levels of overload with profile open.
const OPEN: &[Overload] = &[
    Overload::NONE,
    Overload::RECORDS,
    Overload::DEPTH,
    Overload::DEPTH_AND_FLOWS,
];

/// Returns the value that belongs to the word of a setting.
fn choice<T: Copy>(
    settings: &Settings,
    key: &'static str,
    default: T,
    words: &[(&str, T)],
) -> Result<T, SettingError> {
    let Some(value) = settings.one(key)? else {
        return Ok(default);
    };
    let found = words.iter().find(|(word, _)| *word == value);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        SettingError::value(key, value, format!("expected {}", names.join(", ")))
    })
}

/// Time for which fragments wait for the rest of their packet: the longest time for which receivers keep them
/// (RFC 1122, section 3.3.2), so that a receiver assembles no packet that the function has not inspected.
const FRAGMENT_TIMEOUT: Duration = Duration::from_secs(120);

const YES_NO: &[(&str, bool)] = &[("yes", true), ("no", false)];

impl Config {
    /// Reads the settings of a function in a mode.
    pub(crate) fn read(setup: &Setup, mode: Mode) -> Result<Config, SettingError> {
        let settings = &setup.settings;
        check_rules(settings)?;
        let is_open = choice(settings, "profile", false, &[("closed", false), ("open", true)])?;
        let mut policies = match is_open {
            true => Policies::open(),
            false => Policies::closed(),
        };
        let words: Vec<(&str, Policy)> = Policy::ALL
            .iter()
            .map(|policy| (policy.name(), *policy))
            .collect();
        for (cause, (key, _)) in Cause::ALL.iter().zip(POLICIES) {
            policies = policies.with(*cause, choice(settings, key, policies.of(*cause), &words)?);
        }
        let yes_no = |key, default| choice(settings, key, default, YES_NO);
        let flows = settings.within("flows", 262_144_usize, 64..=1 << 24)?;
        let memory: usize = settings.within("memory_mib", 768_usize, 2..=1 << 20)? << 20;
        let depth = settings.within("stream_depth", 1_u64 << 20, 0..=1 << 40)?;
        let body = settings.within("body_kib", 100_usize, 1..=1 << 20)? << 10;
        let burst = settings.within("burst_us", 2000_u64, 0..=1_000_000)?;
        settings.within("eve_version", 7_u8, 7..=8)?;
        settings.within("statistics_s", 8_u64, 0..=86_400)?;
        settings.within("data_mib", crate::formatter::DATA_MIB, 1..=1 << 30)?;
        let stores = settings.one("data")?.is_some();
        if stores && settings.one("export")?.is_none() {
            return Err(SettingError::Missing {
                key: "export",
                expected: "a target of events beside `data`, as in export=file:/var/log/millrace/eve.json"
                    .to_owned(),
            });
        }
        let defaults = EngineSettings::default();
        let engine = EngineSettings {
            mode,
            checks_checksums: yes_no("checksums", true)?,
            stream_depth: depth,
            accepts_midstream: yes_no("midstream", false)?,
            accepts_async: yes_no("asymmetric", false)?,
            minimum_ttl: settings.value("minimum_ttl", 0)?,
            drops_tcp_fragments: choice(
                settings,
                "tcp_fragments",
                false,
                &[("inspect", false), ("drop", true)],
            )?,
            encryption: choice(
                settings,
                "encrypted",
                Encryption::TrackOnly,
                &[
                    ("full", Encryption::Full),
                    ("track-only", Encryption::TrackOnly),
                    ("bypass", Encryption::Bypass),
                ],
            )?,
            policies,
            records: choice(settings, "events", true, &[("alerts", false), ("all", true)])?,
            frames: yes_no("frames", false)?,
            arp: yes_no("arp", false)?,
            flows: setup.table_len(flows),
            app: millrace_ips_engine::app::AppSettings {
                request_body_limit: body,
                response_body_limit: body,
                content_codings: settings.within(
                    "content_codings",
                    defaults.app.content_codings,
                    CONTENT_CODINGS,
                )?,
                attachment_limit: body,
                hashes_files: yes_no("hashes", false)?,
                store_limit: if stores { STORE_LIMIT } else { 0 },
                ..defaults.app
            },
            fragment_timeout: FRAGMENT_TIMEOUT,
            ..defaults
        }
        .within(memory);
        Ok(Config {
            engine,
            shuns: yes_no("shun", true)?,
            burst: (is_open && burst != 0).then(|| std::time::Duration::from_micros(burst)),
            levels: if is_open { OPEN } else { CLOSED },
        })
    }
}

/// Checks the settings from which rules are compiled. Their files are read later.
fn check_rules(settings: &Settings) -> Result<(), SettingError> {
    if settings.all("rules").next().is_none() {
        return Err(SettingError::Missing {
            key: "rules",
            expected: "the path of a rule file".to_owned(),
        });
    }
    settings.value("syntax", millrace_ips_rules::Syntax::Suricata)?;
    let refused = |reason| SettingError::Refused { reason };
    let mut known = millrace_ips_rules::Variables::usual();
    crate::bundle::accepts_fewer(settings).map_err(refused)?;
    for (name, value) in crate::bundle::variables(settings).map_err(refused)? {
        known
            .set(&name, &value)
            .map_err(|reason| refused(format!("the variable {name}={value}: {reason}")))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn config(texts: &[&str]) -> Result<Config, SettingError> {
        let settings = Settings::parse(texts).unwrap();
        Config::read(&crate::IPS.small_setup(&settings), Mode::Ips)
    }

    #[test]
    fn policies_are_of_the_profile_unless_named() {
        let closed = config(&["rules=x", "on_midstream=ignore"]).unwrap();
        assert_eq!(closed.engine.policies.of(Cause::Midstream), Policy::Ignore);
        assert_eq!(closed.engine.policies.of(Cause::NoRules), Policy::DropFlow);
        let open = config(&["rules=x", "profile=open"]).unwrap();
        assert_eq!(open.engine.policies.of(Cause::NoRules), Policy::Bypass);
        assert!(open.burst.is_some() && closed.burst.is_none());
        for (cause, (key, _)) in Cause::ALL.iter().zip(POLICIES) {
            assert_eq!(key, format!("on_{}", cause.name()));
        }
    }

    #[test]
    fn the_bytes_of_files_are_kept_only_if_there_is_a_folder_for_them() {
        let limit = |texts: &[&str]| config(texts).unwrap().engine.app.store_limit;
        assert_eq!(limit(&["rules=x"]), 0);
        assert!(limit(&["rules=x", "data=/tmp/x", "export=file:/tmp/y"]) > 0);
    }

    #[test]
    fn fragments_wait_as_long_as_receivers_keep_them() {
        let engine = config(&["rules=x"]).unwrap().engine;
        assert_eq!(engine.fragment_timeout, Duration::from_secs(120));
    }

    #[test]
    fn errors_name_the_setting_and_what_it_takes() {
        let error = |texts: &[&str]| config(texts).unwrap_err().to_string();
        assert_eq!(
            error(&["profile=open"]),
            "`rules` is missing: expected the path of a rule file"
        );
        assert_eq!(
            error(&["rules=x", "on_overload=perhaps"]),
            "`on_overload=perhaps`: expected ignore, pass-packet, bypass, drop-packet, drop-flow, reject"
        );
        assert!(error(&["rules=x", "home_net=10.0.0.0/99"]).contains("HOME_NET=10.0.0.0/99"));
        assert!(error(&["rules=x", "syntax=iptables"]).contains("syntax"));
        assert!(error(&["rules=x", "data=/tmp/x"]).starts_with("`export` is missing"));
    }
}
