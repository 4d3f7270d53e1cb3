//! OpenFlow port numbers for switches that have none.

use std::collections::BTreeSet;

use millrace_types::PortNo;

/// The numbers that ports of a bridge have.
#[derive(Debug, Default)]
pub(crate) struct Taken(BTreeSet<u32>);

impl Taken {
    /// Returns the wanted number if it is a free number of a port, otherwise the lowest that is free.
    pub(crate) fn take(&mut self, wanted: Option<u32>) -> PortNo {
        let is_port = |number: &u32| (1..=PortNo::MAX.raw()).contains(number);
        let wanted = wanted.filter(|number| is_port(number) && !self.0.contains(number));
        let number = wanted.or_else(|| (1..=PortNo::MAX.raw()).find(|number| !self.0.contains(number)));
        // A file with as many ports as there are numbers exceeds the limit of files by far.
        let number = number.unwrap_or(PortNo::MAX.raw());
        self.0.insert(number);
        PortNo::from_raw(number)
    }
}
