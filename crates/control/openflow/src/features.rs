//! FEATURES_REPLY: identity and capabilities of the switch (OpenFlow 1.3.5, section 7.3.1).

use millrace_types::Dpid;

use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_flags;
use crate::decode_error::DecodeError;

wire_flags! {
    /// `ofp_capabilities`.
    Capabilities(u32) {
        /// Flow statistics.
        FLOW_STATS = 1 "flow_stats",
        /// Table statistics.
        TABLE_STATS = 2 "table_stats",
        /// Port statistics.
        PORT_STATS = 4 "port_stats",
        /// Group statistics.
        GROUP_STATS = 8 "group_stats",
        /// The switch reassembles IP fragments.
        IP_REASM = 32 "ip_reasm",
        /// Queue statistics.
        QUEUE_STATS = 64 "queue_stats",
        /// The switch blocks ports that would close a loop.
        PORT_BLOCKED = 256 "port_blocked",
    }
}

/// `ofp_switch_features`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SwitchFeatures {
    /// The datapath id of the bridge.
    pub dpid: Dpid,
    /// Number of packets that can be buffered at once.
    pub buffers: u32,
    /// Number of tables.
    pub tables: u8,
    /// 0 on a main connection, 1 and up on auxiliary ones.
    pub auxiliary_id: u8,
    /// The capabilities of the switch.
    pub capabilities: Capabilities,
}

impl SwitchFeatures {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<SwitchFeatures, DecodeError> {
        let dpid = Dpid(reader.u64()?);
        let buffers = reader.u32()?;
        let tables = reader.u8()?;
        let auxiliary_id = reader.u8()?;
        reader.skip(2)?;
        let capabilities = Capabilities::from_raw_truncated(reader.u32()?);
        reader.skip(4)?;
        Ok(SwitchFeatures {
            dpid,
            buffers,
            tables,
            auxiliary_id,
            capabilities,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.dpid.0);
        out.u32(self.buffers);
        out.u8(self.tables);
        out.u8(self.auxiliary_id);
        out.zeros(2);
        out.u32(self.capabilities.raw());
        out.zeros(4);
    }
}
