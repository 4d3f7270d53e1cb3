//! The records of the experiment `lan`.

use serde::{Deserialize, Serialize};

/// A transfer through a switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    pub system: String,
    /// The number of the run, from 0.
    pub round: usize,
    /// The duration in seconds.
    pub seconds: f64,
    /// TCP payload that arrived, in bytes.
    pub bytes: f64,
    /// The number of retransmitted segments.
    pub retransmits: u64,
    /// The number of frames that the sending host sent.
    pub frames_sent: u64,
    /// The number of frames that the receiving host received.
    pub frames_received: u64,
    /// The processor time.
    pub cpu: Cpu,
    /// The commands that started the switch and the hosts, and that ran in the hosts.
    pub commands: Vec<String>,
}

/// Processor time during a transfer, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// The processor time of the whole machine: hosts, links and switch.
    pub machine_s: f64,
    /// The processor time of the programs of the switch; 0 for a switch in the kernel.
    pub switch_s: f64,
    /// The processor time of the sending and of the receiving iperf3.
    pub hosts_s: [f64; 2],
    /// The processor time that the hypervisor took away (steal time): a large value means a disturbed run.
    pub steal_s: f64,
}
