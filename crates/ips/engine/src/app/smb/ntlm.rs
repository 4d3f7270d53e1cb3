//! The user and the domain of NTLM (MS-NLMP, section 2.2.1.3) in the session setup of SMB.

use millrace_ips_rules::buffers::Buffer;

use super::fields::{narrow, slice, u16_at, u32_at};
use crate::app::AppProtocol;
use crate::app::record::{Record, SmbRecord};
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;

/// The first bytes of each message of NTLM.
const SIGNATURE: &[u8] = b"NTLMSSP\0";
/// The type of the message with which the client authenticates.
const AUTHENTICATE: usize = 3;
/// The flag NTLMSSP_NEGOTIATE_UNICODE.
const UNICODE: usize = 1;
/// Largest size of a name in bytes.
const NAME_SIZE: usize = 512;

/// Returns domain and user of the message of NTLM in a security buffer, with or without SPNEGO around it.
fn names(blob: &[u8]) -> Option<[Vec<u8>; 2]> {
    const DOMAIN: usize = 28;
    const USER: usize = 36;
    const FLAGS: usize = 60;
    let at = memchr::memmem::find(blob, SIGNATURE)?;
    let message = &blob[at..];
    if u32_at(message, SIGNATURE.len())? != AUTHENTICATE {
        return None;
    }
    let is_unicode = u32_at(message, FLAGS)? & UNICODE != 0;
    let name = |field: usize| {
        let text = slice(message, u32_at(message, field + 4)?, u16_at(message, field)?)?;
        let text = &text[..text.len().min(NAME_SIZE)];
        Some(match is_unicode {
            true => narrow(text),
            false => text.to_vec(),
        })
    };
    Some([name(DOMAIN)?, name(USER)?])
}

/// Adds the transaction of a session setup whose security buffer has the names of NTLM.
pub(super) fn session_setup(
    blob: &[u8],
    command: &[u8],
    direction: Direction,
    out: &mut Transactions,
) -> Option<()> {
    let [domain, user] = names(blob)?;
    let transaction = out.start(AppProtocol::Smb);
    transaction.publish(Buffer::SmbNtlmsspDomain, direction, domain.as_slice());
    transaction.publish(Buffer::SmbNtlmsspUser, direction, user.as_slice());
    transaction.record = Record::Smb(Box::new(SmbRecord {
        command: command.to_vec(),
        ntlmssp: Some((domain, user)),
        ..SmbRecord::default()
    }));
    transaction.advance(direction, Progress::Complete);
    transaction.advance(direction.reverse(), Progress::Complete);
    Some(())
}
