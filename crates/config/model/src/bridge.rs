//! Bridges and their OpenFlow connections.

use std::path::PathBuf;

use millrace_types::{Dpid, Mac, PortNo, Vid};

use crate::chain::Chain;
use crate::choice::{
    AuxiliaryTransport, FailMode, FlowCache, Fragments, LocalPort, SelectField, StandaloneFlows, WhenFull,
};
use crate::device::Device;
use crate::error::Path;
use crate::ipfix::Ipfix;
use crate::lag::Lag;
use crate::lldp::Lldp;
use crate::mirror::Mirror;
use crate::name::{BridgeName, DescriptionText, InterfaceName, PortName, SoftwareText};
use crate::number::{
    AuxiliaryCount, EchoInterval, MacAgeing, MacTableSize, MaxBackoff, MissSendLen, Mtu, ObservationId,
    PacketInBurst, PacketInRate, TableCount, TableNumber, TableSize,
};
use crate::port::Port;
use crate::routing::UnicastMac;
use crate::rstp::Rstp;
use crate::section::{deserialize, section};
use crate::sflow::Sflow;
use crate::target::{ControllerTarget, ListenTarget};

section! {
    /// An OpenFlow switch: ports, flow tables and controllers.
    pub struct Bridge (live, by name) {
        required {
            /// The name of the bridge, unique in the switch; also the name of its LOCAL port.
            pub name: BridgeName,
        }
        optional {
            /// The datapath id, unique in the switch and among all switches of a controller. Unset, the id is
            /// `local_mac`, or else derived from the name alone, so set it if one controller controls several machines.
            pub dpid: Option<Dpid> = None,
            /// The behaviour while no controller of `controllers` is connected, also after the start. As soon as one
            /// is, the entries that exist forward again.
            pub fail_mode: FailMode = FailMode::Secure,
            /// With `fail_mode = "standalone"`, the treatment of the flow entries when the bridge becomes a learning
            /// bridge.
            pub standalone_flows: StandaloneFlows = StandaloneFlows::Delete,
            /// Use of the cache of traversals, which holds the path of each flow through the tables.
            pub flow_cache: FlowCache = FlowCache::Auto,
            /// The fields that select groups hash to distinguish flows; empty selects addresses, VLAN, protocol and
            /// ports. Both directions of a flow have one hash. IP fragments and ICMP are hashed without ports, type and
            /// code.
            pub select_hash: Vec<SelectField> = Vec::new(),
            /// The treatment of IP fragments; a controller may change it. Reassembled packets may be longer than the
            /// MTU of the output port, which then drops them.
            pub fragments: Fragments = Fragments::Normal,
            /// If true, matches may use extensions of Open vSwitch to OpenFlow 1.3.5: masks on the ports of TCP, UDP and
            /// SCTP, `tcp_flags`, `nw_frag` and `nw_ttl`. If false, they are rejected, and table features do not list
            /// them. Existing entries stay when this changes.
            pub match_extensions: bool = true,
            /// The type of the LOCAL port.
            pub local: LocalPort = LocalPort::Off,
            /// The largest layer-3 packet of the LOCAL port, in bytes.
            pub local_mtu: Mtu = Mtu::ETHERNET,
            /// The MAC address of the LOCAL port, and of a bridge without `dpid` also the low 48 bits of the datapath ID.
            /// Unset, the kernel chooses the address.
            pub local_mac: Option<UnicastMac> = None,
            /// The number of flow tables.
            pub tables: TableCount = TableCount::DEFAULT,
            /// Settings of individual flow tables.
            pub table_settings as "table": Vec<Table> = Vec::new(),
            /// Controllers to connect to, 8 at most, each `"tcp:HOST:PORT"`, `"tls:HOST:PORT"` or a table.
            pub controllers: Vec<Controller> = Vec::new(),
            /// Addresses on which the bridge accepts controllers, each `"ptcp:PORT:HOST"`, `"ptls:PORT:HOST"` or a
            /// table. The default host is the loopback address.
            pub listen: Vec<Listener> = Vec::new(),
            /// The keys and certificates for `tls:` controllers and `ptls:` listeners, which need them.
            pub tls: Option<Tls> = None,
            /// The description of the bridge for controllers (`OFPMP_DESC`).
            pub description: Description = Description::new(),
            /// The VLANs whose packets NORMAL forwards without the flow tables, at whatever port they arrive; see
            /// `pipeline` of a port.
            pub normal_vlans: Vec<Vid> = Vec::new(),
            /// NORMAL: the VLANs that learn no MAC addresses: their packets go to all ports of the VLAN.
            pub flood_vlans: Vec<Vid> = Vec::new(),
            /// If true, NORMAL forwards packets to the link-local group addresses 01:80:c2:00:00:00 to :0f, which it
            /// otherwise drops. BPDUs, LLDPDUs and LACPDUs that the bridge itself takes are not forwarded.
            pub forward_bpdu: bool = false,
            /// The ageing time of MAC addresses that NORMAL learns.
            pub mac_ageing_s: MacAgeing = MacAgeing::DEFAULT,
            /// The capacity of the MAC address table of NORMAL.
            pub mac_table_size: MacTableSize = MacTableSize::DEFAULT,
            /// The maximum rate of packet-in messages per second for all controllers together; 0 is no limit.
            pub packet_in_rate: PacketInRate = PacketInRate::DEFAULT,
            /// The burst size of the packet-in rate limit, in messages.
            pub packet_in_burst: PacketInBurst = PacketInBurst::DEFAULT,
            /// The number of bytes of a packet that a packet-in carries until the controller changes it; 65535 is the
            /// whole packet.
            pub miss_send_len: MissSendLen = MissSendLen::DEFAULT,
            /// sFlow: samples of packets and counters of ports for collectors. Unset, the bridge has no
            /// sFlow.
            pub sflow: Option<Sflow> = None,
            /// IPFIX: records of sampled flows or packets for collectors. Unset, the bridge has no IPFIX.
            pub ipfix: Option<Ipfix> = None,
            /// RSTP. Unset, the bridge takes no part in a spanning tree, and BPDUs are packets like any other.
            pub rstp: Option<Rstp> = None,
            /// LLDP at the ports. Unset, the bridge has no LLDP, and LLDPDUs are packets like any other.
            pub lldp: Option<Lldp> = None,
            /// The ports.
            pub ports as "port": Vec<Port> = Vec::new(),
            /// The link aggregation groups; each is the device of a port.
            pub lags as "lag": Vec<Lag> = Vec::new(),
            /// The mirrors, 32 at most.
            pub mirrors as "mirror": Vec<Mirror> = Vec::new(),
            /// The chains of network functions.
            pub chains as "chain": Vec<Chain> = Vec::new(),
        }
    }
}

