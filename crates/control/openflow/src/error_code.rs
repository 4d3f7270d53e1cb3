//! Every error that OpenFlow 1.3.5 defines (OpenFlow 1.3.5, section 7.5.4), under its name there.

use core::fmt;

/// An error that answers a request: an error type, and a code within the type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode {
    /// `OFPET_*`.
    pub type_: u16,
    /// The code, whose meaning depends on the type.
    pub code: u16,
}

struct Row {
    code: ErrorCode,
    type_name: &'static str,
    name: &'static str,
    meaning: &'static str,
}

macro_rules! errors {
    ($rows:ident: $( $type_name:ident = $type_:literal { $( $name:ident = $code:literal: $meaning:literal, )* } )*) => {
        impl ErrorCode {
            $( $(
                #[doc = concat!("`", stringify!($type_name), "`: ", $meaning, ".")]
                pub const $name: ErrorCode = ErrorCode { type_: $type_, code: $code };
            )* )*

            const $rows: &'static [Row] = &[$( $( Row {
                code: ErrorCode::$name,
                type_name: stringify!($type_name),
                name: stringify!($name),
                meaning: $meaning,
            }, )* )*];
        }
    };
}

errors! {
    ROWS:
    OFPET_HELLO_FAILED = 0 {
        OFPHFC_INCOMPATIBLE = 0: "no version in common",
        OFPHFC_EPERM = 1: "permissions forbid the connection",
    }
    OFPET_BAD_REQUEST = 1 {
        OFPBRC_BAD_VERSION = 0: "the version in the header is not the one agreed on",
        OFPBRC_BAD_TYPE = 1: "the message type is unknown, or not for a switch",
        OFPBRC_BAD_MULTIPART = 2: "the multipart type is unknown",
        OFPBRC_BAD_EXPERIMENTER = 3: "the experimenter is unknown",
        OFPBRC_BAD_EXP_TYPE = 4: "the experimenter's message type is unknown",
        OFPBRC_EPERM = 5: "permissions forbid the request",
        OFPBRC_BAD_LEN = 6: "the length does not suit the type",
        OFPBRC_BUFFER_EMPTY = 7: "the buffer has been used already",
        OFPBRC_BUFFER_UNKNOWN = 8: "there is no such buffer",
        OFPBRC_BAD_TABLE_ID = 9: "there is no such table",
        OFPBRC_IS_SLAVE = 10: "a slave may not change anything",
        OFPBRC_BAD_PORT = 11: "there is no such port",
        OFPBRC_BAD_PACKET = 12: "the packet in the packet-out is invalid",
        OFPBRC_MULTIPART_BUFFER_OVERFLOW = 13: "the parts of the request are too large in all",
    }
    OFPET_BAD_ACTION = 2 {
        OFPBAC_BAD_TYPE = 0: "the action type is unknown",
        OFPBAC_BAD_LEN = 1: "the length of an action, or of the list, is wrong",
        OFPBAC_BAD_EXPERIMENTER = 2: "the experimenter is unknown",
        OFPBAC_BAD_EXP_TYPE = 3: "the experimenter's action type is unknown",
        OFPBAC_BAD_OUT_PORT = 4: "no packet can be sent to this port",
        OFPBAC_BAD_ARGUMENT = 5: "an argument of the action is invalid",
        OFPBAC_EPERM = 6: "permissions forbid the action",
        OFPBAC_TOO_MANY = 7: "there are too many actions",
        OFPBAC_BAD_QUEUE = 8: "there is no such queue",
        OFPBAC_BAD_OUT_GROUP = 9: "there is no such group",
        OFPBAC_MATCH_INCONSISTENT = 10: "the match does not promise the header that the action needs",
        OFPBAC_UNSUPPORTED_ORDER = 11: "the actions cannot be executed in this order",
        OFPBAC_BAD_TAG = 12: "the tag or its encapsulation is not supported",
        OFPBAC_BAD_SET_TYPE = 13: "the field cannot be set",
        OFPBAC_BAD_SET_LEN = 14: "the field to set has the wrong length",
        OFPBAC_BAD_SET_ARGUMENT = 15: "the field cannot be set to this value",
    }
    OFPET_BAD_INSTRUCTION = 3 {
        OFPBIC_UNKNOWN_INST = 0: "the instruction type is unknown",
        OFPBIC_UNSUP_INST = 1: "the table does not support the instruction",
        OFPBIC_BAD_TABLE_ID = 2: "goto_table must name a later table that exists",
        OFPBIC_UNSUP_METADATA = 3: "the table does not support this metadata",
        OFPBIC_UNSUP_METADATA_MASK = 4: "the table does not support this metadata mask",
        OFPBIC_BAD_EXPERIMENTER = 5: "the experimenter is unknown",
        OFPBIC_BAD_EXP_TYPE = 6: "the experimenter's instruction type is unknown",
        OFPBIC_BAD_LEN = 7: "the length of an instruction is wrong",
        OFPBIC_EPERM = 8: "permissions forbid the instruction",
    }
    OFPET_BAD_MATCH = 4 {
        OFPBMC_BAD_TYPE = 0: "the match is not an OXM match",
        OFPBMC_BAD_LEN = 1: "the length of the match, or of a field, is wrong",
        OFPBMC_BAD_TAG = 2: "the tag or its encapsulation is not supported",
        OFPBMC_BAD_DL_ADDR_MASK = 3: "this mask of an Ethernet address is not supported",
        OFPBMC_BAD_NW_ADDR_MASK = 4: "this mask of a network address is not supported",
        OFPBMC_BAD_WILDCARDS = 5: "a value has bits outside of its mask",
        OFPBMC_BAD_FIELD = 6: "the field is unknown",
        OFPBMC_BAD_VALUE = 7: "the field cannot have this value",
        OFPBMC_BAD_MASK = 8: "the field cannot have this mask",
        OFPBMC_BAD_PREREQ = 9: "a prerequisite of the field is missing",
        OFPBMC_DUP_FIELD = 10: "the field appears twice",
        OFPBMC_EPERM = 11: "permissions forbid the match",
    }
    OFPET_FLOW_MOD_FAILED = 5 {
        OFPFMFC_UNKNOWN = 0: "unspecified",
        OFPFMFC_TABLE_FULL = 1: "the table is full",
        OFPFMFC_BAD_TABLE_ID = 2: "there is no such table",
        OFPFMFC_OVERLAP = 3: "the entry overlaps another of its priority",
        OFPFMFC_EPERM = 4: "permissions forbid the change",
        OFPFMFC_BAD_TIMEOUT = 5: "the timeout is not supported",
        OFPFMFC_BAD_COMMAND = 6: "the command is unknown",
        OFPFMFC_BAD_FLAGS = 7: "a flag is unknown",
    }
    OFPET_GROUP_MOD_FAILED = 6 {
        OFPGMFC_GROUP_EXISTS = 0: "the group exists already",
        OFPGMFC_INVALID_GROUP = 1: "the group is invalid",
        OFPGMFC_WEIGHT_UNSUPPORTED = 2: "unequal weights are not supported",
        OFPGMFC_OUT_OF_GROUPS = 3: "there is no room for another group",
        OFPGMFC_OUT_OF_BUCKETS = 4: "there is no room for these buckets",
        OFPGMFC_CHAINING_UNSUPPORTED = 5: "groups that forward to groups are not supported",
        OFPGMFC_WATCH_UNSUPPORTED = 6: "the group cannot watch this port or group",
        OFPGMFC_LOOP = 7: "the group would forward to itself",
        OFPGMFC_UNKNOWN_GROUP = 8: "there is no such group",
        OFPGMFC_CHAINED_GROUP = 9: "another group forwards to the group",
        OFPGMFC_BAD_TYPE = 10: "the group type is unknown",
        OFPGMFC_BAD_COMMAND = 11: "the command is unknown",
        OFPGMFC_BAD_BUCKET = 12: "a bucket is invalid",
        OFPGMFC_BAD_WATCH = 13: "the watched port or group is invalid",
        OFPGMFC_EPERM = 14: "permissions forbid the change",
    }
    OFPET_PORT_MOD_FAILED = 7 {
        OFPPMFC_BAD_PORT = 0: "there is no such port",
        OFPPMFC_BAD_HW_ADDR = 1: "the port has another hardware address",
        OFPPMFC_BAD_CONFIG = 2: "the configuration is invalid",
        OFPPMFC_BAD_ADVERTISE = 3: "the advertised features are invalid",
        OFPPMFC_EPERM = 4: "permissions forbid the change",
    }
    OFPET_TABLE_MOD_FAILED = 8 {
        OFPTMFC_BAD_TABLE = 0: "there is no such table",
        OFPTMFC_BAD_CONFIG = 1: "the configuration is invalid",
        OFPTMFC_EPERM = 2: "permissions forbid the change",
    }
    OFPET_QUEUE_OP_FAILED = 9 {
        OFPQOFC_BAD_PORT = 0: "there is no such port",
        OFPQOFC_BAD_QUEUE = 1: "there is no such queue",
        OFPQOFC_EPERM = 2: "permissions forbid the request",
    }
    OFPET_SWITCH_CONFIG_FAILED = 10 {
        OFPSCFC_BAD_FLAGS = 0: "the flags are invalid",
        OFPSCFC_BAD_LEN = 1: "miss_send_len is invalid",
        OFPSCFC_EPERM = 2: "permissions forbid the change",
    }
    OFPET_ROLE_REQUEST_FAILED = 11 {
        OFPRRFC_STALE = 0: "the generation_id is older than the latest seen",
        OFPRRFC_UNSUP = 1: "changing roles is not supported",
        OFPRRFC_BAD_ROLE = 2: "the role is unknown",
    }
    OFPET_METER_MOD_FAILED = 12 {
        OFPMMFC_UNKNOWN = 0: "unspecified",
        OFPMMFC_METER_EXISTS = 1: "the meter exists already",
        OFPMMFC_INVALID_METER = 2: "the meter is invalid",
        OFPMMFC_UNKNOWN_METER = 3: "there is no such meter",
        OFPMMFC_BAD_COMMAND = 4: "the command is unknown",
        OFPMMFC_BAD_FLAGS = 5: "the flags are invalid",
        OFPMMFC_BAD_RATE = 6: "the rate is not supported",
        OFPMMFC_BAD_BURST = 7: "the burst size is not supported",
        OFPMMFC_BAD_BAND = 8: "the band is not supported",
        OFPMMFC_BAD_BAND_VALUE = 9: "a value of the band is not supported",
        OFPMMFC_OUT_OF_METERS = 10: "there is no room for another meter",
        OFPMMFC_OUT_OF_BANDS = 11: "there is no room for these bands",
    }
    OFPET_TABLE_FEATURES_FAILED = 13 {
        OFPTFFC_BAD_TABLE = 0: "there is no such table",
        OFPTFFC_BAD_METADATA = 1: "the metadata mask is invalid",
        OFPTFFC_BAD_TYPE = 2: "the property is unknown",
        OFPTFFC_BAD_LEN = 3: "the length of a property is wrong",
        OFPTFFC_BAD_ARGUMENT = 4: "the value of a property is not supported",
        OFPTFFC_EPERM = 5: "permissions forbid the change",
    }
}

