//! Constraints on the Open vSwitch database: keys for a server with TLS.

use super::checks::Checks;
use crate::config::Config;
use crate::error::Path;
use crate::ovsdb::OvsdbTarget;

impl Checks {
    /// Checks that a server with TLS has keys and certificates.
    pub(super) fn ovsdb(&mut self, config: &Config) {
        let ovsdb = &config.ovsdb;
        if matches!(ovsdb.connect, Some(OvsdbTarget::Tls { .. })) && ovsdb.tls.is_none() {
            let message = "ssl: needs keys and certificates: expected [ovsdb.tls] with private_key, certificate and ca_certificate";
            self.conflict(Path::default().key("ovsdb").key("connect"), message.to_owned());
        }
    }
}
