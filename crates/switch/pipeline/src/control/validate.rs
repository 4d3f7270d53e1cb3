//! Validation of instructions and actions for the packets that a match selects.
//!
//! A set_field needs its field, a pop its tag. The headers that the match guarantees are tracked through the actions:
//! a push adds a tag, set_field of an EtherType changes the protocol. An action whose header is not guaranteed is
//! refused with `OFPBAC_MATCH_INCONSISTENT` (OpenFlow 1.3.5, section 7.5.4.3). TTL actions are accepted: they do
//! nothing to a packet without a TTL.

use millrace_flow::{Action, Field, Instructions, Match, Prerequisite};
use millrace_types::{GroupId, PortNo, TableId};
use millrace_wire::EtherType;

use super::error::{ActionError, FlowModError};
use crate::action_set::rank;

/// Maximum number of actions in one list; a message holds fewer.
const ACTIONS_MAX: usize = u16::MAX as usize;

/// Checks the instructions of an entry.
pub(super) fn instructions(
    match_: &Match,
    instructions: &Instructions,
    table: TableId,
    tables: usize,
) -> Result<(), FlowModError> {
    if let Some(to) = instructions.goto_table
        && (to <= table || usize::from(to.0) >= tables)
    {
        return Err(FlowModError::BadGoto {
            from: table,
            to,
            tables,
        });
    }
    let mut known = KnownHeaders::from_match(match_);
    if let Some(actions) = &instructions.apply_actions {
        list(actions, Some(&mut known), false)?;
    }
    if let Some(actions) = &instructions.write_actions {
        let mut in_order: Vec<Action> = actions.to_vec();
        in_order.sort_by_key(rank);
        list(&in_order, Some(&mut known), false)?;
    }
    Ok(())
}

/// Checks the actions of a packet_out, which may output to [`PortNo::TABLE`]. The packet may have any headers: an
/// action whose header is absent does nothing.
pub(super) fn packet_out(actions: &[Action]) -> Result<(), ActionError> {
    list(actions, None, true)
}

/// Checks the actions of a bucket, which are an action set for any packet. The caller checks that the groups
/// exist to which these actions forward.
pub(super) fn bucket(actions: &[Action]) -> Result<(), ActionError> {
    list(actions, None, false)
}

fn list(actions: &[Action], mut known: Option<&mut KnownHeaders>, to_table: bool) -> Result<(), ActionError> {
    if actions.len() > ACTIONS_MAX {
        return Err(ActionError::TooMany {
            len: actions.len(),
            max: ACTIONS_MAX,
        });
    }
    for action in actions {
        argument(action, to_table)?;
        if let Some(known) = known.as_deref_mut() {
            known.apply(action)?;
        }
    }
    Ok(())
}

/// Checks that the argument of an action is possible.
fn argument(action: &Action, to_table: bool) -> Result<(), ActionError> {
    let among = |action, ether_type: EtherType, expected, possible: &[EtherType]| {
        if possible.contains(&ether_type) {
            Ok(())
        } else {
            Err(ActionError::BadEtherType {
                action,
                ether_type,
                expected,
            })
        }
    };
    match *action {
        Action::Output { port, .. } => {
            let possible = match port {
                PortNo::TABLE => to_table,
                PortNo::ANY => false,
                port => port.is_ordinary() || port.is_reserved(),
            };
            if possible {
                Ok(())
            } else {
                Err(ActionError::BadOutPort { port })
            }
        }
        Action::Group(group) if group > GroupId::MAX => Err(ActionError::BadOutGroup { group }),
        Action::PushVlan(ether_type) => among(
            "push_vlan",
            ether_type,
            "0x8100 or 0x88a8",
            &[EtherType::VLAN, EtherType::QINQ],
        ),
        Action::PushMpls(ether_type) => among(
            "push_mpls",
            ether_type,
            "0x8847 or 0x8848",
            &[EtherType::MPLS, EtherType::MPLS_MULTICAST],
        ),
        Action::PushPbb(ether_type) => among("push_pbb", ether_type, "0x88e7", &[EtherType::PBB]),
        Action::SetField(set) => {
            let (field, value) = (set.field(), set.value());
            let possible = match field {
                Field::VlanVid => value & 0x1000 != 0,
                Field::EthType => value >= u128::from(EtherType::MIN.0),
                _ => true,
            };
            if possible {
                Ok(())
            } else {
                Err(ActionError::BadSetArgument { field, value })
            }
        }
        _ => Ok(()),
    }
}

/// The headers that every packet has at this point.
struct KnownHeaders {
    eth_type: Option<u16>,
    /// Number of VLAN tags that are certain.
    tags: usize,
    ip_proto: Option<u16>,
    icmpv6_type: Option<u16>,
}

