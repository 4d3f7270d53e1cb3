//! The directions of a flow.

/// The direction of a packet in its flow. The client is the end that sent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

    /// Returns 0 for the direction to the server, 1 for the direction to the client.
    #[inline]
    pub const fn index(self) -> usize {
        match self {
            Direction::ToServer => 0,
            Direction::ToClient => 1,
        }
    }

    /// Returns the other direction.
    #[inline]
    pub const fn reverse(self) -> Direction {
        match self {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        }
    }
}
