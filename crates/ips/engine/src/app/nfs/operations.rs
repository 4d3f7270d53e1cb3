//! The operations of NFS 4 (RFC 7530, RFC 8881, RFC 7862, RFC 8276): the shapes of their arguments and results.

use super::xdr::Xdr::{self, Array, Data, Eof, Fixed, Handle, List, Name, Offset, Opaque, U32, U64, Union};

/// Operations that files and records need, by number.
pub(super) const CLOSE: u32 = 4;
pub(super) const COMMIT: u32 = 5;
pub(super) const CREATE: u32 = 6;
pub(super) const GETFH: u32 = 10;
pub(super) const LOOKUP: u32 = 15;
pub(super) const LOOKUPP: u32 = 16;
pub(super) const OPEN: u32 = 18;
pub(super) const OPENATTR: u32 = 19;
pub(super) const PUTFH: u32 = 22;
pub(super) const PUTPUBFH: u32 = 23;
pub(super) const PUTROOTFH: u32 = 24;
pub(super) const READ: u32 = 25;
pub(super) const RENAME: u32 = 29;
pub(super) const RESTOREFH: u32 = 31;
pub(super) const SAVEFH: u32 = 32;
pub(super) const SETATTR: u32 = 34;
pub(super) const WRITE: u32 = 38;
pub(super) const READ_PLUS: u32 = 68;

const STATEID: Xdr = Fixed(16);
const SESSION: Xdr = Fixed(16);
const DEVICE: Xdr = Fixed(16);
const BITMAP: Xdr = Array(&[U32]);
/// An access control entry: type, flags, mask, and the user.
const ACE: [Xdr; 4] = [U32, U32, U32, Opaque];
/// How a file is created (RFC 8881, section 18.16.1).
const CREATE_HOW: Xdr = Union(&[
    (0, &[BITMAP, Opaque]),
    (1, &[BITMAP, Opaque]),
    (2, &[U64]),
    (3, &[U64, BITMAP, Opaque]),
]);
/// Attributes of a channel (RFC 8881, section 18.36.1).
const CHANNEL: [Xdr; 7] = [U32, U32, U32, U32, U32, U32, Array(&[U32])];
/// How callbacks are secured (RFC 8881, section 18.33.1).
const CALLBACK_SECURITY: Xdr = Array(&[Union(&[
    (0, &[]),
    (1, &[U32, Opaque, U32, U32, Array(&[U32])]),
    (6, &[U32, Opaque, Opaque]),
])]);
/// Operations that a protected state needs and allows (RFC 8881, section 18.35.1).
const STATE_PROTECTION: Xdr = Union(&[
    (0, &[]),
    (1, &[BITMAP, BITMAP]),
    (2, &[BITMAP, BITMAP, Array(&[Opaque]), Array(&[Opaque]), U32, U32]),
]);
const IMPLEMENTATION: Xdr = Array(&[Opaque, Opaque, U64, U32]);
/// The place of a server (RFC 7862, section 4.10).
const LOCATION: Xdr = Union(&[(1, &[Opaque]), (2, &[Opaque]), (3, &[Opaque, Opaque])]);
const CHANGE: [Xdr; 3] = [U32, U64, U64];
const SECURITY: Xdr = Array(&[Union(&[(0, &[]), (1, &[]), (6, &[Opaque, U32, U32])])]);

/// The shapes of an operation.
struct Operation {
    number: u32,
    name: &'static str,
    arguments: &'static [Xdr],
    /// The results behind the status of an operation that was done.
    results: &'static [Xdr],
}

const fn operation(
    number: u32,
    name: &'static str,
    arguments: &'static [Xdr],
    results: &'static [Xdr],
) -> Operation {
    Operation {
        number,
        name,
        arguments,
        results,
    }
}