section! {
    /// A controller that the bridge connects to.
    pub struct Controller (live, by target or short) {
        required {
            /// The address of the controller: `tcp:HOST:PORT`, or `tls:HOST:PORT` (also `ssl:`) with the files of
            /// `tls`; the default port is 6653.
            pub target: ControllerTarget,
        }
        optional {
            /// The maximum interval between two connection attempts; intervals begin at one second and double.
            pub max_backoff_s: MaxBackoff = MaxBackoff::DEFAULT,
            /// The idle time after which an echo request is sent; after the same time without an answer, the
            /// connection is closed. 0 sends none.
            pub echo_interval_s: EchoInterval = EchoInterval::DEFAULT,
            /// The maximum rate of packet-in messages per second to this controller; unset, only the limit of the
            /// bridge applies.
            pub packet_in_rate: Option<PacketInRate> = None,
            /// The burst size of the packet-in rate limit, in messages.
            pub packet_in_burst: PacketInBurst = PacketInBurst::DEFAULT,
            /// The number of auxiliary connections to keep while the main connection is up (OpenFlow 1.3.5, section
            /// 6.3.5). Packet-ins are distributed over them by flow.
            pub auxiliary: AuxiliaryCount = AuxiliaryCount::DEFAULT,
            /// The transport of auxiliary connections. They use the address and port of the main connection.
            pub auxiliary_transport: AuxiliaryTransport = AuxiliaryTransport::Main,
        }
    }
}

section! {
    /// Settings of one flow table.
    pub struct Table (live, by number) {
        required {
            /// The number of the table.
            pub number: TableNumber,
        }
        optional {
            /// The name of the table until a controller sets one.
            pub name: Option<DescriptionText<31>> = None,
            /// The capacity in flow entries. Existing entries stay when it is lowered.
            pub max_entries: Option<TableSize> = None,
            /// The behaviour when an entry is added to a full table.
            pub when_full: WhenFull = WhenFull::Refuse,
        }
    }
}

section! {
    /// Files for TLS with controllers; both sides authenticate with a certificate. Changed files are read again for
    /// new connections; existing connections are not affected.
    pub struct Tls (live) {
        required {
            /// The private key of the bridge, PEM.
            pub private_key: PathBuf,
            /// The certificate of the bridge, PEM, followed by intermediate certificates, if any.
            pub certificate: PathBuf,
            /// The certificates of the authorities that may sign the certificate of a controller, PEM.
            pub ca_certificate: PathBuf,
        }
        optional {
            /// If true, the certificate of a controller that the bridge connects to must be valid for the host of its
            /// target. If false, any certificate that an authority of `ca_certificate` signed is accepted, as in Open
            /// vSwitch.
            pub check_names: bool = true,
        }
    }
}

