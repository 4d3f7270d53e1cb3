//! Events of functions as EVE JSON, on the control side.

use std::sync::Arc;

use millrace_ips_eve::{Layout, RuleTables, Version, Writer};
use millrace_nf::{Formatter, Settings, SharedValue};
use millrace_types::Time;

use crate::codec::Codec;
use crate::rules::Rules;

/// The default interval of statistics in seconds, as in Suricata.
pub(crate) const STATISTICS_S: u64 = 8;

/// Writes the events of a hop.
pub(crate) struct Eve {
    layout: Layout,
    writer: Writer,
    /// Interval of statistics; 0 writes none.
    statistics_s: u64,
    /// Unix time in seconds of the last statistics.
    last: u64,
    start_millis: u64,
}

/// Returns the formatter for the settings of a hop.
pub(crate) fn make(settings: &Settings, zero_unix_millis: u64) -> Box<dyn Formatter> {
    // The constructor of the function has checked the settings.
    let layout = Layout {
        version: match settings.value("eve_version", 7) {
            Ok(8) => Version::Eight,
            _ => Version::Seven,
        },
        packets: false,
    };
    Box::new(Eve {
        writer: Writer::new(layout.clone(), RuleTables::default()),
        layout,
        statistics_s: settings
            .value("statistics_s", STATISTICS_S)
            .unwrap_or(STATISTICS_S),
        last: 0,
        start_millis: zero_unix_millis,
    })
}

impl Formatter for Eve {
    fn share(&mut self, value: &SharedValue) {
        if let Some(rules) = value.get::<Rules>() {
            self.writer = Writer::new(self.layout.clone(), Arc::clone(&rules.tables));
        }
    }

    fn format(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let mut input = message;
        while let Some(event) = Codec::decode(&mut input) {
            self.writer.write(&event, None, out);
        }
    }

    fn report(&mut self, unix_millis: u64, counters: &[(&'static str, u64)], out: &mut Vec<u8>) {
        let now = unix_millis / 1000;
        if self.statistics_s == 0 || now < self.last + self.statistics_s {
            return;
        }
        self.last = now;
        let uptime = unix_millis.saturating_sub(self.start_millis) / 1000;
        self.writer
            .write_counters(Time::from_millis(unix_millis), uptime, counters, out);
    }
}
