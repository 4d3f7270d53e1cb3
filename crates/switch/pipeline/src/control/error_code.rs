//! The OpenFlow errors that the pipeline gives reasons for (OpenFlow 1.3.5, section 7.5.4), under their names there. A test of
//! the agent compares them with those of the codec.

/// An OpenFlow error: an error type, and a code within the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode {
    /// `OFPET_*`.
    pub type_: u16,
    /// The code, whose meaning depends on the type.
    pub code: u16,
}

macro_rules! errors {
    ($( $type_name:ident = $type_:literal { $( $name:ident = $code:literal, )* } )*) => {
        impl ErrorCode {
            $( $(
                #[doc = concat!("A code of `", stringify!($type_name), "`.")]
                pub const $name: ErrorCode = ErrorCode { type_: $type_, code: $code };
            )* )*

            /// All errors with their names.
            pub const ALL: &[(&str, ErrorCode)] = &[$( $( (stringify!($name), ErrorCode::$name), )* )*];
        }
    };
}

errors! {
    OFPET_BAD_ACTION = 2 {
        OFPBAC_BAD_TYPE = 0,
        OFPBAC_BAD_OUT_PORT = 4,
        OFPBAC_BAD_ARGUMENT = 5,
        OFPBAC_TOO_MANY = 7,
        OFPBAC_BAD_OUT_GROUP = 9,
        OFPBAC_MATCH_INCONSISTENT = 10,
        OFPBAC_BAD_SET_TYPE = 13,
        OFPBAC_BAD_SET_ARGUMENT = 15,
    }
    OFPET_BAD_INSTRUCTION = 3 {
        OFPBIC_UNSUP_INST = 1,
        OFPBIC_BAD_TABLE_ID = 2,
        OFPBIC_UNSUP_METADATA_MASK = 4,
    }
    OFPET_BAD_MATCH = 4 {
        OFPBMC_BAD_WILDCARDS = 5,
        OFPBMC_BAD_FIELD = 6,
        OFPBMC_BAD_MASK = 8,
    }
    OFPET_FLOW_MOD_FAILED = 5 {
        OFPFMFC_TABLE_FULL = 1,
        OFPFMFC_BAD_TABLE_ID = 2,
        OFPFMFC_OVERLAP = 3,
        OFPFMFC_BAD_FLAGS = 7,
    }
    OFPET_GROUP_MOD_FAILED = 6 {
        OFPGMFC_GROUP_EXISTS = 0,
        OFPGMFC_INVALID_GROUP = 1,
        OFPGMFC_OUT_OF_GROUPS = 3,
        OFPGMFC_OUT_OF_BUCKETS = 4,
        OFPGMFC_WATCH_UNSUPPORTED = 6,
        OFPGMFC_LOOP = 7,
        OFPGMFC_UNKNOWN_GROUP = 8,
        OFPGMFC_CHAINED_GROUP = 9,
        OFPGMFC_BAD_WATCH = 13,
    }
    OFPET_PORT_MOD_FAILED = 7 {
        OFPPMFC_BAD_PORT = 0,
        OFPPMFC_BAD_CONFIG = 2,
    }
    OFPET_METER_MOD_FAILED = 12 {
        OFPMMFC_METER_EXISTS = 1,
        OFPMMFC_INVALID_METER = 2,
        OFPMMFC_UNKNOWN_METER = 3,
        OFPMMFC_BAD_FLAGS = 5,
        OFPMMFC_BAD_RATE = 6,
        OFPMMFC_OUT_OF_METERS = 10,
        OFPMMFC_OUT_OF_BANDS = 11,
    }
    OFPET_TABLE_FEATURES_FAILED = 13 {
        OFPTFFC_BAD_TABLE = 0,
    }
}
