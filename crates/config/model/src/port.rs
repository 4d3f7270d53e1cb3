//! Ports of a bridge.

use millrace_types::{PortNo, Vid};

use crate::choice::{PortLldp, PortPipeline, ServiceTag};
use crate::device::Device;
use crate::name::PortName;
use crate::number::{FrameOverhead, Mtu, QueueCount, RestoreTime, SamplingRate};
use crate::oam::{Bfd, Ccm, FlapDamping};
use crate::offload::PortOffload;
use crate::qos::{Policer, Queue, Rate};
use crate::routing::UnicastMac;
use crate::rstp::PortRstp;
use crate::section::{deserialize, section};

section! {
    /// A port: a name, an OpenFlow number and a device.
    pub struct Port (live, by name) {
        required {
            /// The name of the port, unique in its bridge.
            pub name: PortName,
            /// The OpenFlow port number, unique in its bridge.
            pub number: PortNo,
            /// The device of the port: a NIC by PCI address (`0000:01:00.0`), `kernel:INTERFACE` (an interface of the
            /// kernel; needs CAP_NET_RAW; see docs/interfaces.md), a DPDK virtual device by its devargs
            /// (`net_af_xdp0,iface=eth1`), `pcap:rx=FILE,tx=FILE` (`,loop=true` repeats the file endlessly),
            /// `link:NAME` (a link between the two ports with this name), `wan:NAME,a` and `wan:NAME,b` (the two ends of
            /// the emulated path `[[wan]]` NAME; see docs/wan.md), `tap:NAME` (a kernel interface that Millrace
            /// creates), a virtual NIC (`vhost:PATH`, `virtio-user:PATH` or `memif:PATH`; see docs/vnics.md), a NIC that
            /// dispatches packets (`nic:PATH`; see docs/smart-nic.md), a tunnel
            /// (`vxlan:remote=IP,local=IP,underlay=PORT,key=NUMBER`; also `gre`, `gtpu` and `mplsudp`, and `underlay=host`;
            /// see docs/tunnels.md), a port of service paths (`nsh:remote=MAC,underlay=PORT,in=PATH/INDEX,out=PATH/INDEX`),
            /// `lag:NAME` (the members of the `[[bridge.lag]]` NAME; see docs/lag.md) or `memory`. Only NICs, DPDK's
            /// virtual devices and `virtio-user` need DPDK.
            pub device: Device,
        }
        optional {
            /// The number of receive queues, and of transmit queues. Unset, the number of workers if the device
            /// distributes flows over its queues (RSS, or the kernel for `kernel:INTERFACE`), otherwise one.
            pub queues: Option<QueueCount> = None,
            /// The largest layer-3 packet, in bytes; frames are up to 22 bytes longer (Ethernet, two VLAN
            /// tags).
            pub mtu: Mtu = Mtu::ETHERNET,
            /// The MAC address of a `tap:` device. Unset, the kernel chooses it. Other devices have an address of their own.
            pub mac: Option<UnicastMac> = None,
            /// NORMAL: the VLAN of untagged frames. Without `trunks` this makes an access port.
            pub vlan: Option<Vid> = None,
            /// NORMAL: the VLANs carried with a tag. Without `vlan` this makes a trunk that drops untagged
            /// frames; without both, the port carries every VLAN, and untagged frames.
            pub trunks: Vec<Vid> = Vec::new(),
            /// NORMAL: if true, packets of `vlan` leave with a tag, as those of `trunks` do, and arrive with or without it.
            pub vlan_tagged: bool = false,
            /// NORMAL: makes the port the edge of a provider's bridge (IEEE 802.1Q, a customer network port): `vlan` is the
            /// service VLAN of all that arrives, and the tag of the customer, if any, stays inside.
            pub dot1q_tunnel: Option<Dot1qTunnel> = None,
            /// NORMAL forwards nothing between two ports for which this is true.
            pub protected: bool = false,
            /// The part of the switch that decides about packets that arrive here (OpenFlow 1.3.5, section 5.1, asks a
            /// hybrid switch to classify packets). NORMAL needs no controller, so a bridge with `fail_mode = "secure"`
            /// routes the packets of such ports whatever its tables hold.
            pub pipeline: PortPipeline = PortPipeline::Tables,
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
            /// The maximum rate of the port, for all its queues together. Unset, the device sets the rate.
            pub rate: Option<Rate> = None,
            /// The number of bytes that `rate` and the rates of queues add to the size of each frame (without
            /// it, a frame counts from its Ethernet header on); 24 covers frame check sequence, preamble and
            /// inter-frame gap.
            pub frame_overhead: FrameOverhead = FrameOverhead::NONE,
            /// The egress queues of the port.
            pub egress_queues as "queue": Vec<Queue> = Vec::new(),
            /// The ingress policer of the port.
            pub policer: Option<Policer> = None,
            /// The use of the entries of a device that classifies packets: `nic:PATH`, or a device of DPDK. Unset, the device
            /// chooses queues only.
            pub offload: Option<PortOffload> = None,
            /// BFD with the switch or router at the other end; the port is live only while the session is up.
            pub bfd: Option<Bfd> = None,
            /// Continuity check messages with the other end; the port is live only while they arrive.
            pub ccm: Option<Ccm> = None,
            /// The time for which BFD and continuity checks must work after a failure before the port is live again.
            pub wait_to_restore_s: RestoreTime = RestoreTime::DEFAULT,
            /// Flap damping of the link.
            pub damping: Option<FlapDamping> = None,
            /// RSTP at the port; it has an effect only in a bridge with `rstp`, where it is enabled at all ports.
            pub rstp: Option<PortRstp> = None,
            /// LLDP at the port; it has an effect only in a bridge with `lldp`.
            pub lldp: PortLldp = PortLldp::Both,
            /// The mean number of packets for each sample of sFlow and IPFIX at this port; 0 takes no samples. Unset, the
            /// rate in `sflow` or `ipfix` of the bridge applies; a bridge without both takes no samples.
            pub sampling_rate: Option<SamplingRate> = None,
            /// If true, packets stay in the device while the output port of the previous packets has no room,
            /// so they wait at the sender and are not dropped. All packets of the port wait, whatever their
            /// output port. Use it for ports whose packets all go to one port, such as the ports of functions
            /// in a chain. Packets wait only for output ports of which the worker that receives them has a
            /// transmit queue. With several `workers`, packets to a port with fewer transmit queues (a virtual
            /// NIC, `tap`, `link` and `wan` have one), and packets that a worker hands off (`spread`), may be
            /// dropped. A port with `queue` or `rate` drops what its queues do not hold.
            pub backpressure: bool = false,
        }
    }
}

