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

/// The subcodes of the error Cease that the receiver sends (RFC 4486).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Cease {
    /// The peer has announced more prefixes than permitted.
    MaximumPrefixes = 1,
    /// The process ends.
    AdministrativeShutdown = 2,
    /// The peer is no longer configured.
    PeerDeconfigured = 3,
    /// The settings of the peer have changed.
    ConfigurationChange = 6,
    /// Another connection to the same peer is kept.
    ConnectionCollision = 7,
    /// The routes need more memory than permitted.
    OutOfResources = 8,
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
        Notification::new(6, reason as u8)
    }

    /// Returns a "Message Header Error".
    pub(crate) const fn header(subcode: u8) -> Notification {
        Notification::new(1, subcode)
    }

    /// Returns an "OPEN Message Error".
    pub(crate) const fn open(subcode: u8) -> Notification {
        Notification::new(2, subcode)
    }

    /// Returns an "UPDATE Message Error".
    pub(crate) const fn update(subcode: u8) -> Notification {
        Notification::new(3, subcode)
    }

    /// Returns a "Hold Timer Expired".
    pub(crate) const fn hold_timer() -> Notification {
        Notification::new(4, 0)
    }

    /// Returns a "Finite State Machine Error"; RFC 6608 defines its subcodes.
    pub(crate) const fn state_machine(subcode: u8) -> Notification {
        Notification::new(5, subcode)
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
        if self.code != 6 || !matches!(self.subcode, 2 | 4) {
            return None;
        }
        let (len, rest) = self.data.split_first()?;
        let text = core::str::from_utf8(rest.get(..usize::from(*len))?).ok()?;
        Some(text.chars().filter(|letter| !letter.is_control()).collect())
            .filter(|text: &String| !text.is_empty())
    }

    const fn words(&self) -> (&'static str, &'static str) {
        match (self.code, self.subcode) {
            (1, 1) => ("Message Header Error", "Connection Not Synchronized"),
            (1, 2) => ("Message Header Error", "Bad Message Length"),
            (1, 3) => ("Message Header Error", "Bad Message Type"),
            (1, _) => ("Message Header Error", ""),
            (2, 1) => ("OPEN Message Error", "Unsupported Version Number"),
            (2, 2) => ("OPEN Message Error", "Bad Peer AS"),
            (2, 3) => ("OPEN Message Error", "Bad BGP Identifier"),
            (2, 4) => ("OPEN Message Error", "Unsupported Optional Parameter"),
            (2, 6) => ("OPEN Message Error", "Unacceptable Hold Time"),
            (2, 7) => ("OPEN Message Error", "Unsupported Capability"),
            (2, _) => ("OPEN Message Error", ""),
            (3, 1) => ("UPDATE Message Error", "Malformed Attribute List"),
            (3, 2) => ("UPDATE Message Error", "Unrecognized Well-known Attribute"),
            (3, 9) => ("UPDATE Message Error", "Optional Attribute Error"),
            (3, 10) => ("UPDATE Message Error", "Invalid Network Field"),
            (3, _) => ("UPDATE Message Error", ""),
            (4, _) => ("Hold Timer Expired", ""),
            (5, 1) => (
                "Finite State Machine Error",
                "Unexpected Message in OpenSent State",
            ),
            (5, 2) => (
                "Finite State Machine Error",
                "Unexpected Message in OpenConfirm State",
            ),
            (5, 3) => (
                "Finite State Machine Error",
                "Unexpected Message in Established State",
            ),
            (5, _) => ("Finite State Machine Error", ""),
            (6, 1) => ("Cease", "Maximum Number of Prefixes Reached"),
            (6, 2) => ("Cease", "Administrative Shutdown"),
            (6, 3) => ("Cease", "Peer De-configured"),
            (6, 4) => ("Cease", "Administrative Reset"),
            (6, 5) => ("Cease", "Connection Rejected"),
            (6, 6) => ("Cease", "Other Configuration Change"),
            (6, 7) => ("Cease", "Connection Collision Resolution"),
            (6, 8) => ("Cease", "Out of Resources"),
            (6, 9) => ("Cease", "Hard Reset"),
            (6, _) => ("Cease", ""),
            (7, _) => ("ROUTE-REFRESH Message Error", ""),
            _ => ("unknown error", ""),
        }
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, subcode) = self.words();
        f.write_str(code)?;
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
        let plain = Notification::update(1);
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
