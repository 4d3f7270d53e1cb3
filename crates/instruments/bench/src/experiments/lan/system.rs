//! The systems of the experiment `lan`.

use clap::ValueEnum;

/// A switch that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum System {
    /// Millrace
    Millrace,
    /// The kernel's bridge
    LinuxBridge,
    /// Open vSwitch with its user-space datapath
    Ovs,
    /// Open vSwitch with DPDK
    OvsDpdk,
}

impl System {
    /// The systems, in the order of measurement.
    pub const ALL: [System; 4] = [
        System::Millrace,
        System::LinuxBridge,
        System::Ovs,
        System::OvsDpdk,
    ];

    /// Returns the name in records, which is also the kind in a lab file.
    pub fn name(self) -> &'static str {
        match self {
            System::Millrace => "millrace",
            System::LinuxBridge => "linux-bridge",
            System::Ovs => "ovs",
            System::OvsDpdk => "ovs-dpdk",
        }
    }

    /// Returns the settings that differ from the system as shipped, in one line.
    pub fn configuration(self) -> &'static str {
        match self {
            System::Millrace => "as shipped: learning switch, one worker that sleeps when idle",
            System::LinuxBridge => "as shipped; no packet filter, no spanning tree",
            System::Ovs => "as shipped: datapath_type=netdev, one flow entry actions=NORMAL",
            System::OvsDpdk => {
                "as shipped: datapath_type=netdev, ports by net_af_packet, one PMD thread, no huge pages, \
                 one flow entry actions=NORMAL"
            }
        }
    }
}
