//! Workers that move packets, and the devices they move them between.

#![deny(unsafe_code)]

pub mod io;
pub mod publish;
