//! Actions on the wire (OpenFlow 1.3.5, section 7.2.5).

use millrace_flow::{Action, SetField, SetFieldError};
use millrace_types::{GroupId, PortNo, QueueId};
use millrace_wire::EtherType;
use thiserror::Error;

use crate::bytes::{PutBytes, Reader, Truncated};
use crate::codes::wire_enum;
use crate::error_code::ErrorCode;
use crate::oxm::{OxmHeader, integer, put_value};

wire_enum! {
    /// `ofp_action_type`.
    ActionType(u16) {
        /// Send to a port.
        Output = 0 "output",
        /// Copy the TTL from the next-to-outermost header to the outermost.
        CopyTtlOut = 11 "copy_ttl_out",
        /// Copy the TTL from the outermost header to the next one.
        CopyTtlIn = 12 "copy_ttl_in",
        /// Set the MPLS TTL.
        SetMplsTtl = 15 "set_mpls_ttl",
        /// Decrement the MPLS TTL.
        DecMplsTtl = 16 "dec_mpls_ttl",
        /// Push a VLAN tag.
        PushVlan = 17 "push_vlan",
        /// Pop the outermost VLAN tag.
        PopVlan = 18 "pop_vlan",
        /// Push an MPLS shim header.
        PushMpls = 19 "push_mpls",
        /// Pop the outermost MPLS shim header.
        PopMpls = 20 "pop_mpls",
        /// Choose the egress queue.
        SetQueue = 21 "set_queue",
        /// Process through a group.
        Group = 22 "group",
        /// Set the IP TTL.
        SetNwTtl = 23 "set_nw_ttl",
        /// Decrement the IP TTL.
        DecNwTtl = 24 "dec_nw_ttl",
        /// Set a header field.
        SetField = 25 "set_field",
        /// Push a PBB I-TAG.
        PushPbb = 26 "push_pbb",
        /// Pop the outermost PBB I-TAG.
        PopPbb = 27 "pop_pbb",
    }
}

/// `OFPAT_EXPERIMENTER`: the type of every experimenter action.
pub(crate) const EXPERIMENTER: u16 = 0xffff;

impl ActionType {
    /// Returns the type of an action.
    pub const fn of(action: &Action) -> ActionType {
        match action {
            Action::Output { .. } => ActionType::Output,
            Action::Group(_) => ActionType::Group,
            Action::SetQueue(_) => ActionType::SetQueue,
            Action::SetMplsTtl(_) => ActionType::SetMplsTtl,
            Action::DecMplsTtl => ActionType::DecMplsTtl,
            Action::SetNwTtl(_) => ActionType::SetNwTtl,
            Action::DecNwTtl => ActionType::DecNwTtl,
            Action::CopyTtlOut => ActionType::CopyTtlOut,
            Action::CopyTtlIn => ActionType::CopyTtlIn,
            Action::PushVlan(_) => ActionType::PushVlan,
            Action::PopVlan => ActionType::PopVlan,
            Action::PushMpls(_) => ActionType::PushMpls,
            Action::PopMpls(_) => ActionType::PopMpls,
            Action::PushPbb(_) => ActionType::PushPbb,
            Action::PopPbb => ActionType::PopPbb,
            Action::SetField(_) => ActionType::SetField,
        }
    }
}

