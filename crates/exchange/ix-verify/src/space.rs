//! Sets of packets: cubes, which fix some bits of some fields, and spaces, which are a cube without other cubes.
//!
//! ```text
//! space:  +-----------------------+
//!         | cube       +-----+    |     the packets of the cube that no excluded cube has
//!         |   +----+   | w 2 |    |
//!         |   |w 1 |   +-----+    |
//!         +---+----+--------------+
//! ```
//! A lookup by priority needs no other sets: the packets of an entry are its cube without the cubes of the entries above it.

use millrace_flow::Field;

/// A property of the packet as it entered the exchange.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Var {
    /// A header field other than those of VLAN tags.
    Field(Field),
    /// The VID of a tag; 0 is the outermost tag.
    Vid(u8),
    /// The priority of a tag; 0 is the outermost tag.
    Pcp(u8),
}

impl Var {
    /// Returns the mask of all bits.
    pub const fn all(self) -> u128 {
        match self {
            Var::Field(field) => field.max_value(),
            Var::Vid(_) => 0xfff,
            Var::Pcp(_) => 7,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Bits {
    var: Var,
    value: u128,
    mask: u128,
}

/// The packets that have certain values in certain bits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cube(Vec<Bits>);

impl Cube {
    /// Returns the cube of all packets.
    pub const fn any() -> Cube {
        Cube(Vec::new())
    }

    /// Returns the packets of this cube that also have a value. Returns the cube itself if it excludes the value.
    #[must_use]
    pub fn with(mut self, var: Var, value: impl Into<u128>) -> Cube {
        let _ = self.constrain(var, value.into(), var.all());
        self
    }

    /// Returns the packets of this cube that also have a value in the bits of a mask.
    #[must_use]
    pub fn masked(mut self, var: Var, value: impl Into<u128>, mask: impl Into<u128>) -> Cube {
        let _ = self.constrain(var, value.into(), mask.into());
        self
    }

    /// Fixes bits. Returns false, and changes nothing, if the cube has other values in them.
    #[must_use]
    pub(crate) fn constrain(&mut self, var: Var, value: u128, mask: u128) -> bool {
        let value = value & mask;
        match self.0.binary_search_by_key(&var, |bits| bits.var) {
            Ok(at) => {
                let bits = &mut self.0[at];
                if (bits.value ^ value) & bits.mask & mask != 0 {
                    return false;
                }
                bits.value |= value;
                bits.mask |= mask;
            }
            Err(at) if mask != 0 => self.0.insert(at, Bits { var, value, mask }),
            Err(_) => {}
        }
        true
    }

    /// Returns value and mask of a field; a mask of zero stands for any value.
    pub fn bits(&self, var: Var) -> (u128, u128) {
        let found = self.0.binary_search_by_key(&var, |bits| bits.var).ok();
        found.map_or((0, 0), |at| (self.0[at].value, self.0[at].mask))
    }

    /// Returns the value of a field, if all of its bits are fixed.
    pub fn exact(&self, var: Var) -> Option<u128> {
        let (value, mask) = self.bits(var);
        (mask == var.all()).then_some(value)
    }

    /// Returns the fields with their values and masks.
    pub fn iter(&self) -> impl Iterator<Item = (Var, u128, u128)> + '_ {
        self.0.iter().map(|bits| (bits.var, bits.value, bits.mask))
    }

    /// Returns the packets of both cubes; `None` if there are none.
    pub fn intersection(&self, other: &Cube) -> Option<Cube> {
        if !self.overlaps(other) {
            return None;
        }
        let mut both = self.clone();
        for bits in &other.0 {
            if !both.constrain(bits.var, bits.value, bits.mask) {
                return None;
            }
        }
        Some(both)
    }

    /// Returns true if a packet is in both cubes.
    pub fn overlaps(&self, other: &Cube) -> bool {
        let (mut one, mut two) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (one.peek(), two.peek()) {
            match a.var.cmp(&b.var) {
                core::cmp::Ordering::Less => drop(one.next()),
                core::cmp::Ordering::Greater => drop(two.next()),
                core::cmp::Ordering::Equal => {
                    if (a.value ^ b.value) & a.mask & b.mask != 0 {
                        return false;
                    }
                    one.next();
                    two.next();
                }
            }
        }
        true
    }

    /// Returns true if all packets of the other cube are in this one.
    pub fn covers(&self, other: &Cube) -> bool {
        self.0.iter().all(|bits| {
            let (value, mask) = other.bits(bits.var);
            bits.mask & !mask == 0 && (bits.value ^ value) & bits.mask == 0
        })
    }

    /// Returns the cube without the constraints on some fields.
    #[must_use]
    pub(crate) fn without_fields(&self, drop: impl Fn(Var) -> bool) -> Cube {
        Cube(self.0.iter().filter(|bits| !drop(bits.var)).copied().collect())
    }
}

/// The largest number of steps of one search for a packet. Real tables need at most a few thousand.
const STEPS_MAX: usize = 50_000;

/// The packets of a cube that are in none of some other cubes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Space {
    pub cube: Cube,
    /// The excluded cubes.
    pub without: Vec<Cube>,
}

impl Space {
    /// Returns the space of a cube.
    pub const fn of(cube: Cube) -> Space {
        Space {
            cube,
            without: Vec::new(),
        }
    }

    /// Returns the packets of this space that are in a cube, or `None` if there are obviously none.
    pub fn within(&self, cube: &Cube) -> Option<Space> {
        let cube = self.cube.intersection(cube)?;
        let mut without = Vec::new();
        for other in &self.without {
            if other.covers(&cube) {
                return None;
            }
            if other.overlaps(&cube) {
                without.push(other.clone());
            }
        }
        Some(Space { cube, without })
    }

