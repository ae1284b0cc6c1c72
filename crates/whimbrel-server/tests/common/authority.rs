//! Authorities of certificates, each in a directory of its own.

use std::path::Path;
use std::time::Duration;

use rcgen::{CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use whimbrel_server::identity::Role;
use whimbrel_server::identity::authority::{self, Made, Wanted};
use whimbrel_server::identity::credentials::{self, Known};

/// How long certificates are valid.
pub const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// An authority in a directory of its own.
pub struct Authority(TempDir);

impl Authority {
    pub fn new(deployment: &str) -> Authority {
        let directory = tempfile::tempdir().expect("a temporary directory");
        authority::make_authority(directory.path(), deployment, YEAR).expect("an authority");
        Authority(directory)
    }

    /// Its brokers believe those of another authority too, from now on.
    pub fn believe(&self, other: &Authority) {
        let read = |authority: &Authority| std::fs::read_to_string(authority.0.path().join("ca.pem")).expect("a file");
        std::fs::write(self.0.path().join("believed.pem"), read(self) + &read(other)).expect("written");
    }

    /// A list of revoked certificates, in PEM.
    pub fn revoke(&self, certificates: &[&CertificateDer<'_>]) -> String {
        let file = |name: &str| self.0.path().join(name);
        let ca = read(&file("ca.pem"));
        let key = KeyPair::from_pem(&std::fs::read_to_string(file("ca.key")).expect("its key")).expect("a key");
        let issuer = Issuer::from_ca_cert_der(&ca, key).expect("an authority");
        let serial = |certificate: &&CertificateDer<'_>| {
            let serial = webpki::EndEntityCert::try_from(*certificate).expect("a certificate").serial().to_vec();
            RevokedCertParams {
                serial_number: SerialNumber::from(serial),
                revocation_time: rcgen::date_time_ymd(2026, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }
        };
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: certificates.iter().map(serial).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&issuer).expect("a list").pem().expect("in PEM")
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A certificate of it, for "localhost".
    pub fn make(&self, role: Role, name: &str) -> Made {
        self.make_in(self.path(), role, name)
    }

    /// The same in a directory.
    pub fn make_in(&self, out: &Path, role: Role, name: &str) -> Made {
        let hosts = ["localhost".to_owned()];
        authority::make(self.path(), out, &Wanted { role, name, hosts: &hosts, valid: YEAR }).expect("a certificate")
    }

    /// A broker that shows one, and believes those of the authority.
    pub fn broker(&self, name: &str) -> Known {
        let made = self.make(Role::Broker, name);
        let believed = ["believed.pem", "ca.pem"].map(|name| self.path().join(name));
        let believed = believed.iter().find(|path| path.exists()).expect("its own");
        let known = credentials::from_files((&made.certificate, &made.key), believed, None, true);
        known.unwrap_or_else(|error| panic!("{}", error.message))
    }
}

/// The first certificate of a file in PEM.
pub fn read(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).expect("a certificate")
}