// ONF extension 230 numbers the codes of bundles from 2300, its experimenter type; OpenFlow 1.4 numbers them from 0.
errors! {
    BUNDLE_ROWS:
    OFPET_EXPERIMENTER = 0xffff {
        OFPBFC_UNKNOWN = 2300: "unspecified",
        OFPBFC_EPERM = 2301: "permissions forbid the request",
        OFPBFC_BAD_ID = 2302: "there is no such bundle",
        OFPBFC_BUNDLE_EXIST = 2303: "there is a bundle of this number already",
        OFPBFC_BUNDLE_CLOSED = 2304: "the bundle is closed",
        OFPBFC_OUT_OF_BUNDLES = 2305: "there is no room for another bundle",
        OFPBFC_BAD_TYPE = 2306: "the bundle command is unknown, or not for a switch",
        OFPBFC_BAD_FLAGS = 2307: "the flags are unknown, or not those of the bundle",
        OFPBFC_MSG_BAD_LEN = 2308: "the length of the bundled message does not fit",
        OFPBFC_MSG_BAD_XID = 2309: "the bundled message has another xid",
        OFPBFC_MSG_UNSUP = 2310: "this message cannot be in a bundle",
        OFPBFC_MSG_CONFLICT = 2311: "these messages cannot be in one bundle",
        OFPBFC_MSG_TOO_MANY = 2312: "there is no room for so many messages",
        OFPBFC_MSG_FAILED = 2313: "a message of the bundle failed",
        OFPBFC_TIMEOUT = 2314: "the bundle takes too long",
        OFPBFC_BUNDLE_IN_PROGRESS = 2315: "a bundle locks the resource",
    }
}