section! {
    /// The customer's VLANs at a port that carries them in a service VLAN.
    pub struct Dot1qTunnel (live) {
        required {}
        optional {
            /// The VLANs of the customer that the port carries; packets of others, and untagged ones, are dropped. Empty, the
            /// port carries all.
            pub customer_vlans: Vec<Vid> = Vec::new(),
            /// The tag that packets from the port have where they leave with one for the service VLAN.
            pub service_tag: ServiceTag = ServiceTag::Dot1ad,
        }
    }
}

deserialize!(Port, Dot1qTunnel);

/// The VLAN mode of a port for NORMAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VlanMode<'a> {
    /// Every VLAN with a tag, and untagged frames as a separate network.
    TrunkAll,
    /// Only these VLANs, tagged.
    Trunk(&'a [Vid]),
    /// Untagged frames of one VLAN.
    Access(Vid),
    /// Frames of a customer, with their tags, in a service VLAN.
    Tunnel {
        /// The service VLAN.
        service: Vid,
        /// The customer's VLANs.
        customer: &'a Dot1qTunnel,
    },
    /// Tagged frames, and untagged ones that arrive as those of one VLAN.
    NativeTagged {
        /// The VLAN of untagged frames that arrive.
        native: Vid,
        /// The other VLANs.
        others: &'a [Vid],
    },
    /// Untagged frames of one VLAN, and tagged frames of others.
    Native {
        /// The VLAN of untagged frames.
        untagged: Vid,
        /// The VLANs with a tag.
        tagged: &'a [Vid],
    },
}

impl Port {
    /// Returns the VLAN mode of the port for NORMAL.
    pub fn vlan_mode(&self) -> VlanMode<'_> {
        if let (Some(service), Some(customer)) = (self.vlan, &self.dot1q_tunnel) {
            return VlanMode::Tunnel { service, customer };
        }
        match (self.vlan, self.trunks.as_slice()) {
            (Some(native), others) if self.vlan_tagged => VlanMode::NativeTagged { native, others },
            (None, []) => VlanMode::TrunkAll,
            (None, tagged) => VlanMode::Trunk(tagged),
            (Some(vlan), []) => VlanMode::Access(vlan),
            (Some(untagged), tagged) => VlanMode::Native { untagged, tagged },
        }
    }
}