/// The reason why bytes are not a list of actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ActionError {
    /// `OFPBAC_BAD_TYPE`.
    #[error("action type {type_} is unknown")]
    Type {
        /// The value in the message.
        type_: u16,
    },
    /// `OFPBAC_BAD_LEN`.
    #[error("an action has length {length}, which does not match its type or the rest of the list")]
    Length {
        /// The length in the message; 0 if the message ends before the length field.
        length: u16,
    },
    /// `OFPBAC_BAD_EXPERIMENTER`.
    #[error("experimenter {experimenter:#010x} is unknown")]
    Experimenter {
        /// The value in the message.
        experimenter: u32,
    },
    /// `OFPBAC_BAD_OUT_PORT`.
    #[error("port {port} is not valid in an output action")]
    OutPort {
        /// The value in the message.
        port: PortNo,
    },
    /// `OFPBAC_BAD_OUT_GROUP`.
    #[error(
        "group {group} is not valid in a group action: expected at most {}",
        GroupId::MAX
    )]
    OutGroup {
        /// The value in the message.
        group: GroupId,
    },
    /// `OFPBAC_BAD_QUEUE`.
    #[error("queue {queue} is not valid in a set_queue action")]
    Queue {
        /// The value in the message.
        queue: QueueId,
    },
    /// `OFPBAC_BAD_ARGUMENT`.
    #[error("ethertype {ethertype} is not valid in a {action} action")]
    EtherType {
        action: ActionType,
        /// The value in the message.
        ethertype: EtherType,
    },
    /// `OFPBAC_BAD_SET_TYPE`.
    #[error(
        "field {number} of OXM class {class:#06x} is unknown or read-only: a set_field action cannot write it"
    )]
    SetType {
        /// OXM class.
        class: u16,
        /// Number within the class.
        number: u8,
    },
    /// `OFPBAC_BAD_SET_LEN`.
    #[error("the length of a field in a set_field action does not match its definition")]
    SetLength,
    /// `OFPBAC_BAD_SET_TYPE` or `OFPBAC_BAD_SET_ARGUMENT`.
    #[error(transparent)]
    SetField(#[from] SetFieldError),
}

impl ActionError {
    /// Returns the error that a switch answers.
    pub const fn error_code(&self) -> ErrorCode {
        match self {
            ActionError::Type { .. } => ErrorCode::OFPBAC_BAD_TYPE,
            ActionError::Length { .. } => ErrorCode::OFPBAC_BAD_LEN,
            ActionError::Experimenter { .. } => ErrorCode::OFPBAC_BAD_EXPERIMENTER,
            ActionError::OutPort { .. } => ErrorCode::OFPBAC_BAD_OUT_PORT,
            ActionError::OutGroup { .. } => ErrorCode::OFPBAC_BAD_OUT_GROUP,
            ActionError::Queue { .. } => ErrorCode::OFPBAC_BAD_QUEUE,
            ActionError::EtherType { .. } => ErrorCode::OFPBAC_BAD_ARGUMENT,
            ActionError::SetType { .. } | ActionError::SetField(SetFieldError::NotSettable { .. }) => {
                ErrorCode::OFPBAC_BAD_SET_TYPE
            }
            ActionError::SetLength => ErrorCode::OFPBAC_BAD_SET_LEN,
            ActionError::SetField(SetFieldError::BadValue { .. }) => ErrorCode::OFPBAC_BAD_SET_ARGUMENT,
        }
    }
}

impl From<Truncated> for ActionError {
    fn from(_: Truncated) -> ActionError {
        ActionError::Length { length: 0 }
    }
}

/// Size of the smallest action, in bytes.
const MIN_SIZE: usize = 8;

/// Reads a list of actions that fills `bytes`.
pub(crate) fn decode_actions(bytes: &[u8]) -> Result<Box<[Action]>, ActionError> {
    // Most lists hold actions of the smallest size; for these the boxed slice below is not reallocated.
    let mut actions = Vec::with_capacity(bytes.len().div_ceil(2 * MIN_SIZE));
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        actions.push(decode_action(&mut reader)?);
    }
    Ok(actions.into_boxed_slice())
}

fn decode_action(list: &mut Reader<'_>) -> Result<Action, ActionError> {
    let type_ = list.u16()?;
    let length = list.u16()?;
    let bad_length = ActionError::Length { length };
    let size = usize::from(length);
    if size < MIN_SIZE || size % 8 != 0 {
        return Err(bad_length);
    }
    let body = list.take(size - 4).map_err(|_| bad_length)?;
    let mut body = Reader::new(body);
    let Some(type_) = ActionType::from_raw(type_) else {
        return Err(if type_ == EXPERIMENTER {
            ActionError::Experimenter {
                experimenter: body.u32()?,
            }
        } else {
            ActionError::Type { type_ }
        });
    };
    let size_is_right = match type_ {
        ActionType::Output => size == 16,
        ActionType::SetField => true,
        _ => size == MIN_SIZE,
    };
    if !size_is_right {
        return Err(bad_length);
    }
    decode_body(type_, &mut body)
}

