//! The distribution of the buckets of flows over the members of a LAG.

use millrace_types::PortNo;

/// Number of buckets. With 16 members, one has at most 1/15 more buckets than another.
pub(crate) const BUCKETS: usize = 256;

/// The member of each bucket; `None` if no member distributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Distribution([Option<PortNo>; BUCKETS]);

impl Distribution {
    /// No member distributes.
    pub(crate) const EMPTY: Distribution = Distribution([None; BUCKETS]);

    /// Returns the member that sends the packets of a flow with this hash.
    #[inline]
    pub(crate) fn member(&self, hash: u64) -> Option<PortNo> {
        // The high bits are mixed best.
        self.0[(hash >> (u64::BITS - BUCKETS.ilog2())) as usize]
    }

    /// Returns the distribution over `members`, each with as many buckets as any other, or one more, and as few moves as
    /// that allows.
    pub(crate) fn over(&self, members: &[PortNo]) -> Distribution {
        let mut next = self.clone();
        if members.is_empty() {
            return Distribution::EMPTY;
        }
        let mut lens: Vec<(usize, PortNo)> = members
            .iter()
            .map(|member| (next.len_of(*member), *member))
            .collect();
        for bucket in &mut next.0 {
            let is_kept = bucket.is_some_and(|owner| members.contains(&owner));
            if !is_kept && let Some((len, least)) = lens.iter_mut().min() {
                *bucket = Some(*least);
                *len += 1;
            }
        }
        loop {
            let (Some((most, donor)), Some((least, taker))) =
                (lens.iter().max().copied(), lens.iter().min().copied())
            else {
                return next;
            };
            if most - least <= 1 {
                return next;
            }
            if let Some(bucket) = next.0.iter_mut().find(|owner| **owner == Some(donor)) {
                *bucket = Some(taker);
            }
            for (len, member) in &mut lens {
                if *member == donor {
                    *len -= 1;
                } else if *member == taker {
                    *len += 1;
                }
            }
        }
    }

    /// Moves the buckets whose member has none in `next` to where `next` has them. Returns the members that have more
    /// buckets than in `next` then: they still work.
    pub(crate) fn leave(&mut self, next: &Distribution) -> Vec<PortNo> {
        let mut donors = Vec::new();
        for (bucket, wanted) in self.0.iter_mut().zip(next.0) {
            match *bucket {
                Some(owner) if next.len_of(owner) > 0 => {
                    if *bucket != wanted && !donors.contains(&owner) {
                        donors.push(owner);
                    }
                }
                _ => *bucket = wanted,
            }
        }
        donors
    }

    /// Returns the number of buckets of a member.
    fn len_of(&self, member: PortNo) -> usize {
        self.0.iter().filter(|owner| **owner == Some(member)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(numbers: &[u32]) -> Vec<PortNo> {
        numbers.iter().map(|raw| PortNo::from_raw(*raw)).collect()
    }

    fn moved(one: &Distribution, other: &Distribution) -> usize {
        one.0.iter().zip(other.0).filter(|(a, b)| **a != *b).count()
    }

    #[test]
    fn members_have_equally_many_buckets_and_few_buckets_move() {
        let mut seed = 7;
        let mut now = Distribution::EMPTY;
        let mut members: Vec<PortNo> = Vec::new();
        for _ in 0..2_000 {
            let number = PortNo::from_raw((millrace_types::split_mix::next(&mut seed) % 16) as u32 + 1);
            let before = members.clone();
            match members.iter().position(|member| *member == number) {
                Some(at) => drop(members.remove(at)),
                None => members.push(number),
            }
            let next = now.over(&members);
            let lens: Vec<usize> = members.iter().map(|member| next.len_of(*member)).collect();
            if let (Some(most), Some(least)) = (lens.iter().max(), lens.iter().min()) {
                assert!(most - least <= 1, "{lens:?}");
                assert_eq!(lens.iter().sum::<usize>(), BUCKETS);
                let share = BUCKETS.div_ceil(members.len().max(before.len()));
                assert!(
                    before.is_empty() || moved(&now, &next) <= share,
                    "more than the share of one member moved"
                );
            } else {
                assert_eq!(next, Distribution::EMPTY);
            }
            now = next;
        }
    }

    #[test]
    fn buckets_of_a_member_that_leaves_move_at_once_and_those_of_working_members_wait() {
        let two = Distribution::EMPTY.over(&ports(&[1, 2]));
        let next = two.over(&ports(&[2, 3]));
        let mut now = two.clone();
        let donors = now.leave(&next);
        assert_eq!(
            now.len_of(PortNo::from_raw(1)),
            0,
            "the member that left has nothing"
        );
        assert_eq!(donors, ports(&[]), "the buckets of 1 are exactly those of 3");
        let next = now.over(&ports(&[2, 3, 4]));
        let before = now.clone();
        let mut donors = now.leave(&next);
        donors.sort();
        assert_eq!(donors, ports(&[2, 3]));
        assert_eq!(now, before, "flows of working members stay until the move");
    }

    #[test]
    fn a_lag_without_members_sends_nothing() {
        assert_eq!(Distribution::EMPTY.member(u64::MAX), None);
        assert_eq!(
            Distribution::EMPTY.over(&ports(&[5])).member(0),
            Some(PortNo::from_raw(5))
        );
    }
}
