//! Profiles as text for a terminal.

use std::fmt::Write as _;

use super::Profile;

/// The number of functions that are shown.
const FUNCTIONS_SHOWN: usize = 12;

/// Returns a table of all profiles, then the stages and functions of each.
pub fn text(profiles: &[Profile]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{:<13} {:<10} {:>10} {:>8} {:>12} {:>12} {:>13} {:>9} {:>6}",
        "system", "load", "packets/s", "CPU", "switches/s", "per Mpacket", "machine/Mpkt", "faults", "CPI"
    );
    for profile in profiles {
        let counts = profile.counts;
        let own = counts.voluntary + counts.involuntary;
        let plain = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
        let rate = profile.packets.map(|packets| packets as f64 / profile.seconds);
        let _ = writeln!(
            out,
            "{:<13} {:<10} {:>10} {:>6.0} % {:>12.0} {:>12} {:>13} {:>9} {:>6}",
            profile.system,
            profile.load,
            plain(rate),
            100.0 * counts.cpu_s / profile.seconds,
            own as f64 / profile.seconds,
            plain(profile.per_million_packets(own)),
            plain(profile.per_million_packets(counts.machine)),
            counts.minor_faults + counts.major_faults,
            profile
                .cycles_per_instruction()
                .map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.2}")),
        );
    }
    for profile in profiles {
        let _ = writeln!(
            out,
            "\n{} ({}), {} samples",
            profile.system, profile.load, profile.samples
        );
        for share in &profile.stages {
            let _ = writeln!(out, "  {:>5.1} %  {}", share.share * 100.0, share.stage);
        }
        if !profile.functions.is_empty() {
            out.push_str("  functions, without their callees:\n");
        }
        for function in profile.functions.iter().take(FUNCTIONS_SHOWN) {
            let _ = writeln!(
                out,
                "  {:>5.1} %  {:<16} {}",
                function.share * 100.0,
                function.stage,
                function.function
            );
        }
        for counter in &profile.counters {
            let Some(value) = counter.value else { continue };
            let per_packet = profile.per_packet(value);
            let per_packet = per_packet.map_or_else(String::new, |value| format!(", {value:.2} a packet"));
            let _ = writeln!(out, "  {}: {value:.0}{per_packet}", counter.event);
        }
        for note in &profile.notes {
            let _ = writeln!(out, "  note: {note}");
        }
    }
    out
}
