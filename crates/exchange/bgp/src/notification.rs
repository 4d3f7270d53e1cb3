//! NOTIFICATION: the reason why a session ends (RFC 4271, section 4.5).

use core::fmt;

/// The contents of a NOTIFICATION that was sent or received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The error code.
    pub code: u8,
    /// The error subcode; 0 means unspecific.
    pub subcode: u8,
    /// The data; error code and subcode define their meaning.
    pub data: Vec<u8>,
}

/// The error codes (RFC 4271, section 4.5; RFC 7313 for the last).
mod code {
    pub(super) const MESSAGE_HEADER: u8 = 1;
    pub(super) const OPEN_MESSAGE: u8 = 2;
    pub(super) const UPDATE_MESSAGE: u8 = 3;
    pub(super) const HOLD_TIMER_EXPIRED: u8 = 4;
    pub(super) const FINITE_STATE_MACHINE: u8 = 5;
    pub(super) const CEASE: u8 = 6;
    pub(super) const ROUTE_REFRESH_MESSAGE: u8 = 7;
}

/// The subcode of an error that has no more specific one (RFC 4271, section 4.5).
const UNSPECIFIC: u8 = 0;

/// Defines the subcodes of an error code: their numbers, and their names in the registry of IANA.
macro_rules! subcodes {
    ($(#[$about:meta])* $visibility:vis $name:ident { $($(#[$doc:meta])* $subcode:ident = $number:literal, $text:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        $visibility enum $name {
            $($(#[$doc])* $subcode = $number,)*
        }

        impl $name {
            /// Returns the name of a received subcode; "" for an unspecific or unknown one.
            const fn text(number: u8) -> &'static str {
                match number {
                    $($number => $text,)*
                    _ => "",
                }
            }
        }
    };
}

subcodes! {
    /// The subcodes of "Message Header Error" (RFC 4271, section 6.1).
    pub(crate) HeaderError {
        ConnectionNotSynchronized = 1, "Connection Not Synchronized";
        BadMessageLength = 2, "Bad Message Length";
        BadMessageType = 3, "Bad Message Type";
    }
}

subcodes! {
    /// The subcodes of "OPEN Message Error" (RFC 4271, section 6.2; RFC 5492 for the last).
    pub(crate) OpenError {
        Unspecific = 0, "";
        UnsupportedVersionNumber = 1, "Unsupported Version Number";
        BadPeerAs = 2, "Bad Peer AS";
        BadBgpIdentifier = 3, "Bad BGP Identifier";
        UnsupportedOptionalParameter = 4, "Unsupported Optional Parameter";
        UnacceptableHoldTime = 6, "Unacceptable Hold Time";
        UnsupportedCapability = 7, "Unsupported Capability";
    }
}

subcodes! {
    /// The subcodes of "UPDATE Message Error" that RFC 7606 leaves to end a session (RFC 4271, section 6.3).
    pub(crate) UpdateError {
        MalformedAttributeList = 1, "Malformed Attribute List";
        UnrecognizedWellKnownAttribute = 2, "Unrecognized Well-known Attribute";
        OptionalAttributeError = 9, "Optional Attribute Error";
        InvalidNetworkField = 10, "Invalid Network Field";
    }
}

subcodes! {
    /// The subcodes of "Finite State Machine Error" (RFC 6608).
    pub(crate) StateMachineError {
        Unspecific = 0, "";
        UnexpectedInOpenSent = 1, "Unexpected Message in OpenSent State";
        UnexpectedInOpenConfirm = 2, "Unexpected Message in OpenConfirm State";
        UnexpectedInEstablished = 3, "Unexpected Message in Established State";
    }
}

subcodes! {
    /// The subcodes of "Cease" (RFC 4486; RFC 8538 for the last).
    pub Cease {
        /// The peer has announced more prefixes than permitted.
        MaximumPrefixes = 1, "Maximum Number of Prefixes Reached";
        /// The process ends.
        AdministrativeShutdown = 2, "Administrative Shutdown";
        /// The peer is no longer configured.
        PeerDeconfigured = 3, "Peer De-configured";
        /// The peer is started again.
        AdministrativeReset = 4, "Administrative Reset";
        /// The peer is not accepted.
        ConnectionRejected = 5, "Connection Rejected";
        /// The settings of the peer have changed.
        ConfigurationChange = 6, "Other Configuration Change";
        /// Another connection to the same peer is kept.
        ConnectionCollision = 7, "Connection Collision Resolution";
        /// The routes need more memory than permitted.
        OutOfResources = 8, "Out of Resources";
        /// The session ends without graceful restart.
        HardReset = 9, "Hard Reset";
    }
}

impl Notification {
    /// Returns a NOTIFICATION without data.
    pub const fn new(code: u8, subcode: u8) -> Notification {
        Notification {
            code,
            subcode,
            data: Vec::new(),
        }
    }

    /// Returns the NOTIFICATION with these data.
    #[must_use]
    pub fn with_data(mut self, data: &[u8]) -> Notification {
        self.data = data.to_vec();
        self
    }

    /// Returns a "Cease".
    pub const fn cease(reason: Cease) -> Notification {
        Notification::new(code::CEASE, reason as u8)
    }

    /// Returns a "Message Header Error".
    pub(crate) const fn header(error: HeaderError) -> Notification {
        Notification::new(code::MESSAGE_HEADER, error as u8)
    }

    /// Returns an "OPEN Message Error".
    pub(crate) const fn open(error: OpenError) -> Notification {
        Notification::new(code::OPEN_MESSAGE, error as u8)
    }

    /// Returns an "UPDATE Message Error".
    pub(crate) const fn update(error: UpdateError) -> Notification {
        Notification::new(code::UPDATE_MESSAGE, error as u8)
    }

    /// Returns a "Hold Timer Expired".
    pub(crate) const fn hold_timer() -> Notification {
        Notification::new(code::HOLD_TIMER_EXPIRED, UNSPECIFIC)
    }

    /// Returns a "Finite State Machine Error".
    pub(crate) const fn state_machine(error: StateMachineError) -> Notification {
        Notification::new(code::FINITE_STATE_MACHINE, error as u8)
    }

    /// Decodes the body of a NOTIFICATION.
    pub fn decode(body: &[u8]) -> Option<Notification> {
        let [code, subcode, data @ ..] = body else {
            return None;
        };
        Some(Notification::new(*code, *subcode).with_data(data))
    }

    /// Returns the body of a NOTIFICATION.
    pub fn body(&self) -> Vec<u8> {
        let mut body = vec![self.code, self.subcode];
        body.extend_from_slice(&self.data);
        body
    }

    /// Returns the text of a shutdown communication (RFC 9003), without control characters; `None` if there
    /// is none.
    pub fn communication(&self) -> Option<String> {
        const SHUTDOWN: u8 = Cease::AdministrativeShutdown as u8;
        const RESET: u8 = Cease::AdministrativeReset as u8;
        if self.code != code::CEASE || !matches!(self.subcode, SHUTDOWN | RESET) {
            return None;
        }
        let (len, rest) = self.data.split_first()?;
        let text = core::str::from_utf8(rest.get(..usize::from(*len))?).ok()?;
        Some(text.chars().filter(|letter| !letter.is_control()).collect())
            .filter(|text: &String| !text.is_empty())
    }

    /// Returns the name of the error code.
    const fn code_name(&self) -> &'static str {
        match self.code {
            code::MESSAGE_HEADER => "Message Header Error",
            code::OPEN_MESSAGE => "OPEN Message Error",
            code::UPDATE_MESSAGE => "UPDATE Message Error",
            code::HOLD_TIMER_EXPIRED => "Hold Timer Expired",
            code::FINITE_STATE_MACHINE => "Finite State Machine Error",
            code::CEASE => "Cease",
            code::ROUTE_REFRESH_MESSAGE => "ROUTE-REFRESH Message Error",
            _ => "unknown error",
        }
    }

    /// Returns the name of the subcode; "" for an unspecific or unknown one.
    const fn subcode_name(&self) -> &'static str {
        match self.code {
            code::MESSAGE_HEADER => HeaderError::text(self.subcode),
            code::OPEN_MESSAGE => OpenError::text(self.subcode),
            code::UPDATE_MESSAGE => UpdateError::text(self.subcode),
            code::FINITE_STATE_MACHINE => StateMachineError::text(self.subcode),
            code::CEASE => Cease::text(self.subcode),
            _ => "",
        }
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code_name())?;
        let subcode = self.subcode_name();
        if !subcode.is_empty() {
            write!(f, ", {subcode}")?;
        }
        write!(f, " ({}/{})", self.code, self.subcode)?;
        match self.communication() {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_says_its_names_and_the_peers_text() {
        let plain = Notification::update(UpdateError::MalformedAttributeList);
        assert_eq!(
            plain.to_string(),
            "UPDATE Message Error, Malformed Attribute List (3/1)"
        );
        let shutdown = Notification::cease(Cease::AdministrativeShutdown).with_data(b"\x06back\x1b\n rest");
        assert_eq!(shutdown.to_string(), "Cease, Administrative Shutdown (6/2): back");
        assert_eq!(Notification::decode(&shutdown.body()), Some(shutdown));
        assert_eq!(Notification::decode(&[6]), None);
    }
}