fn decode_body(type_: ActionType, body: &mut Reader<'_>) -> Result<Action, ActionError> {
    Ok(match type_ {
        ActionType::Output => Action::Output {
            port: out_port(body.u32()?)?,
            max_len: body.u16()?,
        },
        ActionType::Group => {
            let group = GroupId(body.u32()?);
            if group > GroupId::MAX {
                return Err(ActionError::OutGroup { group });
            }
            Action::Group(group)
        }
        ActionType::SetQueue => {
            let queue = QueueId(body.u32()?);
            if queue == QueueId::ALL {
                return Err(ActionError::Queue { queue });
            }
            Action::SetQueue(queue)
        }
        ActionType::SetMplsTtl => Action::SetMplsTtl(body.u8()?),
        ActionType::DecMplsTtl => Action::DecMplsTtl,
        ActionType::SetNwTtl => Action::SetNwTtl(body.u8()?),
        ActionType::DecNwTtl => Action::DecNwTtl,
        ActionType::CopyTtlOut => Action::CopyTtlOut,
        ActionType::CopyTtlIn => Action::CopyTtlIn,
        ActionType::PushVlan => Action::PushVlan(ethertype(type_, body, EtherType::is_vlan)?),
        ActionType::PopVlan => Action::PopVlan,
        ActionType::PushMpls => Action::PushMpls(ethertype(type_, body, EtherType::is_mpls)?),
        ActionType::PopMpls => Action::PopMpls(ethertype(type_, body, |_| true)?),
        ActionType::PushPbb => Action::PushPbb(ethertype(type_, body, |given| given == EtherType::PBB)?),
        ActionType::PopPbb => Action::PopPbb,
        ActionType::SetField => Action::SetField(decode_set_field(body)?),
    })
}

/// Returns the output port: an ordinary port, or any reserved port except `OFPP_ANY`.
fn out_port(raw: u32) -> Result<PortNo, ActionError> {
    let port = PortNo::from_raw(raw);
    if port.is_ordinary() || (port.is_reserved() && port != PortNo::ANY) {
        Ok(port)
    } else {
        Err(ActionError::OutPort { port })
    }
}

fn ethertype(
    action: ActionType,
    body: &mut Reader<'_>,
    is_legal: impl Fn(EtherType) -> bool,
) -> Result<EtherType, ActionError> {
    let ethertype = EtherType(body.u16()?);
    if is_legal(ethertype) {
        Ok(ethertype)
    } else {
        Err(ActionError::EtherType { action, ethertype })
    }
}

/// Reads one OXM field without mask, and the padding after it.
fn decode_set_field(body: &mut Reader<'_>) -> Result<SetField, ActionError> {
    let header = OxmHeader::decode(body)?;
    let unknown = ActionError::SetType {
        class: header.id.class,
        number: header.id.number,
    };
    let field = header.field().ok_or(unknown)?;
    if header.has_mask {
        return Err(unknown);
    }
    let value = body
        .take(usize::from(header.size))
        .map_err(|_| ActionError::SetLength)?;
    if value.len() != field.wire_size() || body.rest().len() >= 8 {
        return Err(ActionError::SetLength);
    }
    Ok(SetField::new(field, integer(value))?)
}

/// Appends a list of actions.
pub(crate) fn encode_actions(actions: &[Action], out: &mut Vec<u8>) {
    for action in actions {
        encode_action(action, out);
    }
}

