//! Ports of a bridge.

use millrace_types::{PortNo, Vid};

use crate::device::Device;
use crate::name::PortName;
use crate::number::{FrameOverhead, Mtu, QueueCount};
use crate::qos::{Policer, Queue, Rate};
use crate::section::{deserialize, section};

section! {
    /// A port: a name, an OpenFlow number and a device.
    pub struct Port (live, by name) {
        required {
            /// The name of the port, unique in its bridge.
            pub name: PortName,
            /// The OpenFlow port number, unique in its bridge.
            pub number: PortNo,
            /// The device behind the port: a NIC by PCI address (`0000:01:00.0`), `kernel:INTERFACE` (an interface
            /// that the kernel has, with CAP_NET_RAW; see docs/interfaces.md), any DPDK virtual
            /// device by its devargs (`net_af_xdp0,iface=eth1`), `pcap:rx=FILE,tx=FILE`
            /// (`,loop=true` replays for ever), `link:NAME` (two ports with one name are joined),
            /// `tap:NAME` (an interface of the kernel that Millrace makes), a virtual NIC (`vhost:PATH`,
            /// `virtio-user:PATH` or `memif:PATH`; see docs/vnics.md), a tunnel
            /// (`vxlan:remote=IP,local=IP,underlay=PORT,key=NUMBER`; also `gre`, `gtpu` and `mplsudp`; see
            /// docs/tunnels.md), a port of service paths
            /// (`nsh:remote=MAC,underlay=PORT,in=PATH/INDEX,out=PATH/INDEX`) or `memory`. Only NICs, DPDK's virtual devices
            /// and `virtio-user` need DPDK.
            pub device: Device,
        }
        optional {
            /// How many receive and transmit queues to use. Unset, as many as there are workers if the device
            /// spreads flows over queues by itself (RSS, or the kernel for `kernel:INTERFACE`), otherwise one.
            pub queues: Option<QueueCount> = None,
            /// The largest layer-3 packet; frames are up to 22 bytes longer (Ethernet, two VLAN tags).
            pub mtu: Mtu = Mtu::ETHERNET,
            /// NORMAL: the VLAN of untagged frames. Without `trunks` this makes an access port.
            pub vlan: Option<Vid> = None,
            /// NORMAL: the VLANs carried with a tag. Without `vlan` this makes a trunk that drops untagged
            /// frames; without both, the port carries every VLAN, and untagged frames.
            pub trunks: Vec<Vid> = Vec::new(),
            /// Administratively down (`OFPPC_PORT_DOWN`).
            pub down: bool = false,
            /// Drop all that is received (`OFPPC_NO_RECV`).
            pub no_recv: bool = false,
            /// Drop all that is sent here (`OFPPC_NO_FWD`).
            pub no_fwd: bool = false,
            /// Send no packet-in for packets received here (`OFPPC_NO_PACKET_IN`).
            pub no_packet_in: bool = false,
            /// Leave the port out of FLOOD, and of flooding by NORMAL.
            pub no_flood: bool = false,
            /// How fast the port sends at most, all its queues together. Unset, as fast as its device takes packets.
            pub rate: Option<Rate> = None,
            /// How many bytes each frame counts for in `rate` and in the rates of queues besides those from its Ethernet
            /// header on; 24 are check sequence, preamble and the gap between frames.
            pub frame_overhead: FrameOverhead = FrameOverhead::NONE,
            /// The queues in which packets wait that leave by the port.
            pub egress_queues as "queue": Vec<Queue> = Vec::new(),
            /// How fast packets may come in by the port.
            pub policer: Option<Policer> = None,
            /// Leave packets in the device while the port that the last of them went to has no room, so that they wait
            /// at their sender and are not dropped here. All of the port wait then, whichever way they go: for ports
            /// whose packets go one way, as those of functions in a chain.
            pub backpressure: bool = false,
        }
    }
}

deserialize!(Port);

/// How NORMAL sees a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VlanMode<'a> {
    /// Every VLAN with a tag, and untagged frames, which are a network of their own.
    TrunkAll,
    /// Only these VLANs, tagged.
    Trunk(&'a [Vid]),
    /// Untagged frames of one VLAN.
    Access(Vid),
    /// Untagged frames of one VLAN, and others with their tag.
    Native {
        /// The VLAN of untagged frames.
        untagged: Vid,
        /// The VLANs with a tag.
        tagged: &'a [Vid],
    },
}

impl Port {
    /// How NORMAL sees the port.
    pub fn vlan_mode(&self) -> VlanMode<'_> {
        match (self.vlan, self.trunks.as_slice()) {
            (None, []) => VlanMode::TrunkAll,
            (None, tagged) => VlanMode::Trunk(tagged),
            (Some(vlan), []) => VlanMode::Access(vlan),
            (Some(untagged), tagged) => VlanMode::Native { untagged, tagged },
        }
    }
}