impl KnownHeaders {
    fn from_match(match_: &Match) -> KnownHeaders {
        let exact = |field| {
            let given = match_.field(field)?;
            given.mask.is_none().then_some(given.value as u16)
        };
        let is_tagged = match_
            .field(Field::VlanVid)
            .is_some_and(|given| given.value & 0x1000 != 0);
        KnownHeaders {
            eth_type: exact(Field::EthType),
            tags: usize::from(is_tagged),
            ip_proto: exact(Field::IpProto),
            icmpv6_type: exact(Field::Icmpv6Type),
        }
    }

    fn set_payload(&mut self, eth_type: Option<u16>) {
        self.eth_type = eth_type;
        self.ip_proto = None;
        self.icmpv6_type = None;
    }

    fn is_mpls(&self) -> bool {
        self.eth_type.is_some_and(|raw| EtherType(raw).is_mpls())
    }

    fn satisfies(&self, field: Field) -> bool {
        match field.prerequisite() {
            // The VID of an absent tag cannot be set.
            Prerequisite::None => field != Field::VlanVid || self.tags > 0,
            Prerequisite::Present(_) => false,
            Prerequisite::Tagged => self.tags > 0,
            Prerequisite::OneOf(other, values) => match other {
                Field::EthType => self.eth_type,
                Field::IpProto => self.ip_proto,
                Field::Icmpv6Type => self.icmpv6_type,
                _ => None,
            }
            .is_some_and(|value| values.contains(&value)),
        }
    }