/// By number, from 3 on without a gap.
const OPERATIONS: &[Operation] = &[
    operation(3, "ACCESS", &[U32], &[U32, U32]),
    operation(CLOSE, "CLOSE", &[U32, STATEID], &[STATEID]),
    operation(COMMIT, "COMMIT", &[U64, U32], &[Fixed(8)]),
    operation(
        CREATE,
        "CREATE",
        &[
            Union(&[
                (1, &[]),
                (2, &[]),
                (3, &[U32, U32]),
                (4, &[U32, U32]),
                (5, &[Opaque]),
                (6, &[]),
                (7, &[]),
            ]),
            Name,
            BITMAP,
            Opaque,
        ],
        &[U32, U64, U64, BITMAP],
    ),
    operation(7, "DELEGPURGE", &[U64], &[]),
    operation(8, "DELEGRETURN", &[STATEID], &[]),
    operation(9, "GETATTR", &[BITMAP], &[BITMAP, Opaque]),
    operation(GETFH, "GETFH", &[], &[Handle]),
    operation(11, "LINK", &[Name], &CHANGE),
    operation(
        12,
        "LOCK",
        &[
            U32,
            U32,
            U64,
            U64,
            Union(&[(0, &[STATEID, U32]), (1, &[U32, STATEID, U32, U64, Opaque])]),
        ],
        &[STATEID],
    ),
    operation(13, "LOCKT", &[U32, U64, U64, U64, Opaque], &[]),
    operation(14, "LOCKU", &[U32, U32, STATEID, U64, U64], &[STATEID]),
    operation(LOOKUP, "LOOKUP", &[Name], &[]),
    operation(LOOKUPP, "LOOKUPP", &[], &[]),
    operation(17, "NVERIFY", &[BITMAP, Opaque], &[]),
    operation(
        OPEN,
        "OPEN",
        &[
            U32,
            U32,
            U32,
            U64,
            Opaque,
            Union(&[(0, &[]), (1, &[CREATE_HOW])]),
            // The claim.
            Union(&[
                (0, &[Name]),
                (1, &[U32]),
                (2, &[STATEID, Name]),
                (3, &[Name]),
                (4, &[]),
                (5, &[STATEID]),
                (6, &[]),
            ]),
        ],
        &[
            STATEID,
            U32,
            U64,
            U64,
            U32,
            BITMAP,
            // The delegation.
            Union(&[
                (0, &[]),
                (1, &[STATEID, U32, ACE[0], ACE[1], ACE[2], ACE[3]]),
                (
                    2,
                    &[
                        STATEID,
                        U32,
                        Union(&[(1, &[U64]), (2, &[U32, U32])]),
                        ACE[0],
                        ACE[1],
                        ACE[2],
                        ACE[3],
                    ],
                ),
                (
                    3,
                    &[Union(&[
                        (0, &[]),
                        (1, &[U32]),
                        (2, &[U32]),
                        (3, &[]),
                        (4, &[]),
                        (5, &[]),
                        (6, &[]),
                        (7, &[]),
                        (8, &[]),
                    ])],
                ),
            ]),
        ],
    ),
    operation(OPENATTR, "OPENATTR", &[U32], &[]),
    operation(20, "OPEN_CONFIRM", &[STATEID, U32], &[STATEID]),
    operation(21, "OPEN_DOWNGRADE", &[STATEID, U32, U32, U32], &[STATEID]),
    operation(PUTFH, "PUTFH", &[Handle], &[]),
    operation(PUTPUBFH, "PUTPUBFH", &[], &[]),
    operation(PUTROOTFH, "PUTROOTFH", &[], &[]),
    operation(READ, "READ", &[STATEID, Offset, U32], &[Eof, Data]),
    operation(
        26,
        "READDIR",
        &[U64, Fixed(8), U32, U32, BITMAP],
        &[Fixed(8), List(&[U64, Opaque, BITMAP, Opaque]), U32],
    ),
    operation(27, "READLINK", &[], &[Opaque]),
    operation(28, "REMOVE", &[Name], &CHANGE),
    operation(RENAME, "RENAME", &[Name, Name], &[U32, U64, U64, U32, U64, U64]),
    operation(30, "RENEW", &[U64], &[]),
    operation(RESTOREFH, "RESTOREFH", &[], &[]),
    operation(SAVEFH, "SAVEFH", &[], &[]),
    operation(33, "SECINFO", &[Name], &[SECURITY]),
    operation(SETATTR, "SETATTR", &[STATEID, BITMAP, Opaque], &[BITMAP]),
    operation(
        35,
        "SETCLIENTID",
        &[Fixed(8), Opaque, U32, Opaque, Opaque, U32],
        &[U64, Fixed(8)],
    ),
    operation(36, "SETCLIENTID_CONFIRM", &[U64, Fixed(8)], &[]),
    operation(37, "VERIFY", &[BITMAP, Opaque], &[]),
    operation(
        WRITE,
        "WRITE",
        &[STATEID, Offset, U32, Data],
        &[U32, U32, Fixed(8)],
    ),
    operation(39, "RELEASE_LOCKOWNER", &[U64, Opaque], &[]),
    operation(40, "BACKCHANNEL_CTL", &[U32, CALLBACK_SECURITY], &[]),
    operation(
        41,
        "BIND_CONN_TO_SESSION",
        &[SESSION, U32, U32],
        &[SESSION, U32, U32],
    ),
    operation(
        42,
        "EXCHANGE_ID",
        &[Fixed(8), Opaque, U32, STATE_PROTECTION, IMPLEMENTATION],
        &[
            U64,
            U32,
            U32,
            Union(&[(0, &[]), (1, &[BITMAP, BITMAP])]),
            U64,
            Opaque,
            Opaque,
            IMPLEMENTATION,
        ],
    ),
    operation(
        43,
        "CREATE_SESSION",
        &[
            U64,
            U32,
            U32,
            CHANNEL[0],
            CHANNEL[1],
            CHANNEL[2],
            CHANNEL[3],
            CHANNEL[4],
            CHANNEL[5],
            CHANNEL[6],
            CHANNEL[0],
            CHANNEL[1],
            CHANNEL[2],
            CHANNEL[3],
            CHANNEL[4],
            CHANNEL[5],
            CHANNEL[6],
            U32,
            CALLBACK_SECURITY,
        ],
        &[
            SESSION, U32, U32, CHANNEL[0], CHANNEL[1], CHANNEL[2], CHANNEL[3], CHANNEL[4], CHANNEL[5],
            CHANNEL[6], CHANNEL[0], CHANNEL[1], CHANNEL[2], CHANNEL[3], CHANNEL[4], CHANNEL[5], CHANNEL[6],
        ],
    ),
    operation(44, "DESTROY_SESSION", &[SESSION], &[]),
    operation(45, "FREE_STATEID", &[STATEID], &[]),
    operation(
        46,
        "GET_DIR_DELEGATION",
        &[U32, BITMAP, U64, U32, U64, U32, BITMAP, BITMAP],
        &[Union(&[
            (0, &[Fixed(8), STATEID, BITMAP, BITMAP, BITMAP]),
            (1, &[U32]),
        ])],
    ),
    operation(
        47,
        "GETDEVICEINFO",
        &[DEVICE, U32, U32, BITMAP],
        &[U32, Opaque, BITMAP],
    ),
    operation(
        48,
        "GETDEVICELIST",
        &[U32, U32, U64, Fixed(8)],
        &[U64, Fixed(8), Array(&[DEVICE]), U32],
    ),
    operation(
        49,
        "LAYOUTCOMMIT",
        &[
            U64,
            U64,
            U32,
            STATEID,
            Array(&[U64]),
            Array(&[U64, U32]),
            U32,
            Opaque,
        ],
        &[Array(&[U64])],
    ),
    operation(
        50,
        "LAYOUTGET",
        &[U32, U32, U32, U64, U64, U64, STATEID, U32],
        &[U32, STATEID, Array(&[U64, U64, U32, U32, Opaque])],
    ),
    operation(
        51,
        "LAYOUTRETURN",
        &[
            U32,
            U32,
            U32,
            Union(&[(1, &[U64, U64, STATEID, Opaque]), (2, &[]), (3, &[])]),
        ],
        &[Array(&[STATEID])],
    ),
    operation(52, "SECINFO_NO_NAME", &[U32], &[SECURITY]),
    operation(
        53,
        "SEQUENCE",
        &[SESSION, U32, U32, U32, U32],
        &[SESSION, U32, U32, U32, U32, U32],
    ),
    operation(54, "SET_SSV", &[Opaque, Opaque], &[Opaque]),
    operation(55, "TEST_STATEID", &[Array(&[STATEID])], &[Array(&[U32])]),
    operation(
        56,
        "WANT_DELEGATION",
        &[U32, Union(&[(1, &[U32]), (4, &[]), (6, &[])])],
        // The delegation, of which many forms exist, ends what is read.
        &[Union(&[(0, &[])])],
    ),
    operation(57, "DESTROY_CLIENTID", &[U64], &[]),
    operation(58, "RECLAIM_COMPLETE", &[U32], &[]),
    operation(59, "ALLOCATE", &[STATEID, U64, U64], &[]),
    operation(
        60,
        "COPY",
        &[STATEID, STATEID, U64, U64, U64, U32, U32, Array(&[LOCATION])],
        &[Array(&[STATEID]), U64, U32, Fixed(8), U32, U32],
    ),
    operation(
        61,
        "COPY_NOTIFY",
        &[STATEID, LOCATION],
        &[U64, U32, STATEID, Array(&[LOCATION])],
    ),
    operation(62, "DEALLOCATE", &[STATEID, U64, U64], &[]),
    operation(63, "IO_ADVISE", &[STATEID, U64, U64, BITMAP], &[BITMAP]),
    operation(
        64,
        "LAYOUTERROR",
        &[U64, U64, STATEID, Array(&[DEVICE, U32, U32])],
        &[],
    ),
    operation(
        65,
        "LAYOUTSTATS",
        &[U64, U64, STATEID, U64, U64, U64, U64, DEVICE, U32, Opaque],
        &[],
    ),
    operation(66, "OFFLOAD_CANCEL", &[STATEID], &[]),
    operation(67, "OFFLOAD_STATUS", &[STATEID], &[U64, Array(&[U32])]),
    operation(
        READ_PLUS,
        "READ_PLUS",
        &[STATEID, Offset, U32],
        &[Eof, Array(&[Union(&[(0, &[Offset, Data]), (1, &[U64, U64])])])],
    ),
    operation(69, "SEEK", &[STATEID, U64, U32], &[U32, U64]),
    operation(
        70,
        "WRITE_SAME",
        &[STATEID, U32, U64, U64, U64, U64, U32, U64, Opaque],
        &[Array(&[STATEID]), U64, U32, Fixed(8)],
    ),
    operation(71, "CLONE", &[STATEID, STATEID, U64, U64, U64], &[]),
    operation(72, "GETXATTR", &[Opaque], &[Opaque]),
    operation(73, "SETXATTR", &[U32, Opaque, Opaque], &CHANGE),
    operation(74, "LISTXATTRS", &[U64, U32], &[U64, Array(&[Opaque]), U32]),
    operation(75, "REMOVEXATTR", &[Opaque], &CHANGE),
];

