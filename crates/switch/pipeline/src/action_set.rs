//! The action set: at most one action of each kind, executed in the order of OpenFlow 1.3.5, section 5.10.

use arrayvec::ArrayVec;
use millrace_flow::{Action, Field};

/// The number of ranks, one for each kind of action, in the order of execution.
pub(crate) const RANKS: usize = 16 + Field::ALL.len();
const SET_FIELD: u8 = 10;
const AFTER_SET_FIELD: u8 = SET_FIELD + Field::ALL.len() as u8;

/// Returns the rank of an action in the order of execution; actions of one kind share a rank.
///
/// Each field of set_field is a separate kind. The specification leaves their order open. Here they are in
/// the order of OXM numbers, so that the type of a header is set before its fields.
pub(crate) const fn rank(action: &Action) -> u8 {
    match action {
        Action::CopyTtlIn => 0,
        Action::PopVlan => 1,
        Action::PopMpls(_) => 2,
        Action::PopPbb => 3,
        Action::PushMpls(_) => 4,
        Action::PushPbb(_) => 5,
        Action::PushVlan(_) => 6,
        Action::CopyTtlOut => 7,
        Action::DecMplsTtl => 8,
        Action::DecNwTtl => 9,
        Action::SetField(set) => SET_FIELD + set.field().index(),
        Action::SetMplsTtl(_) => AFTER_SET_FIELD,
        Action::SetNwTtl(_) => AFTER_SET_FIELD + 1,
        Action::SetQueue(_) => AFTER_SET_FIELD + 2,
        Action::Group(_) => AFTER_SET_FIELD + 3,
        Action::Output { .. } => AFTER_SET_FIELD + 4,
    }
}

/// The ranks of the actions in the action set of one packet, one bit each.
///
/// The actions themselves are in a [`ByRank`]. Most packets have none, and emptying a set costs one store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ActionRanks(u64);

impl ActionRanks {
    pub(crate) const NONE: ActionRanks = ActionRanks(0);

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The actions of one set by rank. Those whose rank is not in [`ActionRanks`] are stale.
pub(crate) type ByRank = [Action; RANKS];

/// The initial value of a [`ByRank`].
pub(crate) const NO_ACTIONS: ByRank = [Action::PopVlan; RANKS];

/// Adds an action, which replaces an action of the same kind.
#[inline]
pub(crate) fn write(present: &mut ActionRanks, actions: &mut ByRank, action: Action) {
    let rank = rank(&action);
    present.0 |= 1 << rank;
    actions[usize::from(rank)] = action;
}

/// Returns the actions in the order of execution. A group makes outputs ineffective.
#[inline]
pub(crate) fn in_order(present: ActionRanks, actions: &ByRank) -> ArrayVec<Action, RANKS> {
    let mut list = ArrayVec::new();
    let mut left = present.0;
    if left & 1 << (AFTER_SET_FIELD + 3) != 0 {
        left &= !(1 << (AFTER_SET_FIELD + 4));
    }
    while left != 0 {
        list.push(actions[left.trailing_zeros() as usize]);
        left &= left - 1;
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_flow::SetField;
    use millrace_types::{GroupId, PortNo, QueueId};
    use millrace_wire::EtherType;

    fn drained(actions: &[Action]) -> Vec<Action> {
        let (mut present, mut by_rank) = (ActionRanks::NONE, NO_ACTIONS);
        for action in actions {
            write(&mut present, &mut by_rank, *action);
        }
        assert_eq!(present.is_empty(), actions.is_empty());
        in_order(present, &by_rank).to_vec()
    }

    #[test]
    fn actions_run_in_the_order_of_the_specification_whatever_the_order_of_writing() {
        let in_order = [
            Action::CopyTtlIn,
            Action::PopVlan,
            Action::PopMpls(EtherType::IPV4),
            Action::PopPbb,
            Action::PushMpls(EtherType::MPLS),
            Action::PushPbb(EtherType::PBB),
            Action::PushVlan(EtherType::VLAN),
            Action::CopyTtlOut,
            Action::DecMplsTtl,
            Action::DecNwTtl,
            Action::SetField(SetField::new(Field::EthDst, 1).unwrap()),
            Action::SetField(SetField::new(Field::VlanVid, 0x1001).unwrap()),
            Action::SetField(SetField::new(Field::TunnelId, 1).unwrap()),
            Action::SetMplsTtl(9),
            Action::SetNwTtl(9),
            Action::SetQueue(QueueId(1)),
            Action::output(PortNo::from_raw(1)),
        ];
        let reversed: Vec<Action> = in_order.iter().rev().copied().collect();
        assert_eq!(drained(&reversed), in_order);
    }

    #[test]
    fn a_later_action_replaces_one_of_its_kind_and_a_group_hides_an_output() {
        let port = |raw| Action::output(PortNo::from_raw(raw));
        assert_eq!(drained(&[port(1), port(2)]), [port(2)]);
        assert_eq!(
            drained(&[Action::Group(GroupId(3)), port(1)]),
            [Action::Group(GroupId(3))]
        );
    }

    #[test]
    fn every_action_has_a_rank_below_the_number_of_ranks() {
        assert!(usize::from(rank(&Action::output(PortNo::ALL))) < RANKS);
        const { assert!(RANKS <= 64) };
    }
}
