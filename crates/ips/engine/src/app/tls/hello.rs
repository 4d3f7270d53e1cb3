//! Client and server hello (RFC 8446, section 4.1; RFC 6066 for server names; RFC 7301 for ALPN).

/// Largest number of entries of a list that are kept.
const ENTRIES: usize = 1024;

const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// The fields of a client or server hello that are inspected or fingerprinted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Hello {
    /// Version in the message itself.
    pub(super) legacy_version: u16,
    /// The random value.
    pub(super) random: Vec<u8>,
    /// The session identifier, up to 255 bytes.
    pub(super) session_id: Vec<u8>,
    /// Cipher suites; the server chooses one.
    pub(super) ciphers: Vec<u16>,
    /// Types of the extensions, in order.
    pub(super) extensions: Vec<u16>,
    /// Supported groups.
    pub(super) groups: Vec<u16>,
    /// Point formats of elliptic curves.
    pub(super) point_formats: Vec<u8>,
    /// Signature algorithms.
    pub(super) signatures: Vec<u16>,
    /// Versions of the extension supported_versions.
    pub(super) versions: Vec<u16>,
    /// Protocols of ALPN.
    pub(super) alpns: Vec<Vec<u8>>,
    /// Server names of type host_name.
    pub(super) names: Vec<Vec<u8>>,
    /// True if a name in the extension is of another type.
    pub(super) has_invalid_name: bool,
    /// True if the size of a name in the extension is wrong.
    pub(super) has_invalid_name_size: bool,
    /// Number of server name extensions.
    pub(super) name_extensions: usize,
}

/// Returns true for the values that RFC 8701 reserves (GREASE).
pub(super) fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

/// Reads fields of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the next `size` bytes, or `None` if fewer are left.
    pub(super) fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(size)?;
        self.0 = tail;
        Some(head)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn u24(&mut self) -> Option<usize> {
        Some(usize::from(self.u8()?) << 16 | usize::from(self.u16()?))
    }

    /// Returns the list that follows its size of one byte.
    fn list8(&mut self) -> Option<Fields<'a>> {
        let size = usize::from(self.u8()?);
        self.take(size).map(Fields)
    }

    /// Returns the list that follows its size of two bytes.
    fn list16(&mut self) -> Option<Fields<'a>> {
        let size = usize::from(self.u16()?);
        self.take(size).map(Fields)
    }

    fn numbers(mut self) -> Vec<u16> {
        core::iter::from_fn(|| self.u16()).take(ENTRIES).collect()
    }
}

impl Hello {
    /// Parses a client hello. Returns `None` if a field before the extensions is not valid.
    pub(super) fn client(body: &[u8]) -> Option<Hello> {
        let mut fields = Fields(body);
        let mut hello = Hello {
            legacy_version: fields.u16()?,
            ..Hello::default()
        };
        hello.random = fields.take(32)?.to_vec();
        hello.session_id = fields.list8()?.0.to_vec();
        hello.ciphers = fields.list16()?.numbers();
        fields.list8()?;
        hello.read_extensions(fields, true);
        Some(hello)
    }

    /// Parses a server hello. Returns `None` if a field before the extensions is not valid.
    pub(super) fn server(body: &[u8]) -> Option<Hello> {
        let mut fields = Fields(body);
        let mut hello = Hello {
            legacy_version: fields.u16()?,
            ..Hello::default()
        };
        hello.random = fields.take(32)?.to_vec();
        hello.session_id = fields.list8()?.0.to_vec();
        hello.ciphers.push(fields.u16()?);
        fields.u8()?;
        hello.read_extensions(fields, false);
        Some(hello)
    }

    /// Returns the version that the server chose.
    pub(super) fn chosen_version(&self) -> u16 {
        self.versions.first().copied().unwrap_or(self.legacy_version)
    }

    fn read_extensions(&mut self, mut fields: Fields<'_>, is_client: bool) {
        let Some(mut list) = fields.list16() else { return };
        while let Some(kind) = list.u16() {
            let Some(body) = list.list16() else { return };
            if self.extensions.len() < ENTRIES {
                self.extensions.push(kind);
            }
            self.read_extension(kind, body, is_client);
        }
    }

    fn read_extension(&mut self, kind: u16, mut body: Fields<'_>, is_client: bool) {
        match kind {
            SERVER_NAME if is_client => {
                self.name_extensions += 1;
                let names = body.list16();
                self.has_invalid_name_size |= names.is_none();
                let mut names = names.unwrap_or(Fields(&[]));
                while let Some(kind) = names.u8() {
                    match (kind, names.list16()) {
                        (0, Some(name)) if self.names.len() < ENTRIES => self.names.push(name.0.to_vec()),
                        (_, Some(_)) => self.has_invalid_name = true,
                        (_, None) => {
                            self.has_invalid_name_size = true;
                            return;
                        }
                    }
                }
            }
            SUPPORTED_GROUPS => self.groups = body.list16().map(Fields::numbers).unwrap_or_default(),
            POINT_FORMATS => {
                self.point_formats = body.list8().map(|list| list.0.to_vec()).unwrap_or_default();
            }
            SIGNATURE_ALGORITHMS => self.signatures = body.list16().map(Fields::numbers).unwrap_or_default(),
            ALPN => {
                let mut names = body.list16().unwrap_or(Fields(&[]));
                while let Some(name) = names.list8().filter(|_| self.alpns.len() < ENTRIES) {
                    self.alpns.push(name.0.to_vec());
                }
            }
            SUPPORTED_VERSIONS if is_client => {
                self.versions = body.list8().map(Fields::numbers).unwrap_or_default();
            }
            SUPPORTED_VERSIONS => self.versions = body.u16().into_iter().collect(),
            _ => {}
        }
    }
}
