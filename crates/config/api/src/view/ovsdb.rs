//! The Open vSwitch database that the switch follows.

use serde::{Deserialize, Serialize};

/// The state of the connection with the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OvsdbState {
    /// No database is configured.
    Off,
    /// Opening the connection, or waiting before the next attempt.
    Connecting,
    /// Connected; another process, such as ovs-vswitchd, holds the lock of the database.
    WaitingForLock,
    /// The switch realises the database.
    Following,
}

impl OvsdbState {
    /// Returns the word that JSON has.
    pub const fn as_str(self) -> &'static str {
        match self {
            OvsdbState::Off => "off",
            OvsdbState::Connecting => "connecting",
            OvsdbState::WaitingForLock => "waiting_for_lock",
            OvsdbState::Following => "following",
        }
    }
}

/// A difference between a row of the database and the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct OvsdbFault {
    /// The table and the name of the row: `Interface eth1`.
    pub row: String,
    /// True if the row, or a part of it that changes what happens to packets, is not in effect.
    pub refused: bool,
    /// The column, the value and what was expected.
    pub reason: String,
}

/// The Open vSwitch database that the switch follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Ovsdb {
    /// The address of the server; `null` if none is configured.
    #[serde(default)]
    pub server: Option<String>,
    /// The state of the connection.
    pub state: OvsdbState,
    /// The time in this state, in seconds.
    pub since_seconds: f64,
    /// The reason why the last connection or attempt ended.
    #[serde(default)]
    pub last_error: Option<String>,
    /// The reason why the desired state of the database waits: a lock, or a revision that waits for its confirmation.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// The number of the desired state that the database has (`next_cfg`); `null` before the first connection.
    #[serde(default)]
    pub next_cfg: Option<i64>,
    /// The number of the desired state that the switch has reached (`cur_cfg`).
    #[serde(default)]
    pub cur_cfg: Option<i64>,
    /// The number of monitored rows.
    pub rows: u64,
    /// The memory of the monitored rows, in bytes.
    pub memory_bytes: u64,
    /// The number of connections since the start.
    pub connections: u64,
    /// The number of transactions that the server committed since the start.
    pub transactions: u64,
    /// The differences between rows and the switch.
    pub faults: Vec<OvsdbFault>,
}
