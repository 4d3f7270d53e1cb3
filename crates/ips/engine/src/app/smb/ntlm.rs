//! The names of NTLM (MS-NLMP, section 2.2.1.3) in the session setup of SMB: domain, user and host.

use millrace_ips_rules::buffers::Buffer;

use super::fields::{narrow, slice, u16_at, u32_at};
use crate::app::AppProtocol;
use crate::app::record::{Fields, Record, SmbRecord};
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;

/// The first bytes of each message of NTLM.
const SIGNATURE: &[u8] = b"NTLMSSP\0";
/// The type of the message with which the client authenticates.
const AUTHENTICATE: usize = 3;
/// The flags NTLMSSP_NEGOTIATE_UNICODE and NTLMSSP_NEGOTIATE_VERSION.
const UNICODE: usize = 1;
const VERSION: usize = 0x0200_0000;
/// Largest size of a name in bytes.
const NAME_SIZE: usize = 512;

/// The names in a message of NTLM.
struct Names {
    domain: Vec<u8>,
    user: Vec<u8>,
    /// The client itself (Workstation).
    host: Vec<u8>,
    /// The version of the client's system and of NTLM, as text.
    version: Option<String>,
}

/// Returns the version in a message (section 2.2.2.10).
fn version(message: &[u8]) -> Option<String> {
    const AT: usize = 64;
    let &[major, minor, low, high, _, _, _, revision] = message.get(AT..)?.first_chunk()?;
    let build = u16::from_le_bytes([low, high]);
    Some(format!("{major}.{minor} build {build} rev {revision}"))
}

/// Returns the names of the message of NTLM in a security buffer, with or without SPNEGO around it.
fn names(blob: &[u8]) -> Option<Names> {
    const DOMAIN: usize = 28;
    const USER: usize = 36;
    const HOST: usize = 44;
    const FLAGS: usize = 60;
    let at = memchr::memmem::find(blob, SIGNATURE)?;
    let message = &blob[at..];
    if u32_at(message, SIGNATURE.len())? != AUTHENTICATE {
        return None;
    }
    let flags = u32_at(message, FLAGS)?;
    let is_unicode = flags & UNICODE != 0;
    let name = |field: usize| {
        let text = slice(message, u32_at(message, field + 4)?, u16_at(message, field)?)?;
        let text = &text[..text.len().min(NAME_SIZE)];
        Some(match is_unicode {
            true => narrow(text),
            false => text.to_vec(),
        })
    };
    Some(Names {
        domain: name(DOMAIN)?,
        user: name(USER)?,
        host: name(HOST).unwrap_or_default(),
        version: version(message).filter(|_| flags & VERSION != 0),
    })
}

/// Adds the transaction of a session setup whose security buffer has the names of NTLM.
pub(super) fn session_setup(
    blob: &[u8],
    command: &[u8],
    direction: Direction,
    out: &mut Transactions,
) -> Option<()> {
    let Names {
        domain,
        user,
        host,
        version,
    } = names(blob)?;
    let transaction = out.start(AppProtocol::Smb);
    transaction.publish(Buffer::SmbNtlmsspDomain, direction, domain.as_slice());
    transaction.publish(Buffer::SmbNtlmsspUser, direction, user.as_slice());
    let mut ntlmssp = Fields::default();
    ntlmssp
        .text("domain", &domain)
        .text("user", &user)
        .text("host", &host);
    if let Some(version) = version {
        ntlmssp.text("version", version.as_bytes());
    }
    transaction.record = Record::Smb(Box::new(SmbRecord {
        command: command.to_vec(),
        ntlmssp,
        ..SmbRecord::default()
    }));
    transaction.advance(direction, Progress::Complete);
    transaction.advance(direction.reverse(), Progress::Complete);
    Some(())
}
