//! Bridges and what connects them to their controllers.

use std::path::PathBuf;

use millrace_types::{Dpid, PortNo};

use crate::chain::Chain;
use crate::choice::{AuxiliaryTransport, FailMode, FlowCache, Fragments, LocalPort, SelectField, WhenFull};
use crate::device::Device;
use crate::name::{BridgeName, DescriptionText, InterfaceName, PortName};
use crate::number::{
    AuxiliaryCount, EchoInterval, MacAgeing, MacTableSize, MaxBackoff, MissSendLen, Mtu, PacketInBurst,
    PacketInRate, TableCount, TableNumber, TableSize,
};
use crate::port::Port;
use crate::section::{deserialize, section};
use crate::target::{ControllerTarget, ListenTarget};

section! {
    /// An OpenFlow switch: ports, flow tables and controllers.
    pub struct Bridge (live, by name) {
        required {
            /// The name of the bridge, unique in the switch; also the name of its LOCAL port.
            pub name: BridgeName,
        }
        optional {
            /// The datapath id, unique in the switch and among all switches of a controller. Unset, it is
            /// derived from the name alone, so set it where one controller drives several machines.
            pub dpid: Option<Dpid> = None,
            /// What to do while no controller is connected.
            pub fail_mode: FailMode = FailMode::Secure,
            /// Whether workers remember the paths of packets through the tables.
            pub flow_cache: FlowCache = FlowCache::Auto,
            /// By which fields select groups tell flows apart; none is by addresses, VLAN, protocol and ports.
            pub select_hash: Vec<SelectField> = Vec::new(),
            /// What becomes of IP fragments; a controller may change it. Whole packets may be longer than the MTU
            /// of the port they are to leave by, which then drops them.
            pub fragments: Fragments = Fragments::Normal,
            /// Lets matches use what Open vSwitch defines beyond OpenFlow 1.3.5: masks on the ports of TCP, UDP and
            /// SCTP, `tcp_flags`, `nw_frag` and `nw_ttl`. If not, they are refused, and table features do not name
            /// them. Entries that are there when this changes stay.
            pub match_extensions: bool = true,
            /// Whether there is a LOCAL port.
            pub local: LocalPort = LocalPort::Off,
            /// The largest layer-3 packet of the LOCAL port.
            pub local_mtu: Mtu = Mtu::ETHERNET,
            /// How many flow tables there are.
            pub tables: TableCount = TableCount::DEFAULT,
            /// Settings of single flow tables.
            pub table_settings as "table": Vec<Table> = Vec::new(),
            /// Controllers to connect to, 8 at most, each `"tcp:HOST:PORT"`, `"tls:HOST:PORT"` or a table.
            pub controllers: Vec<Controller> = Vec::new(),
            /// Addresses to wait on for controllers, each `"ptcp:PORT:HOST"`, `"ptls:PORT:HOST"` or a table. The
            /// default host is the loopback address.
            pub listen: Vec<Listener> = Vec::new(),
            /// Who the bridge is and whom it trusts, for `tls:` controllers and `ptls:` listeners, which need it.
            pub tls: Option<Tls> = None,
            /// What the bridge says of itself (`OFPMP_DESC`).
            pub description: Description = Description::new(),
            /// How long NORMAL remembers a MAC address that is not seen.
            pub mac_ageing_s: MacAgeing = MacAgeing::DEFAULT,
            /// How many MAC addresses NORMAL remembers.
            pub mac_table_size: MacTableSize = MacTableSize::DEFAULT,
            /// The most packet-in messages a second for all controllers together; 0 is no limit.
            pub packet_in_rate: PacketInRate = PacketInRate::DEFAULT,
            /// How many packet-in messages may be sent at once above the rate.
            pub packet_in_burst: PacketInBurst = PacketInBurst::DEFAULT,
            /// How many bytes of a packet a packet-in carries until the controller says otherwise; 65535 is
            /// the whole packet.
            pub miss_send_len: MissSendLen = MissSendLen::DEFAULT,
            /// The ports.
            pub ports as "port": Vec<Port> = Vec::new(),
            /// The chains of network functions.
            pub chains as "chain": Vec<Chain> = Vec::new(),
        }
    }
}