    /// Excludes a cube.
    pub fn exclude(&mut self, cube: Cube) {
        if cube.overlaps(&self.cube) {
            self.without.push(cube);
        }
    }

    /// Returns the packets of this space that are not in another one, as spaces that may overlap.
    pub fn minus(&self, other: &Space) -> Vec<Space> {
        if !self.cube.overlaps(&other.cube) {
            return vec![self.clone()];
        }
        let mut parts: Vec<Space> = other
            .without
            .iter()
            .filter_map(|cube| self.within(cube))
            .collect();
        if !other.cube.covers(&self.cube) {
            let mut outside = self.clone();
            outside.exclude(other.cube.clone());
            parts.push(outside);
        }
        parts
    }

    /// Returns packets of the space as a cube, or `None` if the space is empty. The answer is exact, except that a search
    /// that takes more than 50,000 steps answers with a cube: a proof that is not found counts as no proof.
    pub fn example(&self) -> Option<Cube> {
        let without: Vec<&Cube> = self.without.iter().collect();
        let mut steps = 0;
        outside(&self.cube, &without, &mut steps)
    }

    /// Returns true if no packet is in the space.
    pub fn is_empty(&self) -> bool {
        self.example().is_none()
    }
}

/// Returns a part of a cube that no other cube overlaps.
fn outside(cube: &Cube, without: &[&Cube], steps: &mut usize) -> Option<Cube> {
    *steps += 1;
    let near: Vec<&Cube> = without
        .iter()
        .filter(|other| other.overlaps(cube))
        .copied()
        .collect();
    if near.iter().any(|other| other.covers(cube)) {
        return None;
    }
    // The cube that fixes the fewest further bits excludes the most packets.
    let free = |other: &Cube| -> u32 {
        let bits = other.0.iter();
        bits.map(|bits| (bits.mask & !cube.bits(bits.var).1).count_ones())
            .sum()
    };
    let Some(widest) = near.iter().min_by_key(|other| free(other)).copied() else {
        return Some(cube.clone());
    };
    if *steps > STEPS_MAX {
        return Some(cube.clone());
    }
    let mut rest = cube.clone();
    for bits in &widest.0 {
        let mut open = bits.mask & !cube.bits(bits.var).1;
        while open != 0 {
            let bit = open & open.wrapping_neg();
            open ^= bit;
            let mut apart = rest.clone();
            if apart.constrain(bits.var, bits.value ^ bit, bit)
                && let Some(found) = outside(&apart, &near, steps)
            {
                return Some(found);
            }
            if !rest.constrain(bits.var, bits.value, bit) {
                return None;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::prelude::*;

    use super::*;

    const DST: Var = Var::Field(Field::IpProto);
    const SRC: Var = Var::Pcp(0);

    fn cube() -> impl Strategy<Value = Cube> {
        (any::<u8>(), any::<u8>(), 0..8u8, 0..8u8)
            .prop_map(|(a, b, c, d)| Cube::any().masked(DST, a & 31, b & 31).masked(SRC, c, d))
    }

    /// Returns all packets over the two fields.
    fn packets() -> impl Iterator<Item = Cube> {
        (0..32u8).flat_map(|one| (0..8u8).map(move |two| Cube::any().with(DST, one).with(SRC, two)))
    }

    proptest! {
        #[test]
        fn sets_agree_with_an_enumeration_of_all_packets(
            one in cube(), two in cube(), without in proptest::collection::vec(cube(), 0..6)
        ) {
            let both = one.intersection(&two);
            prop_assert_eq!(both.is_some(), one.overlaps(&two));
            for packet in packets() {
                let is_in_both = one.covers(&packet) && two.covers(&packet);
                prop_assert_eq!(both.as_ref().is_some_and(|both| both.covers(&packet)), is_in_both);
            }
            let other = Space { cube: two.clone(), without: without.clone() };
            let rest = Space::of(one.clone()).minus(&other);
            for packet in packets() {
                let is_in_rest = rest.iter().any(|part| {
                    part.cube.covers(&packet) && !part.without.iter().any(|cube| cube.covers(&packet))
                });
                let is_in_other = two.covers(&packet) && !without.iter().any(|cube| cube.covers(&packet));
                prop_assert_eq!(is_in_rest, one.covers(&packet) && !is_in_other);
            }
            // Only five of the eight bits of the first field vary in the enumeration.
            let five_bits = Cube::any().masked(DST, 0u8, 0xe0u8);
            let space = Space { cube: one.clone(), without: without.clone() }.within(&five_bits);
            let is_left = |packet: &Cube| one.covers(packet) && !without.iter().any(|cube| cube.covers(packet));
            let example = space.and_then(|space| space.example());
            prop_assert_eq!(example.is_some(), packets().any(|packet| is_left(&packet)));
            if let Some(example) = example {
                prop_assert!(packets().filter(|packet| example.covers(packet)).all(|packet| is_left(&packet)));
            }
        }
    }

    #[test]
    fn the_vid_that_four_thousand_excluded_ones_leave_is_found() {
        let without = (0..4096u16)
            .filter(|vid| *vid != 777)
            .map(|vid| Cube::any().with(Var::Vid(0), vid));
        let mut space = Space {
            cube: Cube::any(),
            without: without.collect(),
        };
        assert_eq!(space.example(), Some(Cube::any().with(Var::Vid(0), 777u16)));
        space.exclude(Cube::any().with(Var::Vid(0), 777u16));
        assert!(space.is_empty());
    }
}
