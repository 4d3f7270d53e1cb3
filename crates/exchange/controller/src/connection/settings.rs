//! Time-outs and limits of a connection, and their defaults.

use millrace_types::Duration;

/// Time-outs and limits of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The time for HELLO and FEATURES_REPLY, from the start of the connection.
    pub handshake_timeout: Duration,
    /// The time after which an ECHO_REQUEST is sent if the switch neither sends bytes nor reads waiting
    /// output. The switch has the same time to answer. `None` sends no ECHO_REQUEST.
    pub echo_interval: Option<Duration>,
    /// The number of consecutive unanswered ECHO_REQUESTs after which the connection is closed.
    pub echo_misses: u32,
    /// The maximum time of an operation, from its first message.
    pub operation_timeout: Duration,
    /// The maximum number of incomplete operations.
    pub max_operations: usize,
    /// The maximum size of a multipart reply, in received bytes.
    pub max_dump_size: usize,
    /// The maximum size of events that wait for [`Connection::poll_event`](super::Connection::poll_event), in bytes.
    pub max_events_size: usize,
    /// The size of waiting output, in bytes, above which a switch that sends an ECHO_REQUEST is treated as
    /// not reading.
    pub max_output: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            handshake_timeout: Duration::from_secs(10),
            echo_interval: Some(Duration::from_secs(5)),
            echo_misses: 2,
            operation_timeout: Duration::from_secs(30),
            max_operations: 64,
            max_dump_size: 256 << 20,
            max_events_size: 4 << 20,
            max_output: 1 << 20,
        }
    }
}