fn find(number: u32) -> Option<&'static Operation> {
    let at = number.checked_sub(OPERATIONS[0].number)?;
    OPERATIONS.get(at as usize)
}

/// Returns the name of an operation.
pub(super) fn name(number: u32) -> Option<&'static str> {
    find(number).map(|operation| operation.name)
}

/// Returns the shape of the arguments of an operation.
pub(super) fn arguments(number: u32) -> Option<&'static [Xdr]> {
    find(number).map(|operation| operation.arguments)
}

/// Returns the shape of the results of an operation that was done.
pub(super) fn results(number: u32) -> Option<&'static [Xdr]> {
    find(number).map(|operation| operation.results)
}

/// Returns how much an operation says about what a COMPOUND is for; the record has the operation with the most.
pub(super) fn rank(number: u32) -> u8 {
    match name(number) {
        Some("READ" | "WRITE" | "READ_PLUS") => 5,
        Some("OPEN" | "CREATE" | "REMOVE" | "RENAME" | "LINK" | "SETATTR" | "COPY" | "CLONE") => 4,
        Some("COMMIT" | "CLOSE" | "READDIR" | "READLINK" | "LOCK" | "LOCKT" | "LOCKU") => 3,
        Some("LOOKUP" | "LOOKUPP") => 2,
        Some(
            "PUTFH" | "PUTROOTFH" | "PUTPUBFH" | "SAVEFH" | "RESTOREFH" | "SEQUENCE" | "GETFH" | "GETATTR",
        ) => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_operation_at_its_number() {
        for (operation, number) in OPERATIONS.iter().zip(3..) {
            assert_eq!(operation.number, number, "{}", operation.name);
        }
        assert_eq!((name(75), name(76), name(2)), (Some("REMOVEXATTR"), None, None));
    }
}