section! {
    /// A controller that the bridge connects to.
    pub struct Controller (live, by target or short) {
        required {
            /// Where it is: `tcp:HOST:PORT`, or `tls:HOST:PORT` (also `ssl:`) with the files of `tls`; the default
            /// port is 6653.
            pub target: ControllerTarget,
        }
        optional {
            /// The longest pause between two attempts to connect; pauses begin at one second and double.
            pub max_backoff_s: MaxBackoff = MaxBackoff::DEFAULT,
            /// How long the connection may be silent before an echo request; silent as long again, it is
            /// closed. 0 never asks.
            pub echo_interval_s: EchoInterval = EchoInterval::DEFAULT,
            /// The most packet-in messages a second to this controller; unset, only the limit of the bridge
            /// holds.
            pub packet_in_rate: Option<PacketInRate> = None,
            /// How many packet-in messages may be sent at once above the rate.
            pub packet_in_burst: PacketInBurst = PacketInBurst::DEFAULT,
            /// How many auxiliary connections to keep while the main connection is up (OpenFlow 1.3.5, section
            /// 6.3.5). Packet-ins are spread over them, flow by flow.
            pub auxiliary: AuxiliaryCount = AuxiliaryCount::DEFAULT,
            /// What auxiliary connections are made of. They go to the address and port of the main connection.
            pub auxiliary_transport: AuxiliaryTransport = AuxiliaryTransport::Main,
        }
    }
}

section! {
    /// Settings of one flow table.
    pub struct Table (live, by number) {
        required {
            /// Which table.
            pub number: TableNumber,
        }
        optional {
            /// What it is called until a controller names it.
            pub name: Option<DescriptionText<31>> = None,
            /// How many flow entries it holds. What is there when this changes stays.
            pub max_entries: Option<TableSize> = None,
            /// What happens to one entry more.
            pub when_full: WhenFull = WhenFull::Refuse,
        }
    }
}

section! {
    /// Files for TLS with controllers, both sides of which show a certificate. They are read again when they have
    /// changed, for the connections that begin then; those that are up stay as they are.
    pub struct Tls (live) {
        required {
            /// The private key of the bridge, PEM.
            pub private_key: PathBuf,
            /// Its certificate, PEM, with those between it and the authority, if any, after it.
            pub certificate: PathBuf,
            /// The certificates of the authorities one of which must have signed the certificate of a controller, PEM.
            pub ca_certificate: PathBuf,
        }
        optional {
            /// Whether a controller that the bridge connects to must have a certificate for the host of its target.
            /// If not, any that an authority of `ca_certificate` signed will do, as with Open vSwitch.
            pub check_names: bool = true,
        }
    }
}

section! {
    /// An address on which the bridge waits for controllers.
    pub struct Listener (live, by target or short) {
        required {
            /// What to bind: `ptcp:PORT:HOST`, where the default host is 127.0.0.1 and port 0 lets the system
            /// choose; `ptls:PORT:HOST` (also `pssl:`), the same for controllers with a certificate; or `punix:FILE`,
            /// a local socket that only its owner can connect to.
            pub target: ListenTarget,
        }
        optional {
            /// Allow `ptcp:` a host that is not loopback. Whoever reaches it controls the bridge: OpenFlow over
            /// TCP has neither encryption nor password.
            pub insecure: bool = false,
            /// How long a connection may be silent before an echo request; silent as long again, it is
            /// closed. 0 never asks.
            pub echo_interval_s: EchoInterval = EchoInterval::DEFAULT,
        }
    }
}

section! {
    /// What a bridge says of itself (OpenFlow 1.3.5, section 7.3.5.1).
    pub struct Description (live) {
        required {}
        optional {
            /// Who made it.
            pub manufacturer: DescriptionText<255> = DescriptionText::fixed("Millrace"),
            /// What it runs on.
            pub hardware: DescriptionText<255> = DescriptionText::fixed("x86-64 server"),
            /// What runs on it.
            pub software: DescriptionText<255> = DescriptionText::fixed(concat!("Millrace ", env!("CARGO_PKG_VERSION"))),
            /// Its serial number.
            pub serial: DescriptionText<31> = DescriptionText::fixed("None"),
            /// What people call it; unset, the name of the bridge.
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
    /// The datapath id: as configured, or else derived from the name.
    pub fn datapath_id(&self) -> Dpid {
        self.dpid.unwrap_or_else(|| self.name.derived_dpid())
    }

    /// The LOCAL port, as if it were written among the others; `None` if there is none.
    pub fn local_port(&self) -> Option<Port> {
        if self.local == LocalPort::Off {
            return None;
        }
        let device = Device::Tap(InterfaceName::from(&self.name));
        let mut port = Port::new(PortName::from(&self.name), PortNo::LOCAL, device);
        port.mtu = self.local_mtu;
        Some(port)
    }

    /// All ports: the LOCAL port, if there is one, and then the others.
    pub fn all_ports(&self) -> impl Iterator<Item = Port> + '_ {
        self.local_port().into_iter().chain(self.ports.iter().cloned())
    }

    /// The port of that name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name.as_str() == name)
    }

    /// What people call the datapath: as configured, or else the name of the bridge.
    pub fn datapath_description(&self) -> &str {
        self.description
            .datapath
            .as_ref()
            .map_or(self.name.as_str(), DescriptionText::as_str)
    }
}
