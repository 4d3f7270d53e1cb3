//! ONC RPC version 2 (RFC 5531) with the security of RFC 2203: headers of calls and replies of NFS.

use super::xdr::opaque;
use crate::app::framed::number;
use crate::app::record::Fields;

/// The number of the program (RFC 1813, section 2.1), and the version of RPC.
const NFS: u64 = 100_003;
const RPC: u64 = 2;
/// The kinds of credentials.
const SYS: u64 = 1;
const GSS: u64 = 6;

/// The protection of arguments and results (RFC 2203, section 5.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    Plain,
    /// They follow behind their size and a sequence number.
    Integrity,
    /// They are encrypted.
    Privacy,
}

/// A call of NFS.
pub(super) struct Call<'a> {
    pub(super) identifier: u32,
    pub(super) version: u64,
    pub(super) procedure: u64,
    /// The kind of the credential, and its body (RFC 5531, section 8.2).
    credential: (u64, &'a [u8]),
    pub(super) protection: Protection,
    pub(super) arguments: &'a [u8],
}

/// Removes the protection of arguments or results; `None` if they cannot be read.
fn unprotected(mut bytes: &[u8], protection: Protection) -> Option<&[u8]> {
    match protection {
        Protection::Plain => Some(bytes),
        Protection::Integrity => {
            number(&mut bytes, 8)?;
            Some(bytes)
        }
        Protection::Privacy => None,
    }
}

/// Reads the protection of a credential.
fn protection((kind, mut body): (u64, &[u8])) -> Option<Protection> {
    if kind != GSS {
        return Some(Protection::Plain);
    }
    // Version, procedure, and sequence number. Only data has protected arguments.
    number(&mut body, 4)?;
    let procedure = number(&mut body, 4)?;
    number(&mut body, 4)?;
    Some(match (procedure, number(&mut body, 4)?) {
        (0, 1) => Protection::Plain,
        (0, 2) => Protection::Integrity,
        _ => Protection::Privacy,
    })
}

/// Reads a call; `None` if the bytes are no call of NFS.
pub(super) fn call(mut bytes: &[u8]) -> Option<Call<'_>> {
    let identifier = number(&mut bytes, 4)? as u32;
    let (kind, rpc, program) = (
        number(&mut bytes, 4)?,
        number(&mut bytes, 4)?,
        number(&mut bytes, 4)?,
    );
    let (version, procedure) = (number(&mut bytes, 4)?, number(&mut bytes, 4)?);
    if kind != 0 || rpc != RPC || program != NFS {
        return None;
    }
    let credential = (number(&mut bytes, 4)?, opaque(&mut bytes)?);
    // The verifier.
    number(&mut bytes, 4)?;
    opaque(&mut bytes)?;
    let protection = protection(credential).unwrap_or(Protection::Privacy);
    Some(Call {
        identifier,
        version,
        procedure,
        credential,
        protection,
        arguments: unprotected(bytes, protection).unwrap_or_default(),
    })
}

impl Call<'_> {
    /// Returns the record of the call as one of RPC: identifier and credential.
    pub(super) fn record(&self) -> Fields {
        let mut out = Fields::default();
        out.number("xid", self.identifier);
        let _is_of_system = credential(self.credential, &mut out);
        out
    }
}

/// Writes the credential of a call: its kind, and of AUTH_SYS machine, user and group (RFC 5531, appendix A).
fn credential((kind, mut body): (u64, &[u8]), out: &mut Fields) -> Option<()> {
    let name = match kind {
        0 => "NULL".to_owned(),
        SYS => "UNIX".to_owned(),
        GSS => "GSS".to_owned(),
        other => other.to_string(),
    };
    out.text("auth_type", name.as_bytes());
    if kind != SYS {
        return None;
    }
    // The stamp.
    number(&mut body, 4)?;
    let machine = opaque(&mut body)?;
    let (user, group) = (number(&mut body, 4)?, number(&mut body, 4)?);
    out.object("creds", |out| {
        out.text("machine_name", machine)
            .number("uid", user)
            .number("gid", group);
    });
    Some(())
}

/// A reply of the server.
pub(super) struct Reply<'a> {
    pub(super) identifier: u32,
    pub(super) is_accepted: bool,
    /// The bytes behind the verifier, if the call was executed.
    body: Option<&'a [u8]>,
}

/// Reads a reply; `None` if the bytes are none.
pub(super) fn reply(mut bytes: &[u8]) -> Option<Reply<'_>> {
    let identifier = number(&mut bytes, 4)? as u32;
    if number(&mut bytes, 4)? != 1 {
        return None;
    }
    let is_accepted = number(&mut bytes, 4)? == 0;
    let body = |mut bytes| {
        number(&mut bytes, 4)?;
        opaque(&mut bytes)?;
        (number(&mut bytes, 4)? == 0).then_some(bytes)
    };
    Some(Reply {
        identifier,
        is_accepted,
        body: is_accepted.then(|| body(bytes)).flatten(),
    })
}

impl<'a> Reply<'a> {
    /// Returns the status of NFS, and the results behind it, if the call was executed.
    pub(super) fn results(&self, protection: Protection) -> Option<(u64, &'a [u8])> {
        let mut bytes = unprotected(self.body?, protection)?;
        let status = number(&mut bytes, 4)?;
        Some((status, bytes))
    }
}
