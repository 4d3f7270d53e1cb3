//! Groups and next hops: flows keep their members.

use millrace_fib::{GroupId, NextHopId, NextHopKind, NextHopSpec, NextHops, Writer};
use millrace_types::split_mix;

fn hashes() -> impl Iterator<Item = u64> {
    let mut state = 11;
    (0..200_000).map(move |_| split_mix::next(&mut state))
}

fn next_hops(writer: &mut Writer, count: u16) -> Vec<NextHopId> {
    (0..count)
        .map(|interface| {
            let spec = NextHopSpec {
                interface,
                ..NextHopSpec::without_interface(NextHopKind::Glean)
            };
            writer.add_next_hop(&spec).unwrap()
        })
        .collect()
}

fn interface(reader: &NextHops, group: GroupId, hash: u64) -> u16 {
    reader.member(group, hash).unwrap().interface()
}

#[test]
fn flows_of_64_weighted_members_are_within_two_percent_of_the_weights() {
    let mut writer = Writer::new();
    let reader = writer.next_hops();
    let next_hops = next_hops(&mut writer, 64);
    let weights: Vec<u32> = (0..64).map(|at| 1 + at % 4).collect();
    let members: Vec<_> = next_hops.iter().copied().zip(weights.iter().copied()).collect();
    let group = writer.add_group(&members).unwrap();
    // As many hashes as cells have values: exact, not a sample.
    let mut counts = [0u32; 64];
    for hash in 0..1 << 20 {
        counts[usize::from(interface(&reader, group, hash))] += 1;
    }
    let total: u32 = weights.iter().sum();
    for (count, weight) in counts.iter().zip(&weights) {
        let exact = f64::from(1 << 20) * f64::from(*weight) / f64::from(total);
        assert!(
            (f64::from(*count) / exact - 1.0).abs() < 0.02,
            "{count}, expected {exact}"
        );
    }
}

#[test]
fn a_lost_member_moves_only_its_flows_and_a_dead_one_too() {
    let mut writer = Writer::new();
    let reader = writer.next_hops();
    let next_hops = next_hops(&mut writer, 8);
    let members: Vec<_> = next_hops.iter().map(|next_hop| (*next_hop, 1)).collect();
    let group = writer.add_group(&members).unwrap();
    let before: Vec<u16> = hashes().map(|hash| interface(&reader, group, hash)).collect();
    // Before the group changes, workers see that the port of member 3 is down.
    for (hash, was) in hashes().zip(&before) {
        let is = reader
            .live_member(group, || hash, |next_hop| next_hop.interface() != 3)
            .unwrap()
            .interface();
        assert!(if *was == 3 { is != 3 } else { is == *was });
    }
    let rest: Vec<_> = members
        .iter()
        .copied()
        .filter(|member| member.0 != next_hops[3])
        .collect();
    writer.set_group(group, &rest).unwrap();
    for (hash, was) in hashes().zip(&before) {
        let is = interface(&reader, group, hash);
        assert!(if *was == 3 { is != 3 } else { is == *was });
    }
    // It comes back, and takes an eighth.
    writer.set_group(group, &members).unwrap();
    let back = hashes()
        .filter(|hash| interface(&reader, group, *hash) == 3)
        .count();
    assert!(
        (0.11..0.14).contains(&(back as f64 / before.len() as f64)),
        "{back}"
    );
}

#[test]
fn the_only_live_member_of_many_is_found() {
    let mut writer = Writer::new();
    let reader = writer.next_hops();
    let next_hops = next_hops(&mut writer, 64);
    let members: Vec<_> = next_hops.iter().map(|next_hop| (*next_hop, 1)).collect();
    let group = writer.add_group(&members).unwrap();
    for hash in hashes().take(2000) {
        let found = reader
            .live_member(group, || hash, |next_hop| next_hop.interface() == 17)
            .unwrap();
        assert_eq!(found.interface(), 17);
        assert!(reader.live_member(group, || hash, |_| false).is_some());
    }
    assert_eq!(reader.members(group), next_hops);
}

#[test]
fn numbers_are_used_again_only_after_they_were_reclaimed() {
    let mut writer = Writer::new();
    let reader = writer.next_hops();
    let next_hops = next_hops(&mut writer, 2);
    let group = writer.add_group(&[(next_hops[0], 1), (next_hops[1], 1)]).unwrap();
    writer.retire_group(group);
    writer.retire_next_hop(next_hops[0]);
    let retired = writer.take_retired().unwrap();
    assert_ne!(writer.add_group(&[(next_hops[1], 1)]).unwrap(), group);
    assert!(reader.member(group, 0).is_some());
    writer.reclaim(retired);
    assert!(reader.member(group, 0).is_none());
    assert_eq!(writer.add_group(&[(next_hops[1], 1)]).unwrap(), group);
    assert!(reader.member(GroupId::NONE, 5).is_none());
    assert_eq!(writer.usage().nodes_size, 0);
}
