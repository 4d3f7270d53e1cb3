//! TLS: only switches with a certificate of a trusted authority are admitted, and the caller sees which one.

use std::fs;
use std::path::Path;

use millrace_controller::DumpFilter;
use millrace_controller::driver::{Config, Target, TlsFiles, listen};
use rcgen::{CertificateParams, Issuer, KeyPair};

use crate::millrace::{PATIENCE, TestSwitch};

struct Authority {
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Authority { params, key }
    }

    /// Writes `name.key`, `name.crt`, and returns the certificate in DER.
    fn issue(&self, folder: &Path, name: &str) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params
            .signed_by(&key, &Issuer::from_params(&self.params, &self.key))
            .unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        fs::write(folder.join(format!("{name}.crt")), certificate.pem()).unwrap();
        certificate.der().to_vec()
    }

    fn store(&self, path: &Path) {
        fs::write(path, self.params.self_signed(&self.key).unwrap().pem()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_with_a_trusted_certificate_is_admitted_and_another_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (ours, foreign) = (Authority::new(), Authority::new());
    ours.store(&folder.join("ca.crt"));
    let expected = ours.issue(folder, "switch");
    ours.issue(folder, "controller");
    foreign.issue(folder, "foreign");
    let config = Config {
        tls: Some(TlsFiles {
            private_key: folder.join("controller.key"),
            certificate: folder.join("controller.crt"),
            ca_certificate: folder.join("ca.crt"),
        }),
        ..Config::new(Target::Tls("127.0.0.1:0".parse().unwrap()))
    };
    let mut listener = listen(config).await.unwrap();
    let address = listener.address().unwrap();
    let settings = |name: &str| {
        let dir = folder.display();
        format!(
            "controllers = [\"ssl:{address}\"]\n[bridge.tls]\nprivate_key = \"{dir}/{name}.key\"\n\
             certificate = \"{dir}/{name}.crt\"\nca_certificate = \"{dir}/ca.crt\"\n"
        )
    };
    let mut test = TestSwitch::start(&settings("foreign")).await;
    let refused = tokio::time::timeout(std::time::Duration::from_millis(500), listener.accept()).await;
    assert!(
        refused.is_err(),
        "a switch with a foreign certificate was admitted"
    );
    test.apply(&settings("switch"), 2).await;
    let session = tokio::time::timeout(PATIENCE, listener.accept())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(session.peer.certificate, Some(expected));
    assert_eq!(session.handle.dump(DumpFilter::ALL).await.unwrap().flows, []);
}

#[tokio::test]
async fn a_tls_listener_without_usable_files_says_which_file() {
    let target = Target::Tls("127.0.0.1:0".parse().unwrap());
    let missing = listen(Config::new(target.clone())).await.unwrap_err();
    assert!(missing.to_string().contains("needs private_key"), "{missing}");
    let tls = Some(TlsFiles {
        private_key: "/nonexistent/key.pem".into(),
        certificate: "/nonexistent/cert.pem".into(),
        ca_certificate: "/nonexistent/ca.pem".into(),
    });
    let unreadable = listen(Config {
        tls,
        ..Config::new(target)
    })
    .await
    .unwrap_err();
    assert!(
        unreadable.to_string().contains("/nonexistent/cert.pem"),
        "{unreadable}"
    );
}