section! {
    /// An address on which the bridge accepts controllers.
    pub struct Listener (live, by target or short) {
        required {
            /// The address to bind: `ptcp:PORT:HOST`, where the default host is 127.0.0.1 and port 0 lets the system
            /// choose; `ptls:PORT:HOST` (also `pssl:`), the same with TLS; or `punix:FILE`, a Unix socket that only
            /// its owner can connect to.
            pub target: ListenTarget,
        }
        optional {
            /// Allow `ptcp:` on an address that is not loopback. Any host that reaches it can control the bridge:
            /// OpenFlow over TCP has neither encryption nor password.
            pub insecure: bool = false,
            /// The idle time after which an echo request is sent; after the same time without an answer, the
            /// connection is closed. 0 sends none.
            pub echo_interval_s: EchoInterval = EchoInterval::DEFAULT,
        }
    }
}

section! {
    /// The description of a bridge for controllers (OpenFlow 1.3.5, section 7.3.5.1).
    pub struct Description (live) {
        required {}
        optional {
            /// The manufacturer.
            pub manufacturer: DescriptionText<255> = DescriptionText::fixed("Millrace"),
            /// The hardware.
            pub hardware: DescriptionText<255> = DescriptionText::fixed("x86-64 server"),
            /// The software; unset, `Millrace` and its version. A text such as `Millrace 1.2.3` is treated as
            /// unset.
            pub software: SoftwareText = SoftwareText::Release,
            /// The serial number.
            pub serial: DescriptionText<31> = DescriptionText::fixed("None"),
            /// The human-readable description of the datapath; unset, the name of the bridge.
            pub datapath: Option<DescriptionText<255>> = None,
        }
    }
}

deserialize!(Bridge, Controller, Listener, Table, Tls, Description);

impl Default for Description {
    fn default() -> Description {
        Description::new()
    }
}

impl Bridge {
    /// Returns the observation domain of the bridge in IPFIX.
    pub fn ipfix_domain(&self, ipfix: &Ipfix) -> u32 {
        // The low bits of the datapath ID, unless the domain is given.
        ipfix
            .domain
            .map_or(self.datapath_id().0 as u32, ObservationId::get)
    }

    /// Returns the datapath id: the configured one, or else the MAC address of the LOCAL port if it is configured, or else
    /// one derived from the name.
    pub fn datapath_id(&self) -> Dpid {
        let of_local = self.local_mac.map(|mac| Dpid(mac.get().to_u64()));
        self.dpid.or(of_local).unwrap_or_else(|| self.name.derived_dpid())
    }

    /// Returns the MAC address by which protocols of the link know the bridge: that of the LOCAL port if it is configured, or else
    /// the low 48 bits of the datapath ID.
    pub fn address(&self) -> Mac {
        self.local_mac
            .map_or_else(|| Mac::from_u64(self.datapath_id().0), UnicastMac::get)
    }

    /// Returns the LOCAL port in the form of a configured port; `None` if there is none.
    pub fn local_port(&self) -> Option<Port> {
        if self.local == LocalPort::Off {
            return None;
        }
        let device = Device::Tap(InterfaceName::from(&self.name));
        let mut port = Port::new(PortName::from(&self.name), PortNo::LOCAL, device);
        port.mtu = self.local_mtu;
        port.mac = self.local_mac;
        Some(port)
    }

    /// Returns all ports: the LOCAL port, if there is one, and then the others.
    pub fn all_ports(&self) -> impl Iterator<Item = Port> + '_ {
        self.local_port().into_iter().chain(self.ports.iter().cloned())
    }

    /// Returns the devices of the ports and of the members of LAGs, each with the name of its port or member.
    pub fn devices(&self) -> impl Iterator<Item = (&PortName, &Device)> {
        let members = self.lags.iter().flat_map(|lag| &lag.members);
        let ports = self.ports.iter().map(|port| (&port.name, &port.device));
        ports.chain(members.map(|member| (&member.name, &member.device)))
    }

    /// Returns the devices of the ports and of the members of LAGs, each with its path; `path` is that of the bridge.
    pub fn device_paths(&self, path: &Path) -> Vec<(&Device, Path)> {
        let list = path.key("port");
        let ports = self.ports.iter().enumerate();
        let mut devices: Vec<_> = ports
            .map(|(at, port)| (&port.device, list.index(at).key("device")))
            .collect();
        for (at, lag) in self.lags.iter().enumerate() {
            let list = path.key("lag").index(at).key("member");
            let members = lag.members.iter().enumerate();
            devices.extend(members.map(|(at, member)| (&member.device, list.index(at).key("device"))));
        }
        devices
    }

    /// Returns the port with this name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name.as_str() == name)
    }

    /// Returns the human-readable description of the datapath: the configured one, or else the name of the bridge.
    pub fn datapath_description(&self) -> &str {
        self.description
            .datapath
            .as_ref()
            .map_or(self.name.as_str(), DescriptionText::as_str)
    }
}
