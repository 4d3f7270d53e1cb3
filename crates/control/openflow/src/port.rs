//! The description of ports, PORT_STATUS and PORT_MOD (OpenFlow 1.3.5, sections 7.2.1, 7.3.4.3 and 7.4.3).

use millrace_types::{Mac, PortNo};

use crate::bytes::{PutBytes, Reader};
use crate::codes::{wire_enum, wire_flags};
use crate::decode_error::DecodeError;

wire_flags! {
    /// `ofp_port_config`: the administrative configuration of a port.
    PortConfig(u32) {
        /// The port is administratively down.
        PORT_DOWN = 1 "port_down",
        /// The port drops received packets.
        NO_RECV = 4 "no_recv",
        /// The port drops packets that are to be sent.
        NO_FWD = 32 "no_fwd",
        /// Packets of the port cause no packet_in.
        NO_PACKET_IN = 64 "no_packet_in",
    }
}

wire_flags! {
    /// `ofp_port_state`: the operational state of a port.
    PortState(u32) {
        /// The link is down.
        LINK_DOWN = 1 "link_down",
        /// A protocol such as spanning tree blocks the port.
        BLOCKED = 2 "blocked",
        /// The port is live for fast-failover groups.
        LIVE = 4 "live",
    }
}

wire_flags! {
    /// `ofp_port_features`.
    PortFeatures(u32) {
        /// 10 Mbit/s half duplex.
        HD_10M = 1 "10M_half",
        /// 10 Mbit/s full duplex.
        FD_10M = 2 "10M_full",
        /// 100 Mbit/s half duplex.
        HD_100M = 4 "100M_half",
        /// 100 Mbit/s full duplex.
        FD_100M = 8 "100M_full",
        /// 1 Gbit/s half duplex.
        HD_1G = 16 "1G_half",
        /// 1 Gbit/s full duplex.
        FD_1G = 32 "1G_full",
        /// 10 Gbit/s full duplex.
        FD_10G = 64 "10G_full",
        /// 40 Gbit/s full duplex.
        FD_40G = 128 "40G_full",
        /// 100 Gbit/s full duplex.
        FD_100G = 256 "100G_full",
        /// 1 Tbit/s full duplex.
        FD_1T = 512 "1T_full",
        /// A rate that has no flag.
        OTHER = 1024 "other",
        COPPER = 2048 "copper",
        /// Fibre.
        FIBER = 4096 "fiber",
        /// Auto-negotiation.
        AUTONEG = 8192 "autoneg",
        /// Pause frames.
        PAUSE = 16384 "pause",
        /// Asymmetric pause frames.
        PAUSE_ASYM = 32768 "pause_asym",
    }
}

/// `ofp_port`: one port.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Port {
    /// The port number.
    pub number: PortNo,
    /// The MAC address.
    pub mac: Mac,
    /// The name, of which at most 15 bytes are sent.
    pub name: String,
    /// The administrative configuration.
    pub config: PortConfig,
    /// The operational state.
    pub state: PortState,
    /// Features in use.
    pub current: PortFeatures,
    /// Features that the port advertises.
    pub advertised: PortFeatures,
    /// Features that the port supports.
    pub supported: PortFeatures,
    /// Features that the peer advertises.
    pub peer: PortFeatures,
    /// Current rate in kbit/s.
    pub current_speed: u32,
    /// Highest rate in kbit/s.
    pub max_speed: u32,
}

impl Port {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Port, DecodeError> {
        let number = PortNo::from_raw(reader.u32()?);
        reader.skip(4)?;
        let mac = reader.mac()?;
        reader.skip(2)?;
        Ok(Port {
            number,
            mac,
            name: reader.text(16)?,
            config: PortConfig::from_raw_truncated(reader.u32()?),
            state: PortState::from_raw_truncated(reader.u32()?),
            current: PortFeatures::from_raw_truncated(reader.u32()?),
            advertised: PortFeatures::from_raw_truncated(reader.u32()?),
            supported: PortFeatures::from_raw_truncated(reader.u32()?),
            peer: PortFeatures::from_raw_truncated(reader.u32()?),
            current_speed: reader.u32()?,
            max_speed: reader.u32()?,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.number.raw());
        out.zeros(4);
        out.bytes(&self.mac.0);
        out.zeros(2);
        out.text(&self.name, 16);
        out.u32(self.config.raw());
        out.u32(self.state.raw());
        for features in [self.current, self.advertised, self.supported, self.peer] {
            out.u32(features.raw());
        }
        out.u32(self.current_speed);
        out.u32(self.max_speed);
    }
}

wire_enum! {
    /// `ofp_port_reason`: the change of a port.
    PortReason(u8) {
        /// The port was added.
        Add = 0 "add",
        /// The port was removed.
        Delete = 1 "delete",
        /// The port was modified.
        Modify = 2 "modify",
    }
}

/// `ofp_port_status`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PortStatus {
    /// The change.
    pub reason: PortReason,
    /// The port as it is now; for a removed port, as it was before its removal.
    pub port: Port,
}

impl PortStatus {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<PortStatus, DecodeError> {
        let reason = PortReason::from_raw(reader.u8()?).ok_or(DecodeError::Length)?;
        reader.skip(7)?;
        Ok(PortStatus {
            reason,
            port: Port::decode(reader)?,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u8(self.reason.raw());
        out.zeros(7);
        self.port.encode(out);
    }
}

/// `ofp_port_mod`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PortMod {
    /// The port.
    pub number: PortNo,
    /// The MAC address, which must be that of the port.
    pub mac: Mac,
    /// The wanted configuration.
    pub config: PortConfig,
    /// The bits of the configuration to change.
    pub mask: PortConfig,
    /// The features to advertise; an empty set leaves them unchanged.
    pub advertise: PortFeatures,
}

impl PortMod {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<PortMod, DecodeError> {
        let number = PortNo::from_raw(reader.u32()?);
        reader.skip(4)?;
        let mac = reader.mac()?;
        reader.skip(2)?;
        let (config, mask, features) = (reader.u32()?, reader.u32()?, reader.u32()?);
        reader.skip(4)?;
        let bits = |config| PortConfig::from_raw(config).ok_or(DecodeError::PortConfig { config });
        Ok(PortMod {
            number,
            mac,
            config: bits(config)?,
            mask: bits(mask)?,
            advertise: PortFeatures::from_raw(features).ok_or(DecodeError::PortAdvertise { features })?,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.number.raw());
        out.zeros(4);
        out.bytes(&self.mac.0);
        out.zeros(2);
        out.u32(self.config.raw());
        out.u32(self.mask.raw());
        out.u32(self.advertise.raw());
        out.zeros(4);
    }
}
