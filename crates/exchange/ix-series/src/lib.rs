//! Time series of an exchange: rates in bit/s, and round-trip times, in files of bounded size.
//!
//! ```text
//!  interval of 10 s --one write--> log of the hour --end of the hour--> raw-HOUR.chunk    360 points of 10 s   6 hours
//!                                        |                         \--> five-HOUR.piece    12 points of 5 min
//!                                        v                                   |end of the day
//!                                  columns in memory                         +--> five-DAY.chunk  288 points of 5 min  100 days
//!                                        |                                   \--> hour-DAY.chunk   24 points of 1 h    3 years
//!  graph of day, week, month, year <-----+---- read() <----- files
//!  95th percentile of a month    <-------/
//! ```
//! A point has the average of its time and its coverage: the share of the time that is known. Time is an argument.

#![forbid(unsafe_code)]

mod billing;
mod chunk;
mod current;
mod frozen;
mod graph;
mod interval;
mod key;
mod log;
mod point;
mod shared;
mod store;

pub use billing::{Figure, Month, Percentile, percentile};
pub use current::SERIES_MAX;
pub use graph::{GraphPoint, Period};
pub use jiff::tz::{Offset, TimeZone};
pub use key::{Key, Measure, Subject};
pub use point::{Level, Point, decode, encode};
pub use shared::Shared;
pub use store::{ForeignError, SeriesError, Store, day_file_of, surplus};
