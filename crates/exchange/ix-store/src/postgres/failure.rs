//! Failures of a connection and of statements, in the terms of the store.

use crate::error::{StoreError, constraint};

/// The failure of work on a connection.
#[derive(Debug)]
pub(super) enum Failure {
    Sql(tokio_postgres::Error),
    Store(StoreError),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        Failure::Sql(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Store(error)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        let error = match failure {
            Failure::Store(error) => return error,
            Failure::Sql(error) => error,
        };
        let Some(found) = error.as_db_error() else {
            return StoreError::Away(text(&error));
        };
        match found.code().code() {
            // disk_full (class 53 is insufficient resources)
            "53100" => StoreError::Full,
            code if code.starts_with("23") => StoreError::Constraint {
                constraint: constraint(found.message()),
                message: found.message().to_owned(),
            },
            // data_corrupted, index_corrupted
            "XX001" | "XX002" => StoreError::Damaged(found.message().to_owned()),
            _ => StoreError::Database(text(&error)),
        }
    }
}

/// Returns true if a connection cannot be used any more after this error.
pub(super) fn is_lost(error: &tokio_postgres::Error) -> bool {
    let Some(found) = error.as_db_error() else {
        return true;
    };
    // Connection exceptions, the end of a server, a session that was idle in a transaction, a server that became a standby.
    let code = found.code().code();
    code.starts_with("08") || code.starts_with("57P") || code == "25P03" || code == "25006"
}

/// Returns an error with its cause, in one line.
pub(super) fn text(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Returns the error of a setting.
pub(super) fn refused(reason: String) -> StoreError {
    StoreError::Open {
        path: "database.postgres".to_owned(),
        reason,
    }
}
