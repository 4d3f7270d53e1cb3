//! The records of the experiment `chain`.

use serde::{Deserialize, Serialize};

/// The rate of one chain at one frame size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The kind of the functions, or the name of the other switch.
    pub kind: String,
    /// The number of functions.
    pub length: u16,
    /// The size of a frame with its check sequence in bytes.
    pub frame: u16,
    /// Million packets per second that reached the sink.
    pub mpps: f64,
    /// The same rate on a wire, with preamble and gap, in Gbit/s.
    pub gbps: f64,
    /// The ratio to the rate of a chain of one function.
    pub ratio_one_hop: f64,
    /// The ratio to the rate of Open vSwitch with as many functions behind vhost-user ports.
    pub ratio_ovs: Option<f64>,
}
