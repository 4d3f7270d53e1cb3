//! The FIB beside slow tables, and under readers.

mod churn;
mod next_hops;
mod readers;
mod slow;