impl ErrorCode {
    /// `OFPET_EXPERIMENTER`: the code is a type that an experimenter defines. The error data begin with the
    /// number of the experimenter.
    pub const EXPERIMENTER_TYPE: u16 = 0xffff;

    /// Every code of the specification, without those of extensions.
    pub fn all() -> impl Iterator<Item = ErrorCode> {
        Self::ROWS.iter().map(|row| row.code)
    }

    fn row(self) -> Option<&'static Row> {
        let mut rows = Self::ROWS.iter().chain(Self::BUNDLE_ROWS);
        rows.find(|row| row.code == self)
    }

    /// Returns the name of the code, such as `OFPBRC_BAD_LEN`; `None` if the specification does not define it.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|row| row.name)
    }

    /// Returns the name of the type, such as `OFPET_BAD_REQUEST`; `None` if the specification does not define the code.
    pub fn type_name(self) -> Option<&'static str> {
        self.row().map(|row| row.type_name)
    }

    /// Returns a short description of the code; `None` if the specification does not define it.
    pub fn meaning(self) -> Option<&'static str> {
        self.row().map(|row| row.meaning)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some(row) => f.pad(row.name),
            None => write!(f, "type={} code={}", self.type_, self.code),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_listed_once_and_codes_of_a_type_have_no_gaps() {
        let mut expected = ErrorCode { type_: 0, code: 0 };
        for code in ErrorCode::all() {
            if code.type_ != expected.type_ {
                expected = ErrorCode {
                    type_: expected.type_ + 1,
                    code: 0,
                };
            }
            assert_eq!((code.type_, code.code), (expected.type_, expected.code));
            expected.code += 1;
        }
        assert_eq!(expected.type_, 13);
    }

    #[test]
    fn an_unknown_code_prints_its_numbers() {
        assert_eq!(ErrorCode { type_: 77, code: 3 }.to_string(), "type=77 code=3");
        assert_eq!(ErrorCode::OFPBRC_BAD_LEN.to_string(), "OFPBRC_BAD_LEN");
    }
}
