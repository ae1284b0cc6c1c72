//! Whom a broker believes to be who they say: holders of certificates of its deployment's authority.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, OwnedCertRevocationList, RevocationCheckDepth,
    RevocationOptionsBuilder, UnknownStatusPolicy,
};

use super::{Identity, Role, is_of_development};

/// Why a certificate is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// None was shown.
    NoCertificate,
    /// It cannot be read, or is made for something else.
    Invalid,
    /// It is not signed by this deployment's authority.
    OtherAuthority,
    /// It is no longer valid, or not yet.
    Expired,
    /// It names no broker or client, or several.
    NoName,
    /// It is for another deployment.
    OtherDeployment,
    /// It is a client's where a broker's is needed, or the other way round.
    OtherRole,
    /// It is the name of this broker itself.
    OwnName,
    /// Its holder runs with `--dev`, and this broker has an authority.
    Development,
    /// Its holder has an authority, and this broker runs with `--dev`.
    NoDevelopment,
    /// Its authority has revoked it.
    Revoked,
    /// No rule allows its holder to link.
    NotAllowed,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 12] = [
        Refusal::NoCertificate,
        Refusal::Invalid,
        Refusal::OtherAuthority,
        Refusal::Expired,
        Refusal::NoName,
        Refusal::OtherDeployment,
        Refusal::OtherRole,
        Refusal::OwnName,
        Refusal::Development,
        Refusal::NoDevelopment,
        Refusal::Revoked,
        Refusal::NotAllowed,
    ];

    /// Its label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::NoCertificate => "no_certificate",
            Refusal::Invalid => "invalid",
            Refusal::OtherAuthority => "other_authority",
            Refusal::Expired => "expired",
            Refusal::NoName => "no_name",
            Refusal::OtherDeployment => "other_deployment",
            Refusal::OtherRole => "other_role",
            Refusal::OwnName => "own_name",
            Refusal::Development => "development",
            Refusal::NoDevelopment => "no_development",
            Refusal::Revoked => "revoked",
            Refusal::NotAllowed => "not_allowed",
        }
    }

    /// What is said of the one who is refused; no text is part of another.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::NoCertificate => "no certificate was shown",
            Refusal::Invalid => "the certificate is malformed or made for another use",
            Refusal::OtherAuthority => "the certificate is not of this deployment's authority",
            Refusal::Expired => "the certificate is no longer valid, or not yet",
            Refusal::NoName => "the certificate names no broker or client",
            Refusal::OtherDeployment => "the certificate is for another deployment",
            Refusal::OtherRole => "the certificate is for another role, broker or client",
            Refusal::OwnName => "the certificate has the name of the broker that it is shown to",
            Refusal::Development => "the certificate was made for --dev, and an authority is required",
            Refusal::NoDevelopment => "the certificate was not made for --dev, and this broker runs with --dev",
            Refusal::Revoked => "the certificate was revoked by its authority",
            Refusal::NotAllowed => "no rule with the action peer names the holder of the certificate",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Certificates that are not believed any more: the lists of some authorities. Of those of other authorities they say nothing. A list whose
/// successor is overdue still counts.
#[derive(Clone, Debug, Default)]
pub struct Revoked(Arc<Vec<CertRevocationList<'static>>>);

impl Revoked {
    /// Reads lists in PEM.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn read(path: &Path) -> Result<Revoked, String> {
        let ders: Result<Vec<CertificateRevocationListDer<'static>>, _> =
            CertificateRevocationListDer::pem_file_iter(path).and_then(Iterator::collect);
        let ders = ders.map_err(crate::tls::describe)?;
        if ders.is_empty() {
            return Err("it holds no list".into());
        }
        let lists = ders.iter().map(|der| OwnedCertRevocationList::from_der(der).map(CertRevocationList::from));
        let lists = lists.collect::<Result<Vec<_>, _>>().map_err(|error| format!("it is no list: {error}"))?;
        Ok(Revoked(Arc::new(lists)))
    }

    /// Whether a certificate that was believed is listed.
    pub fn lists(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else { return false };
        let is_in = |list: &CertRevocationList<'_>| {
            list.issuer() == certificate.issuer()
                && list.find_serial(certificate.serial()).is_ok_and(|found| found.is_some())
        };
        self.0.iter().any(is_in)
    }
}

/// The authorities of one deployment.
#[derive(Debug)]
pub struct Trust {
    anchors: Vec<TrustAnchor<'static>>,
    deployment: String,
    revoked: RwLock<Revoked>,
}

impl Trust {
    /// Trusts these authorities' certificates, for names of `deployment` only.
    ///
    /// # Errors
    /// There is none, or one of them is no certificate.
    pub fn new(authorities: Vec<CertificateDer<'static>>, deployment: String) -> Result<Trust, String> {
        let anchors = authorities.iter().map(|der| webpki::anchor_from_trusted_cert(der).map(|a| a.to_owned()));
        let anchors: Vec<_> = anchors.collect::<Result<_, _>>().map_err(|error| format!("no certificate: {error}"))?;
        if anchors.is_empty() {
            Err("it holds no certificate".into())
        } else {
            Ok(Trust { anchors, deployment, revoked: RwLock::default() })
        }
    }

    /// From now on those are not believed.
    pub fn revoke(&self, revoked: Revoked) {
        *self.revoked.write() = revoked;
    }

    /// Those that are not believed.
    pub fn revoked(&self) -> Revoked {
        self.revoked.read().clone()
    }

    /// Whose certificate this is; `chain` begins with it.
    ///
    /// # Errors
    /// Why it is not believed.
    pub fn judge(&self, role: Role, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<Identity, Refusal> {
        let (first, rest) = chain.split_first().ok_or(Refusal::NoCertificate)?;
        if is_of_development(first) {
            return Err(Refusal::Development);
        }
        let certificate = EndEntityCert::try_from(first).map_err(|_| Refusal::Invalid)?;
        let usage = KeyUsage::client_auth();
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        let revoked = self.revoked();
        let lists: Vec<&CertRevocationList<'_>> = revoked.0.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            let options = options.with_depth(RevocationCheckDepth::EndEntity);
            // An authority without a list has revoked nothing.
            options.with_status_policy(UnknownStatusPolicy::Allow).build()
        });
        certificate
            .verify_for_usage(algorithms, &self.anchors, rest, now, usage, revocation, None)
            .map_err(|error| refusal_of(&error))?;
        let identity = Identity::of(first).ok_or(Refusal::NoName)?;
        if identity.deployment != self.deployment {
            return Err(Refusal::OtherDeployment);
        }
        if identity.role == role { Ok(identity) } else { Err(Refusal::OtherRole) }
    }
}

fn refusal_of(error: &webpki::Error) -> Refusal {
    match error {
        webpki::Error::CertRevoked => Refusal::Revoked,
        webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. } => Refusal::Expired,
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => Refusal::OtherAuthority,
        _ => Refusal::Invalid,
    }
}
