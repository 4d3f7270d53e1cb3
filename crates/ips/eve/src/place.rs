//! Which line has the object of a transaction.

/// The line that has the object of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The line of an alert, which has both directions of the transaction.
    Alert,
    /// A record of the transaction, or of one of its files. DNS version 2 has a record for each question.
    Record { question: usize },
}

impl Place {
    /// The only record of a transaction.
    pub(crate) const RECORD: Place = Place::Record { question: 0 };
}
