//! The procedures of NFS 2 and 3 (RFC 1094, RFC 1813): names, shapes, and the names of status.

use millrace_ips_rules::options::number::NumberField;

use super::operations;
use super::xdr::Xdr::{
    self, Array, Data, Eof, Fixed, FixedHandle, Handle, Name, Offset, Offset32, Size32, U32,
};

/// Size of a file handle of version 2 in bytes (RFC 1094, section 2.3.3).
const HANDLE_2: Xdr = FixedHandle(32);

/// Names of procedures of version 3 (RFC 1813, section 3).
const PROCEDURES_3: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];
/// Names of procedures of version 2 (RFC 1094, section 2.2).
const PROCEDURES_2: [&str; 18] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "ROOT",
    "LOOKUP",
    "READLINK",
    "READ",
    "WRITECACHE",
    "WRITE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "MKDIR",
    "RMDIR",
    "READDIR",
    "STATFS",
];

/// The effect of a procedure on files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The reply has the handle of the name in the call.
    Names,
    Reads,
    Writes,
    Commits,
    Other,
}

/// Returns what a procedure of version 2 or 3 does with files.
pub(super) fn effect(version: u64, procedure: u64) -> Effect {
    match (version, procedure) {
        (3, 3 | 8) | (2, 4 | 9) => Effect::Names,
        (2 | 3, 6) => Effect::Reads,
        (3, 7) | (2, 8) => Effect::Writes,
        (3, 21) => Effect::Commits,
        _ => Effect::Other,
    }
}

/// Returns the shape of the arguments of a procedure of version 2 or 3, as far as they are read: file handles of file systems
/// are left out.
pub(super) fn arguments(version: u64, procedure: u64) -> &'static [Xdr] {
    match (version, procedure) {
        (3, 3 | 8..=13) => &[Handle, Name],
        (3, 14) => &[Handle, Name, Handle, Name],
        (3, 15) => &[Handle, Handle, Name],
        (3, 6) => &[Handle, Offset, U32],
        (3, 7) => &[Handle, Offset, U32, U32, Data],
        (3, 1..=17 | 21) => &[Handle],
        (2, 4 | 9 | 10 | 13..=15) => &[HANDLE_2, Name],
        (2, 11) => &[HANDLE_2, Name, HANDLE_2, Name],
        (2, 12) => &[HANDLE_2, HANDLE_2, Name],
        (2, 6) => &[HANDLE_2, Offset32, U32, U32],
        (2, 8) => &[HANDLE_2, U32, Offset32, U32, Data],
        (2, 1 | 2 | 5 | 16) => &[HANDLE_2],
        _ => &[],
    }
}

/// Returns the shape of the results of a procedure of version 2 or 3 that was done, as far as files need them.
pub(super) fn results(version: u64, procedure: u64) -> &'static [Xdr] {
    match (version, procedure) {
        (3, 3) => &[Handle],
        (3, 8) => &[Array(&[Handle])],
        // The attributes of the file (RFC 1813, section 2.6) are optional.
        (3, 6) => &[Array(&[Fixed(84)]), U32, Eof, Data],
        (2, 4 | 9) => &[HANDLE_2],
        // The attributes of the file (RFC 1094, section 2.3.5) have its size.
        (2, 6) => &[Fixed(20), Size32, Fixed(44), Data],
        _ => &[],
    }
}

/// Returns the name of a procedure, or of an operation of version 4.
pub(super) fn name(version: u64, procedure: u64) -> Option<&'static str> {
    let at = usize::try_from(procedure).ok()?;
    match version {
        2 => PROCEDURES_2.get(at).copied(),
        3 => PROCEDURES_3.get(at).copied(),
        _ if procedure == 0 => Some("NULL"),
        _ => operations::name(u32::try_from(procedure).ok()?),
    }
}

/// Returns the number that stands for the name of a procedure in rules.
pub(super) fn named(version: u64, procedure: u64) -> Option<u64> {
    NumberField::NfsProcedure.number_of(name(version, procedure)?)
}

/// Names of the status of a reply (RFC 1813, section 2.6; RFC 1094, section 2.3.1; RFC 8881, section 15.1).
const STATUS: &[(u64, &str)] = &[
    (0, "OK"),
    (1, "ERR_PERM"),
    (2, "ERR_NOENT"),
    (5, "ERR_IO"),
    (6, "ERR_NXIO"),
    (13, "ERR_ACCES"),
    (17, "ERR_EXIST"),
    (18, "ERR_XDEV"),
    (19, "ERR_NODEV"),
    (20, "ERR_NOTDIR"),
    (21, "ERR_ISDIR"),
    (22, "ERR_INVAL"),
    (27, "ERR_FBIG"),
    (28, "ERR_NOSPC"),
    (30, "ERR_ROFS"),
    (31, "ERR_MLINK"),
    (63, "ERR_NAMETOOLONG"),
    (66, "ERR_NOTEMPTY"),
    (69, "ERR_DQUOT"),
    (70, "ERR_STALE"),
    (71, "ERR_REMOTE"),
    (10_001, "ERR_BADHANDLE"),
    (10_002, "ERR_NOT_SYNC"),
    (10_003, "ERR_BAD_COOKIE"),
    (10_004, "ERR_NOTSUPP"),
    (10_005, "ERR_TOOSMALL"),
    (10_006, "ERR_SERVERFAULT"),
    (10_007, "ERR_BADTYPE"),
    // Version 4 calls it ERR_DELAY.
    (10_008, "ERR_JUKEBOX"),
    (10_009, "ERR_SAME"),
    (10_010, "ERR_DENIED"),
    (10_011, "ERR_EXPIRED"),
    (10_012, "ERR_LOCKED"),
    (10_013, "ERR_GRACE"),
    (10_014, "ERR_FHEXPIRED"),
    (10_015, "ERR_SHARE_DENIED"),
    (10_016, "ERR_WRONGSEC"),
    (10_020, "ERR_NOFILEHANDLE"),
    (10_021, "ERR_MINOR_VERS_MISMATCH"),
    (10_022, "ERR_STALE_CLIENTID"),
    (10_023, "ERR_STALE_STATEID"),
    (10_024, "ERR_OLD_STATEID"),
    (10_025, "ERR_BAD_STATEID"),
    (10_036, "ERR_BADXDR"),
    (10_038, "ERR_OPENMODE"),
    (10_044, "ERR_OP_ILLEGAL"),
    (10_052, "ERR_BADSESSION"),
];

/// Returns the name of a status.
pub(super) fn status(status: u64) -> String {
    let known = STATUS.iter().find(|(number, _)| *number == status);
    known.map_or_else(|| format!("ERR_{status}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_procedure_and_operation_has_a_name_in_rules() {
        for (version, numbers) in [(2, 0..=17), (3, 0..=21), (4, 3..=75)] {
            for number in numbers {
                assert!(named(version, number).is_some(), "{version} {number}");
            }
        }
        assert_eq!(named(3, 1), named(4, 9));
        assert_eq!(named(2, 4), named(3, 3));
        assert_eq!(named(4, 1), None);
    }
}
