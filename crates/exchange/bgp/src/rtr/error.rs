//! The errors between a client and a cache: the codes of Error Reports, and the reasons to close a connection.

/// An error code (RFC 8210, section 12).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorCode(pub u16);

impl ErrorCode {
    /// Corrupt Data: the session differs, or the PDU is malformed or out of place.
    pub const CORRUPT_DATA: ErrorCode = ErrorCode(0);
    /// No Data Available. The connection stays open after it.
    pub const NO_DATA: ErrorCode = ErrorCode(2);
    /// Invalid Request: the PDU is none that a cache sends.
    pub const INVALID_REQUEST: ErrorCode = ErrorCode(3);
    /// Unsupported Protocol Version. The connection stays open if the cache supports an older version.
    pub const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(4);
    /// Unsupported PDU Type.
    pub const UNSUPPORTED_TYPE: ErrorCode = ErrorCode(5);
    /// Withdrawal of Unknown Record.
    pub const WITHDRAWAL_UNKNOWN: ErrorCode = ErrorCode(6);
    /// Duplicate Announcement Received.
    pub const DUPLICATE: ErrorCode = ErrorCode(7);
    /// Unexpected Protocol Version: another one than that of the first answer.
    pub const UNEXPECTED_VERSION: ErrorCode = ErrorCode(8);
}

/// The reason why a connection to a cache must be closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RtrError {
    /// The cache violated the protocol. It gets an Error Report with the code.
    #[error("the cache sent {text}")]
    Protocol {
        code: ErrorCode,
        /// The violation in words.
        text: String,
    },
    /// The session of the cache is not the one that the client knows: the set is flushed. The cache gets an Error Report
    /// "Corrupt Data" (RFC 8210, section 5.1).
    #[error(
        "the cache has restarted: its session is {found}, that of the payloads was {known}, so all payloads are flushed and asked for again"
    )]
    OtherSession { known: u16, found: u16 },
    /// The cache reports an error.
    #[error("the cache reports error {}: {text}", code.0)]
    Reported { code: ErrorCode, text: String },
    /// A response did not end in time.
    #[error("the cache did not finish its response within {} seconds", super::RESPONSE_TIME.as_secs())]
    Late,
    /// The set has more payloads than the client's limit.
    #[error("the cache has more than {0} payloads")]
    TooMany(usize),
}

impl RtrError {
    pub(super) const fn protocol(code: ErrorCode, text: String) -> RtrError {
        RtrError::Protocol { code, text }
    }

    pub(super) fn out_of_place(text: &str) -> RtrError {
        RtrError::protocol(ErrorCode::CORRUPT_DATA, text.to_owned())
    }

    /// Returns the code of the Error Report that the cache gets; `None` if it gets none.
    pub(super) const fn report_code(&self) -> Option<ErrorCode> {
        match self {
            RtrError::Protocol { code, .. } => Some(*code),
            RtrError::OtherSession { .. } => Some(ErrorCode::CORRUPT_DATA),
            RtrError::Reported { .. } | RtrError::Late | RtrError::TooMany(_) => None,
        }
    }
}
