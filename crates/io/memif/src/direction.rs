//! The direction of a ring, as messages and errors name it.

use core::fmt;

/// The direction of a ring's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the client to the server ("slave to master").
    ToServer,
    /// From the server to the client ("master to slave").
    ToClient,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::ToServer => "S2M",
            Direction::ToClient => "M2S",
        })
    }
}
