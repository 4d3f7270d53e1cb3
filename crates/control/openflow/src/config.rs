//! SET_CONFIG and GET_CONFIG_REPLY: the handling of fragments, and the size of packets in packet_in (OpenFlow 1.3.5,
//! section 7.3.2).

use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_enum;
use crate::decode_error::DecodeError;

wire_enum! {
    /// `ofp_config_flags`: the handling of IP fragments.
    FragmentHandling(u16) {
        /// Fragments are forwarded as they are.
        Normal = 0 "normal",
        /// Fragments are dropped.
        Drop = 1 "drop",
        /// Fragments are reassembled.
        Reassemble = 2 "reassemble",
    }
}

/// `ofp_switch_config`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SwitchConfig {
    /// The handling of IP fragments.
    pub fragments: FragmentHandling,
    /// The maximum number of packet bytes in a packet_in that no output action causes, for example for an
    /// invalid TTL. The value 0xffff (`OFPCML_NO_BUFFER`) sends the whole packet, unbuffered.
    pub miss_send_len: u16,
}

impl SwitchConfig {
    /// The configuration of a new connection: `miss_send_len` is 128 bytes, and fragments are forwarded
    /// unchanged.
    pub const DEFAULT: SwitchConfig = SwitchConfig {
        fragments: FragmentHandling::Normal,
        miss_send_len: 128,
    };

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<SwitchConfig, DecodeError> {
        let flags = reader.u16()?;
        let miss_send_len = reader.u16()?;
        let fragments = FragmentHandling::from_raw(flags).ok_or(DecodeError::SwitchConfigFlags { flags })?;
        Ok(SwitchConfig {
            fragments,
            miss_send_len,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.fragments.raw());
        out.u16(self.miss_send_len);
    }
}
