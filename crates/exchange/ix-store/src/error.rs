//! The errors of the database, in the terms of its callers.

/// A rule of the schema about objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constraint {
    /// Two ends of services use the same (connection, outer tag, inner tag).
    EndVlan,
    /// A MAC or IP address is registered twice in one service.
    Address,
    /// Two objects of one account have the same `external_ref`.
    ExternalRef,
    /// A port belongs to two connections.
    ConnectionPort,
    /// An audit entry or a journal record would change after it was written.
    AppendOnly,
    /// Another rule, such as a key that exists already.
    Other,
}

impl std::fmt::Display for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Constraint::EndVlan => "this VLAN of the connection is in use by another service",
            Constraint::Address => "this address is registered in the service already",
            Constraint::ExternalRef => "another object of the account has this external_ref",
            Constraint::ConnectionPort => "the port belongs to another connection",
            Constraint::AppendOnly => "entries of the audit chain and of the journal never change",
            Constraint::Other => "a constraint of the database",
        })
    }
}

/// The database refuses or fails.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be created or opened, or its permissions are too wide.
    #[error("{path}: {reason}")]
    Open {
        path: String,
        /// The reason, and the next step.
        reason: String,
    },
    /// The schema of the file is newer than this program.
    #[error(
        "the database has schema version {found}, this program knows {known}; start the version that wrote it, or a newer one"
    )]
    Newer {
        /// The version in the file.
        found: u32,
        /// The newest version of this program.
        known: u32,
    },
    /// A constraint of the schema is violated.
    #[error("{constraint} ({message})")]
    Constraint {
        /// The rule.
        constraint: Constraint,
        /// The message of the database.
        message: String,
    },
    /// Another process opened the database later.
    #[error(
        "another engine has opened the database since (epoch {found}, this engine has {mine}); this engine must not write any more"
    )]
    Fenced {
        /// The epoch in the database.
        found: u64,
        /// The epoch of this process.
        mine: u64,
    },
    /// Another engine leads.
    #[error("this engine follows {leader}, and accepts nothing: send the request there")]
    Follows {
        /// The engine that leads.
        leader: crate::Leader,
    },
    /// The server of the database does not answer.
    #[error(
        "the database does not answer ({0}): nothing is accepted until it does, and what the switches have stays"
    )]
    Away(String),
    /// The medium has no space.
    #[error("the disk of the database is full: nothing is accepted until there is space")]
    Full,
    /// An audit entry has no canonical form.
    #[error("audit entry: {0}")]
    Canonical(#[from] crate::CanonicalError),
    /// The contents of the database are not as this program writes them.
    #[error("the database is damaged: {0}; restore a backup")]
    Damaged(String),
    /// The file of the database is damaged.
    #[error(
        "{path}: the database is damaged ({reason}): the engine does not start with it. The switches keep forwarding. Restore a \
         backup: millrace-ix restore BACKUP --database {path}"
    )]
    DamagedFile {
        path: String,
        /// The finding of SQLite.
        reason: String,
    },
    /// Another failure of the database.
    #[error("the database fails: {0}")]
    Database(String),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        use rusqlite::ErrorCode;
        let code = error.sqlite_error_code();
        match code {
            Some(ErrorCode::DiskFull) => StoreError::Full,
            Some(ErrorCode::ConstraintViolation) => {
                let message = error.to_string();
                StoreError::Constraint {
                    constraint: constraint(&message),
                    message,
                }
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Damaged(error.to_string())
            }
            _ => StoreError::Database(error.to_string()),
        }
    }
}

/// Returns the rule that a message of the database names by its index, table or trigger.
pub(crate) fn constraint(message: &str) -> Constraint {
    let rules = [
        ("end_vlan", Constraint::EndVlan),
        ("service_address", Constraint::Address),
        ("external_ref", Constraint::ExternalRef),
        ("connection_port", Constraint::ConnectionPort),
        ("append-only", Constraint::AppendOnly),
    ];
    let found = rules.iter().find(|(name, _)| message.contains(name));
    found.map_or(Constraint::Other, |(_, constraint)| *constraint)
}
