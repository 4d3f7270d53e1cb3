//! The state that rules share: conditions on bits and counters, changes of bits and counters, and thresholds.

use std::sync::Arc;

use millrace_ips_rules::header::Action;
use millrace_ips_rules::options::state::{Rate, SuppressTrack};
use millrace_ips_rules::variables::Ranges;

/// The object that has a bit: flow, transaction, address, or pair of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BitTable {
    Flow,
    /// The transaction of the rule.
    Transaction,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The pair of addresses.
    Pair,
}

/// A condition on bits or counters that rules share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateTest {
    /// Bits are set.
    Bits {
        table: BitTable,
        bits: Vec<u32>,
        /// True if the condition is on all of the bits, false if on any of them.
        is_all: bool,
        /// True if the bits must not be set.
        is_negated: bool,
    },
    /// A counter compares with a value.
    Counter {
        counter: u32,
        /// The comparison.
        test: CounterTest,
    },
}

/// The value of a counter operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterValue {
    Number(u32),
    /// Another counter.
    Counter(u32),
}

/// A comparison of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterTest {
    /// The counter exists or not.
    IsSet(bool),
    Equal(CounterValue),
    NotEqual(CounterValue),
    Less(CounterValue),
    /// Less or equal.
    LessOrEqual(CounterValue),
    Greater(CounterValue),
    /// Greater or equal.
    GreaterOrEqual(CounterValue),
}

/// A change of shared state by a rule that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Bits are set, unset or inverted.
    Bits {
        table: BitTable,
        bits: Vec<u32>,
        /// The new value; none inverts the bits.
        value: Option<bool>,
        /// Time after which a bit of an address expires, in seconds; with 0 it expires after the usual time.
        expire: u32,
    },
    /// A counter is set or changed.
    Counter {
        counter: u32,
        /// The operator: `=`, `+` or `-`.
        operator: CounterOperator,
        value: CounterValue,
    },
}

/// A change of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterOperator {
    Set,
    Add,
    Subtract,
}

/// A rate or a suppression of a rule: its own, or one of the threshold table.
#[derive(Debug, Clone)]
pub enum ThresholdTest {
    /// Suppression of alerts, for all addresses or for the given ones.
    Suppress(Option<(SuppressTrack, Arc<Ranges>)>),
    /// A limit on the number of alerts, or a detection filter.
    Limit(Rate),
    /// Use of another action while a rate is exceeded.
    RateFilter {
        rate: Rate,
        /// The other action.
        new_action: Action,
        /// Time for which the other action remains in use, in seconds.
        timeout: u32,
    },
}
