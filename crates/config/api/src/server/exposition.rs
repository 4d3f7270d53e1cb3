//! The text format in which Prometheus reads metrics ("Exposition formats", version 0.0.4).

use std::fmt::Write as _;

/// The value of a sample.
pub(crate) enum Number {
    Integer(i128),
    Real(f64),
    /// There is no sample.
    Absent,
}

macro_rules! number_from {
    ($($kind:ty),+) => {
        $(impl From<$kind> for Number {
            fn from(value: $kind) -> Number {
                Number::Integer(value.into())
            }
        })+
    };
}
number_from!(bool, u8, u16, u32, u64, i64);

impl From<usize> for Number {
    fn from(value: usize) -> Number {
        Number::Integer(value as i128)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Real(value)
    }
}

impl<T: Into<Number>> From<Option<T>> for Number {
    fn from(value: Option<T>) -> Number {
        value.map_or(Number::Absent, Into::into)
    }
}

/// A metric: `counter` or `gauge`, the name, the help text, and the value for a `T`.
pub(crate) type Metric<T> = (&'static str, &'static str, &'static str, fn(&T) -> Number);

/// Returns a table of [`Metric`]s: `KIND NAME, HELP => VALUE;` for each.
macro_rules! metrics {
    ($($kind:ident $name:literal, $help:literal => $value:expr;)+) => {
        &[$((stringify!($kind), $name, $help, |item| $crate::server::exposition::number(item, $value))),+]
    };
}
pub(super) use metrics;

/// Returns the value of a metric for an item.
pub(crate) fn number<T, V: Into<Number>>(item: &T, value: impl FnOnce(&T) -> V) -> Number {
    value(item).into()
}

/// Labels with their values.
pub(super) type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

/// Writes each metric with a sample for each item.
pub(super) fn write<T, const N: usize>(
    out: &mut String,
    metrics: &[Metric<T>],
    items: &[(Labels<'_, N>, &T)],
) {
    for (kind, name, help, value) in metrics {
        let mut family = Family::new(out, name, kind, help);
        for (labels, item) in items {
            match value(item) {
                Number::Integer(value) => family.sample(labels, value),
                Number::Real(value) => family.sample(labels, value),
                Number::Absent => {}
            }
        }
    }
}

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
