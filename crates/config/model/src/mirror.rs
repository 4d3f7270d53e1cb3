//! Mirrors: copies of the packets of a bridge for a monitor.

use millrace_types::Vid;

use crate::bridge::Bridge;
use crate::name::{MirrorName, PortName};
use crate::number::{MirrorVlan, SnapLen};
use crate::section::{deserialize, section};

section! {
    /// A mirror (SPAN, RSPAN): copies of packets, as they arrive and as they leave, for a monitor. A packet that several
    /// keys select is copied once. See docs/mirrors.md.
    pub struct Mirror (live, by name) {
        required {
            /// The name of the mirror, unique in its bridge.
            pub name: MirrorName,
        }
        optional {
            /// Copy the packets of all ports, received and sent.
            pub select_all: bool = false,
            /// The ports whose received packets are copied, also those that the pipeline drops. The name of the bridge is
            /// its LOCAL port.
            pub select_received: Vec<PortName> = Vec::new(),
            /// The ports whose sent packets are copied.
            pub select_sent: Vec<PortName> = Vec::new(),
            /// Copy, of the packets of the selected ports, only those of these VLANs; 0 is packets without a VLAN. Empty is
            /// all of them.
            pub select_vlans: Vec<MirrorVlan> = Vec::new(),
            /// The port that sends the copies. It sends nothing else, and drops what it receives.
            pub output_port: Option<PortName> = None,
            /// The VLAN in which copies are flooded to all ports that carry it, in place of `output_port`. NORMAL learns no
            /// MAC addresses in it.
            pub output_vlan: Option<Vid> = None,
            /// The maximum size of a copy, in bytes. Unset, copies are whole.
            pub snaplen: Option<SnapLen> = None,
        }
    }
}

deserialize!(Mirror);

impl Mirror {
    /// Returns the names of the ports of `bridge` whose received packets are copied.
    pub fn received<'a>(&'a self, bridge: &'a Bridge) -> Vec<PortName> {
        self.selected(bridge, &self.select_received)
    }

    /// Returns the names of the ports of `bridge` whose sent packets are copied.
    pub fn sent<'a>(&'a self, bridge: &'a Bridge) -> Vec<PortName> {
        self.selected(bridge, &self.select_sent)
    }

    fn selected(&self, bridge: &Bridge, listed: &[PortName]) -> Vec<PortName> {
        if !self.select_all {
            return listed.to_vec();
        }
        let ports = bridge.all_ports().map(|port| port.name);
        ports
            .filter(|name| self.output_port.as_ref() != Some(name))
            .collect()
    }
}
