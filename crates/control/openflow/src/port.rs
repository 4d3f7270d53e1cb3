//! Ports: what they are, PORT_STATUS and PORT_MOD (sections 7.2.1, 7.3.4.3 and 7.4.3).

use millrace_types::{Mac, PortNo};

use crate::bytes::{Put, Reader};
use crate::codes::{wire_enum, wire_flags};
use crate::decode_error::DecodeError;

wire_flags! {
    /// `ofp_port_config`: what an administrator wants of a port.
    PortConfig(u32) {
        /// Down.
        PORT_DOWN = 1 "port_down",
        /// Drop what comes in.
        NO_RECV = 4 "no_recv",
        /// Drop what would go out.
        NO_FWD = 32 "no_fwd",
        /// Send no packet-ins.
        NO_PACKET_IN = 64 "no_packet_in",
    }
}

wire_flags! {
    /// `ofp_port_state`: what a port is like.
    PortState(u32) {
        /// No link.
        LINK_DOWN = 1 "link_down",
        /// Blocked by a protocol such as spanning tree.
        BLOCKED = 2 "blocked",
        /// Live, as fast-failover groups understand it.
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
        /// Another rate.
        OTHER = 1024 "other",
        /// Copper.
        COPPER = 2048 "copper",
        /// Fibre.
        FIBER = 4096 "fiber",
        /// Negotiates.
        AUTONEG = 8192 "autoneg",
        /// Pauses.
        PAUSE = 16384 "pause",
        /// Pauses in one direction.
        PAUSE_ASYM = 32768 "pause_asym",
    }
}

/// `ofp_port`: one port.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Port {
    /// Its number.
    pub number: PortNo,
    /// Its hardware address.
    pub mac: Mac,
    /// Its name, of which 15 bytes travel.
    pub name: String,
    /// What an administrator wants.
    pub config: PortConfig,
    /// What it is like.
    pub state: PortState,
    /// Features in use.
    pub current: PortFeatures,
    /// Features offered to the peer.
    pub advertised: PortFeatures,
    /// Features that it could have.
    pub supported: PortFeatures,
    /// Features that the peer offers.
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
    /// `ofp_port_reason`: what happened to a port.
    PortReason(u8) {
        /// It is new.
        Add = 0 "add",
        /// It is gone.
        Delete = 1 "delete",
        /// It is different.
        Modify = 2 "modify",
    }
}

/// `ofp_port_status`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PortStatus {
    /// What happened.
    pub reason: PortReason,
    /// The port as it is now, or was last.
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
    /// Which port.
    pub number: PortNo,
    /// Must be the port's hardware address.
    pub mac: Mac,
    /// The wanted configuration.
    pub config: PortConfig,
    /// Which bits of the configuration to change.
    pub mask: PortConfig,
    /// Features to advertise; none leaves them as they are.
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
