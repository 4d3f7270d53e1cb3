//! The memory in which frames wait: a ring of records, and a timer wheel for frames that overtake each other.

mod bitmap;
pub(crate) mod records;
pub(crate) mod wheel;
