//! SET_CONFIG and GET_CONFIG_REPLY: fragments, and how much of a missed packet a controller gets
//! (section 7.3.2).

use crate::bytes::{Put, Reader};
use crate::codes::wire_enum;
use crate::decode_error::DecodeError;

wire_enum! {
    /// `ofp_config_flags`: what becomes of IP fragments.
    FragmentHandling(u16) {
        /// Nothing special.
        Normal = 0 "normal",
        /// They are dropped.
        Drop = 1 "drop",
        /// They are reassembled.
        Reassemble = 2 "reassemble",
    }
}

/// `ofp_switch_config`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SwitchConfig {
    /// What becomes of IP fragments.
    pub fragments: FragmentHandling,
    /// How many bytes of a packet go to the controller on a table miss that has no entry of its own;
    /// 0xffff (`OFPCML_NO_BUFFER`) means all, unbuffered.
    pub miss_send_len: u16,
}

impl SwitchConfig {
    /// What a switch does until told otherwise: 128 bytes, fragments as they are.
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
