//! Marks: the numbers by which a device says something about the packets that it delivers.

use core::num::NonZeroU32;

/// The number that a device puts on packets that match a rule; never 0, because to some devices mark 0 means no mark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mark(NonZeroU32);

impl Mark {
    /// Returns the mark with this number; `None` for 0.
    pub const fn new(number: u32) -> Option<Mark> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Mark(number)),
            None => None,
        }
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, FramePool, Packet};

    #[test]
    fn a_mark_is_taken_once_and_no_copy_has_it() {
        assert_eq!(Mark::new(0), None);
        let mark = Mark::new(7).unwrap();
        let pool = FramePool::new(2, 64);
        for mut frame in [Frame::new(&[1, 2, 3]), pool.take(&[1, 2, 3]).unwrap()] {
            frame.set_mark(mark);
            let copies = [Some(frame.clone()), frame.try_clone(), frame.alloc_like(&[4])];
            for mut copy in copies.into_iter().flatten() {
                assert_eq!(copy.take_mark(), None);
            }
            assert_eq!(frame.take_mark(), Some(mark));
            assert_eq!(frame.take_mark(), None);
            frame.set_mark(mark);
            frame.chain(Frame::new(&[4])).unwrap();
            assert_eq!(frame.take_mark(), None, "a reassembled packet has other bytes");
        }
    }
}
