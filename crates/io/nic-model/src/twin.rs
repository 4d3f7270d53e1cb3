//! A twin: another device that gets what the model gets, and must put out the same. The RTL in its simulator is one.

use core::fmt::Debug;

use millrace_nic::Completion;
use millrace_nic::record::{Input, Output};

/// A device that takes records.
pub trait Twin: Debug {
    /// Takes records, and returns all that they cause.
    ///
    /// # Errors
    /// The reason why the device does not answer.
    fn run(&mut self, inputs: &[Input]) -> Result<Vec<Output>, String>;
}

/// The order in which a record counts: that of its queue, of drops that no queue counts, of commands, or of counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stream {
    Queue(u8),
    Drops,
    Commands,
    Counts,
}

impl Stream {
    fn of(record: &Output) -> Stream {
        match record {
            Output::Completion { queue, .. } | Output::Drop { counter: 6, queue } => Stream::Queue(*queue),
            Output::Drop { .. } => Stream::Drops,
            Output::Command { .. } => Stream::Commands,
            Output::Count { .. } | Output::Synced { .. } => Stream::Counts,
        }
    }
}

fn text(record: Option<&Output>) -> String {
    match record {
        None => "nothing".to_owned(),
        Some(Output::Completion { queue, bytes }) => {
            format!("queue {queue}: {:x?}", Completion::from_bytes(bytes))
        }
        Some(other) => format!("{other:x?}"),
    }
}

/// Returns the first difference between the records of the model and those of another device in each stream, for people.
#[must_use]
pub fn differences(expected: &[Output], found: &[Output]) -> Vec<String> {
    let mut streams: Vec<Stream> = expected.iter().chain(found).map(Stream::of).collect();
    streams.sort_unstable();
    streams.dedup();
    let difference = |stream: Stream| {
        let of = |records: &[Output]| -> Vec<Output> {
            let records = records.iter().filter(|record| Stream::of(record) == stream);
            records.cloned().collect()
        };
        let (expected, found) = (of(expected), of(found));
        let at = (0..expected.len().max(found.len())).find(|at| expected.get(*at) != found.get(*at))?;
        let (model, other) = (text(expected.get(at)), text(found.get(at)));
        Some(format!(
            "{stream:?}, record {at}:\n  model     {model}\n  simulator {other}"
        ))
    };
    streams.into_iter().filter_map(difference).collect()
}
