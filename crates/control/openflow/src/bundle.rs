//! Bundles: requests that are carried out together or not at all (ONF extension 230 to OpenFlow 1.3, which
//! became section 7.3.9 of OpenFlow 1.4). The messages of bundles are EXPERIMENTER messages of the ONF.

use crate::bytes::{PutBytes, Reader};
use crate::codes::{wire_enum, wire_flags};
use crate::decode_error::DecodeError;
use crate::experimenter::Experimenter;

wire_enum! {
    /// `onf_bundle_ctrl_type`.
    BundleCommand(u16) {
        /// Opens a bundle.
        Open = 0 "open",
        /// The bundle is open.
        OpenReply = 1 "open_reply",
        /// Closes a bundle, so that it takes no further message.
        Close = 2 "close",
        /// The bundle is closed.
        CloseReply = 3 "close_reply",
        /// Commits a bundle.
        Commit = 4 "commit",
        /// The bundle is committed.
        CommitReply = 5 "commit_reply",
        /// Discards a bundle.
        Discard = 6 "discard",
        /// The bundle is discarded.
        DiscardReply = 7 "discard_reply",
    }
}

wire_flags! {
    /// `onf_bundle_flags`.
    BundleFlags(u16) {
        /// Either all messages are carried out, or none.
        ATOMIC = 0x1 "atomic",
        /// The messages are carried out in the order in which they were added.
        ORDERED = 0x2 "ordered",
    }
}

/// `onf_bundle_ctrl_msg`. Properties are skipped: only experimenters define any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BundleControl {
    /// The number of the bundle, unique within the connection.
    pub bundle: u32,
    /// The command, or the reply to one.
    pub command: BundleCommand,
    /// The flags of the bundle, the same in all its messages.
    pub flags: BundleFlags,
}

impl BundleControl {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<BundleControl, DecodeError> {
        let bundle = reader.u32()?;
        let command = reader.u16()?;
        let command = BundleCommand::from_raw(command).ok_or(DecodeError::BundleCommand { command })?;
        let flags = bundle_flags(reader.u16()?)?;
        reader.drain();
        Ok(BundleControl {
            bundle,
            command,
            flags,
        })
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.u32(Experimenter::ONF);
        out.u32(Experimenter::ONF_BUNDLE_CONTROL);
        out.u32(self.bundle);
        out.u16(self.command.raw());
        out.u16(self.flags.raw());
    }
}

pub(crate) fn bundle_flags(flags: u16) -> Result<BundleFlags, DecodeError> {
    BundleFlags::from_raw(flags).ok_or(DecodeError::BundleFlags { flags })
}

#[cfg(test)]
mod tests {
    use millrace_flow::Match;
    use millrace_types::{TableId, Xid};

    use super::*;
    use crate::error_code::ErrorCode;
    use crate::flow_mod::FlowMod;
    use crate::message::{BundleAdd, Message, decode, encode};

    fn add(xid: u32) -> Vec<u8> {
        let delete = FlowMod::delete(TableId::ALL, Match::any());
        let message = Message::BundleAdd(BundleAdd {
            bundle: 7,
            flags: BundleFlags::ATOMIC | BundleFlags::ORDERED,
            message: Box::new(Message::FlowMod(delete)),
        });
        let mut out = Vec::new();
        encode(&message, Xid(xid), &mut out).unwrap();
        out
    }

    fn refusal(change: impl FnOnce(&mut Vec<u8>)) -> ErrorCode {
        let mut bytes = add(9);
        change(&mut bytes);
        decode(&bytes).unwrap_err().error_code()
    }

    /// Offset of the bundled message in the bundle_add message, in bytes.
    const INNER: usize = 24;

    #[test]
    fn a_control_message_is_laid_out_as_the_extension_says() {
        let message = Message::BundleControl(BundleControl {
            bundle: 0x0102_0304,
            command: BundleCommand::Commit,
            flags: BundleFlags::ATOMIC,
        });
        let mut out = Vec::new();
        encode(&message, Xid(5), &mut out).unwrap();
        let expected = [
            4, 4, 0, 24, 0, 0, 0, 5, 0x4f, 0x4e, 0x46, 0, 0, 0, 0x08, 0xfc, 1, 2, 3, 4, 0, 4, 0, 1,
        ];
        assert_eq!(out, expected);
        assert_eq!(decode(&out).unwrap().1, message);
    }

    #[test]
    fn the_message_inside_must_have_the_same_xid_and_fit() {
        assert_eq!(
            refusal(|bytes| bytes[INNER + 7] = 8),
            ErrorCode::OFPBFC_MSG_BAD_XID
        );
        assert_eq!(
            refusal(|bytes| bytes[INNER + 3] = 7),
            ErrorCode::OFPBFC_MSG_BAD_LEN
        );
        assert_eq!(
            refusal(|bytes| bytes[INNER + 2] = 1),
            ErrorCode::OFPBFC_MSG_BAD_LEN
        );
    }

    #[test]
    fn what_cannot_be_bundled_is_refused_and_what_is_wrong_inside_keeps_its_error() {
        assert_eq!(refusal(|bytes| bytes[INNER + 1] = 4), ErrorCode::OFPBFC_MSG_UNSUP);
        assert_eq!(refusal(|bytes| bytes[INNER] = 5), ErrorCode::OFPBFC_MSG_UNSUP);
        assert_eq!(
            refusal(|bytes| bytes[INNER + 25] = 9),
            ErrorCode::OFPFMFC_BAD_COMMAND
        );
        assert_eq!(refusal(|bytes| bytes[23] = 4), ErrorCode::OFPBFC_BAD_FLAGS);
    }
}