    /// Applies an action, or returns the reason why its header is not guaranteed.
    fn apply(&mut self, action: &Action) -> Result<(), ActionError> {
        let inconsistent = |action, needs| Err(ActionError::MatchInconsistent { action, needs });
        match *action {
            Action::PushVlan(_) => self.tags += 1,
            Action::PopVlan => match self.tags.checked_sub(1) {
                Some(left) => self.tags = left,
                None => return inconsistent("pop_vlan", "a VLAN tag"),
            },
            Action::PushMpls(ether_type) | Action::PushPbb(ether_type) => {
                // The push is outside of the VLAN tags, which are no longer reachable.
                self.tags = 0;
                self.set_payload(Some(ether_type.0));
            }
            Action::PopMpls(_) if !self.is_mpls() => {
                return inconsistent("pop_mpls", "eth_type=0x8847 or 0x8848");
            }
            Action::PopMpls(ether_type) => {
                if ether_type.is_vlan() {
                    self.tags = 1;
                    self.set_payload(None);
                } else {
                    self.set_payload(Some(ether_type.0));
                }
            }
            Action::PopPbb if self.eth_type != Some(EtherType::PBB.0) => {
                return inconsistent("pop_pbb", "eth_type=0x88e7");
            }
            Action::PopPbb => {
                self.tags = 0;
                self.set_payload(None);
            }
            Action::SetField(set) => {
                let (field, value) = (set.field(), set.value());
                if !self.satisfies(field) {
                    return Err(ActionError::SetFieldPrerequisite { field });
                }
                match field {
                    Field::EthType => self.set_payload(Some(value as u16)),
                    Field::IpProto => {
                        self.ip_proto = Some(value as u16);
                        self.icmpv6_type = None;
                    }
                    Field::Icmpv6Type => self.icmpv6_type = Some(value as u16),
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;
    use millrace_flow::SetField;

    fn check(match_: &[(Field, u128)], actions: &[Action]) -> Result<(), FlowModError> {
        let match_ = Match::exact(match_).unwrap();
        instructions(&match_, &Instructions::apply(actions), TableId(0), 2)
    }

    fn set(field: Field, value: u128) -> Action {
        Action::SetField(SetField::new(field, value).unwrap())
    }

    #[test]
    fn set_field_needs_what_its_field_needs() {
        let tcp = [(Field::EthType, 0x800), (Field::IpProto, 6)];
        assert_eq!(check(&tcp, &[set(Field::TcpDst, 80)]), Ok(()));
        for (match_, action) in [
            (&tcp[..], set(Field::UdpDst, 80)),
            (&tcp[..1], set(Field::TcpDst, 80)),
            (&[], set(Field::Ipv4Src, 1)),
            (&tcp[..], set(Field::VlanVid, 0x1005)),
            (&tcp[..], set(Field::VlanPcp, 1)),
        ] {
            let error = check(match_, &[action]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::OFPBAC_MATCH_INCONSISTENT, "{error}");
        }
        assert_eq!(
            check(&[], &[set(Field::EthDst, 5), set(Field::TunnelId, 5)]),
            Ok(())
        );
    }

    #[test]
    fn earlier_actions_count() {
        assert_eq!(
            check(
                &[],
                &[
                    Action::PushVlan(EtherType::VLAN),
                    set(Field::VlanVid, 0x1005),
                    set(Field::VlanPcp, 1),
                    Action::PopVlan,
                ]
            ),
            Ok(())
        );
        let tcp = [(Field::EthType, 0x800), (Field::IpProto, 6)];
        let pushed = [Action::PushMpls(EtherType::MPLS), set(Field::MplsLabel, 7)];
        assert_eq!(check(&tcp, &pushed), Ok(()));
        let hidden = [Action::PushMpls(EtherType::MPLS), set(Field::TcpDst, 7)];
        assert_eq!(
            check(&tcp, &hidden).unwrap_err().code(),
            ErrorCode::OFPBAC_MATCH_INCONSISTENT
        );
        let mpls = [(Field::EthType, 0x8847)];
        let popped = [Action::PopMpls(EtherType::IPV4), set(Field::Ipv4Dst, 7)];
        assert_eq!(check(&mpls, &popped), Ok(()));
        let twice = [Action::PopMpls(EtherType::IPV4), Action::PopMpls(EtherType::IPV4)];
        assert_eq!(
            check(&mpls, &twice).unwrap_err().code(),
            ErrorCode::OFPBAC_MATCH_INCONSISTENT
        );
    }

    #[test]
    fn pops_need_their_tag() {
        for action in [Action::PopVlan, Action::PopMpls(EtherType::IPV4), Action::PopPbb] {
            assert_eq!(
                check(&[], &[action]).unwrap_err().code(),
                ErrorCode::OFPBAC_MATCH_INCONSISTENT
            );
        }
        assert_eq!(check(&[(Field::VlanVid, 0x1005)], &[Action::PopVlan]), Ok(()));
        assert_eq!(
            check(&[(Field::VlanVid, 0)], &[Action::PopVlan])
                .unwrap_err()
                .code(),
            ErrorCode::OFPBAC_MATCH_INCONSISTENT
        );
        assert_eq!(check(&[(Field::EthType, 0x88e7)], &[Action::PopPbb]), Ok(()));
    }

    #[test]
    fn write_actions_are_checked_in_the_order_of_the_set() {
        let write = Instructions {
            write_actions: Some([set(Field::VlanVid, 0x1005), Action::PushVlan(EtherType::VLAN)].into()),
            ..Instructions::default()
        };
        assert_eq!(instructions(&Match::any(), &write, TableId(0), 1), Ok(()));
    }

    #[test]
    fn impossible_arguments_have_their_codes() {
        let code = |action| check(&[], &[action]).unwrap_err().code();
        for port in [0, PortNo::TABLE.raw(), PortNo::ANY.raw(), PortNo::MAX.raw() + 1] {
            assert_eq!(
                code(Action::output(PortNo::from_raw(port))),
                ErrorCode::OFPBAC_BAD_OUT_PORT,
                "{port:#x}"
            );
        }
        assert_eq!(packet_out(&[Action::output(PortNo::TABLE)]), Ok(()));
        assert_eq!(code(Action::Group(GroupId::ALL)), ErrorCode::OFPBAC_BAD_OUT_GROUP);
        assert_eq!(
            code(Action::PushVlan(EtherType::MPLS)),
            ErrorCode::OFPBAC_BAD_ARGUMENT
        );
        assert_eq!(
            code(Action::PushMpls(EtherType::VLAN)),
            ErrorCode::OFPBAC_BAD_ARGUMENT
        );
        assert_eq!(
            code(Action::PushPbb(EtherType::VLAN)),
            ErrorCode::OFPBAC_BAD_ARGUMENT
        );
        assert_eq!(code(set(Field::VlanVid, 5)), ErrorCode::OFPBAC_BAD_SET_ARGUMENT);
    }

    #[test]
    fn gotos_go_forward_to_tables_that_exist() {
        let goto = |from, to| {
            instructions(&Match::any(), &Instructions::goto(TableId(to)), TableId(from), 4)
                .map_err(|error| error.code())
        };
        assert_eq!(goto(0, 3), Ok(()));
        assert_eq!(goto(0, 4), Err(ErrorCode::OFPBIC_BAD_TABLE_ID));
        assert_eq!(goto(2, 2), Err(ErrorCode::OFPBIC_BAD_TABLE_ID));
        assert_eq!(goto(2, 1), Err(ErrorCode::OFPBIC_BAD_TABLE_ID));
    }
}