fn encode_action(action: &Action, out: &mut Vec<u8>) {
    let start = out.len();
    out.u16(ActionType::of(action).raw());
    out.u16(8);
    match *action {
        Action::Output { port, max_len } => {
            out.u32(port.raw());
            out.u16(max_len);
            out.zeros(6);
            out.length_at(start + 2, start);
        }
        Action::Group(group) => out.u32(group.0),
        Action::SetQueue(queue) => out.u32(queue.0),
        Action::SetMplsTtl(ttl) | Action::SetNwTtl(ttl) => {
            out.u8(ttl);
            out.zeros(3);
        }
        Action::PushVlan(ethertype)
        | Action::PushMpls(ethertype)
        | Action::PopMpls(ethertype)
        | Action::PushPbb(ethertype) => {
            out.u16(ethertype.0);
            out.zeros(2);
        }
        Action::DecMplsTtl
        | Action::DecNwTtl
        | Action::CopyTtlOut
        | Action::CopyTtlIn
        | Action::PopVlan
        | Action::PopPbb => out.zeros(4),
        Action::SetField(set) => {
            OxmHeader::of(set.field(), false).encode(out);
            put_value(out, set.field(), set.value());
            out.pad_from(start);
            out.length_at(start + 2, start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> ErrorCode {
        decode_actions(bytes).unwrap_err().error_code()
    }

    #[test]
    fn lengths_must_suit_the_type_and_the_list() {
        assert_eq!(code(&[0, 0, 0]), ErrorCode::OFPBAC_BAD_LEN);
        assert_eq!(code(&[0, 18, 0, 0, 0, 0, 0, 0]), ErrorCode::OFPBAC_BAD_LEN);
        assert_eq!(code(&[0, 18, 0, 4, 0, 0, 0, 0]), ErrorCode::OFPBAC_BAD_LEN);
        assert_eq!(code(&[0, 18, 0, 16, 0, 0, 0, 0]), ErrorCode::OFPBAC_BAD_LEN);
        assert_eq!(code(&[0, 0, 0, 8, 0, 0, 0, 1]), ErrorCode::OFPBAC_BAD_LEN);
    }

    #[test]
    fn packets_cannot_be_sent_to_numbers_that_are_no_port() {
        for port in [0u32, 0xffff_ff01, 0xffff_fff7, 0xffff_ffff] {
            let mut bytes = vec![0, 0, 0, 16];
            bytes.extend_from_slice(&port.to_be_bytes());
            bytes.extend_from_slice(&[0; 8]);
            assert_eq!(code(&bytes), ErrorCode::OFPBAC_BAD_OUT_PORT, "{port:#x}");
        }
    }

    #[test]
    fn tags_have_only_their_ethertypes() {
        assert_eq!(
            code(&[0, 17, 0, 8, 0x08, 0x00, 0, 0]),
            ErrorCode::OFPBAC_BAD_ARGUMENT
        );
        assert_eq!(
            code(&[0, 19, 0, 8, 0x81, 0x00, 0, 0]),
            ErrorCode::OFPBAC_BAD_ARGUMENT
        );
        assert_eq!(
            code(&[0, 26, 0, 8, 0x88, 0xa8, 0, 0]),
            ErrorCode::OFPBAC_BAD_ARGUMENT
        );
    }

    #[test]
    fn unknown_types_and_experimenters_have_their_own_codes() {
        assert_eq!(code(&[0, 1, 0, 8, 0, 0, 0, 0]), ErrorCode::OFPBAC_BAD_TYPE);
        assert_eq!(
            code(&[0xff, 0xff, 0, 8, 0, 0, 0x23, 0x20]),
            ErrorCode::OFPBAC_BAD_EXPERIMENTER
        );
    }

    #[test]
    fn a_set_field_names_one_settable_field_without_mask() {
        let set = |oxm: [u8; 12]| {
            let mut bytes = vec![0, 25, 0, 16];
            bytes.extend_from_slice(&oxm);
            bytes
        };
        let in_port = set([0x80, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(code(&in_port), ErrorCode::OFPBAC_BAD_SET_TYPE);
        let masked = set([0x80, 0, 7, 6, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(code(&masked), ErrorCode::OFPBAC_BAD_SET_TYPE);
        let short = set([0x80, 0, 3 << 1, 4, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(code(&short), ErrorCode::OFPBAC_BAD_SET_LEN);
        let too_long_for_the_action = set([0x80, 0, 26 << 1, 16, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(code(&too_long_for_the_action), ErrorCode::OFPBAC_BAD_SET_LEN);
        let dscp_64 = set([0x80, 0, 8 << 1, 1, 64, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(code(&dscp_64), ErrorCode::OFPBAC_BAD_SET_ARGUMENT);
    }
}
