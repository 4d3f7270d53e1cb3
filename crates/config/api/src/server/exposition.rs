//! The text format in which Prometheus reads metrics ("Exposition formats", version 0.0.4).

use std::fmt::Write as _;

/// The name, the help text and the value of a metric.
pub(crate) type Metric<T> = (&'static str, &'static str, fn(&T) -> u64);

/// Writes a metric: its help and type, then its samples.
pub(super) struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl<'a> Family<'a> {
    pub(super) fn new(out: &'a mut String, name: &'static str, kind: &str, help: &str) -> Family<'a> {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { out, name }
    }

    pub(super) fn counter(out: &'a mut String, name: &'static str, help: &str) -> Family<'a> {
        Family::new(out, name, "counter", help)
    }

    pub(super) fn gauge(out: &'a mut String, name: &'static str, help: &str) -> Family<'a> {
        Family::new(out, name, "gauge", help)
    }

    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.out.push_str(self.name);
        for (i, (name, value)) in labels.iter().enumerate() {
            let _ = write!(
                self.out,
                "{}{name}=\"{}\"",
                if i == 0 { '{' } else { ',' },
                escape(value)
            );
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
