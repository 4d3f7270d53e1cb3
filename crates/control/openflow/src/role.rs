//! ROLE_REQUEST and ROLE_REPLY (OpenFlow 1.3.5, section 7.3.9).

use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_enum;
use crate::decode_error::DecodeError;

wire_enum! {
    /// `ofp_controller_role` in a request.
    RequestedRole(u32) {
        /// Asks for the current role, without a change.
        NoChange = 0 "nochange",
        /// Full access, shared with other controllers.
        Equal = 1 "equal",
        /// Full access; the previous master becomes a slave.
        Master = 2 "master",
        /// Read-only access.
        Slave = 3 "slave",
    }
}

/// `ofp_role_request`, which is also the reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RoleMessage {
    pub role: RequestedRole,
    /// The generation_id: the number of the master election that the request belongs to.
    pub generation_id: u64,
}

impl RoleMessage {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<RoleMessage, DecodeError> {
        let role = reader.u32()?;
        reader.skip(4)?;
        let generation_id = reader.u64()?;
        let role = RequestedRole::from_raw(role).ok_or(DecodeError::Role { role })?;
        Ok(RoleMessage { role, generation_id })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.role.raw());
        out.zeros(4);
        out.u64(self.generation_id);
    }
}
