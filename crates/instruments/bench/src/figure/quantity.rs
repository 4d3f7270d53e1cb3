//! A quantity: a figure that is not a rate of packets, its unit, and the bound that Millrace has to keep.

use std::fmt;

use crate::record::{Record, failure};
use millrace_report::stats::Summary;

/// The bound of a quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// The median must be at most this.
    AtMost(f64),
    /// The median must be at least this.
    AtLeast(f64),
    /// The value must be 0 in every round: the largest value is judged, not the median.
    Never,
    /// The quantity has no bound.
    None,
}

/// A figure that is not a rate of packets, with its unit and target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// The name of the case in which the quantity is measured.
    pub case: &'static str,
    /// The name of the quantity.
    pub name: &'static str,
    /// The description of the quantity.
    pub title: &'static str,
    pub unit: &'static str,
    /// The bound for Millrace.
    pub bound: Bound,
}

impl Quantity {
    /// Returns the values of a system in all rounds.
    pub(crate) fn values(&self, records: &[Record], of_system: &str) -> Vec<f64> {
        let value = |record: &Record| match record {
            Record::Figure {
                case,
                system,
                quantity,
                value,
                ..
            } if case == self.case && system == of_system && quantity == self.name => Some(*value),
            _ => None,
        };
        records.iter().filter_map(value).collect()
    }

    /// Returns the value that the bound applies to; `None` without values.
    pub fn aggregate(&self, values: &[f64]) -> Option<f64> {
        let summary = Summary::of(values)?;
        Some(match self.bound {
            Bound::Never => summary.max,
            Bound::AtMost(_) | Bound::AtLeast(_) | Bound::None => summary.median,
        })
    }

    /// Returns true if a value keeps the bound; `None` without a bound.
    pub fn met(&self, value: f64) -> Option<bool> {
        match self.bound {
            Bound::AtMost(most) => Some(value <= most),
            Bound::AtLeast(least) => Some(value >= least),
            Bound::Never => Some(value <= 0.0),
            Bound::None => None,
        }
    }

    /// Returns the reason why a system could not be measured in some round; `None` if all rounds were measured.
    pub(crate) fn failure<'a>(&self, records: &'a [Record], system: &str) -> Option<&'a str> {
        failure(records, self.case, system, Some(self.name))
    }

    /// Returns true if a system was measured in all rounds and keeps the bound; `None` without a bound or a value.
    pub(crate) fn verdict(&self, records: &[Record], system: &str) -> Option<bool> {
        let met = self.met(self.aggregate(&self.values(records, system))?)?;
        Some(met && self.failure(records, system).is_none())
    }

    /// Returns the bound in words: `at most 6 s`.
    pub fn target(&self) -> Option<String> {
        let unit = self.unit;
        match self.bound {
            Bound::AtMost(most) => Some(format!("at most {most} {unit}")),
            Bound::AtLeast(least) => Some(format!("at least {least} {unit}")),
            Bound::Never => Some(format!("no {unit} in any round")),
            Bound::None => None,
        }
        .map(|text| text.trim_end().to_owned())
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.name)
    }
}

/// Returns a quantity.
pub(crate) const fn quantity(
    case: &'static str,
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    bound: Bound,
) -> Quantity {
    Quantity {
        case,
        name,
        title,
        unit,
        bound,
    }
}
