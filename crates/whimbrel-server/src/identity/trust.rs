//! Decides which certificates a broker believes: those of its deployment's authority.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, OwnedCertRevocationList, RevocationCheckDepth, RevocationOptions,
    RevocationOptionsBuilder, UnknownStatusPolicy,
};

use super::{Identity, Role, is_of_development};

/// Why a certificate is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No certificate was shown.
    NoCertificate,
    /// The certificate cannot be read, or is for another use.
    Invalid,
    /// The certificate is not signed by this deployment's authority.
    OtherAuthority,
    /// The certificate is no longer valid, or not yet.
    Expired,
    /// The certificate names no broker or client, or several.
    NoName,
    /// The certificate is for another deployment.
    OtherDeployment,
    /// The certificate is a client's where a broker's is needed, or the other way round.
    OtherRole,
    /// The certificate has this broker's own name.
    OwnName,
    /// The holder runs with `--dev`, and this broker has an authority.
    Development,
    /// The holder has an authority, and this broker runs with `--dev`.
    NoDevelopment,
    /// The authority has revoked the certificate.
    Revoked,
    /// No rule allows the holder to link.
    NotAllowed,
}

impl Refusal {
    /// All reasons, in the order of their counters.
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

    /// The reason's label in metrics.
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

    /// The reason as text. No text is part of another.
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

/// Revocation lists of some authorities. They say nothing of certificates of other authorities. A
/// list whose successor is overdue still counts.
#[derive(Clone, Debug, Default)]
pub struct Revoked(Arc<Vec<List>>);

/// A revocation list as written and as parsed.
#[derive(Debug)]
struct List {
    der: CertificateRevocationListDer<'static>,
    list: CertRevocationList<'static>,
}

impl Revoked {
    /// Reads lists in PEM. One of the authorities must have signed each.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn read(path: &Path, authorities: &[CertificateDer<'_>]) -> Result<Revoked, String> {
        let ders: Result<Vec<CertificateRevocationListDer<'static>>, _> =
            CertificateRevocationListDer::pem_file_iter(path).and_then(Iterator::collect);
        let ders = ders.map_err(crate::tls::describe)?;
        if ders.is_empty() {
            return Err("it holds no list".into());
        }
        if let Some(at) = ders.iter().position(|der| !is_signed(der, authorities)) {
            return Err(format!(
                "list {} in it is signed by none of the authorities (tls_ca): it would count for nobody",
                at + 1
            ));
        }
        let read = |der: CertificateRevocationListDer<'static>| {
            Ok(List { list: OwnedCertRevocationList::from_der(&der)?.into(), der })
        };
        let lists = ders.into_iter().map(read);
        let lists =
            lists.collect::<Result<Vec<_>, webpki::Error>>().map_err(|error| format!("it is no list: {error}"))?;
        Ok(Revoked(Arc::new(lists)))
    }

    fn is_same(&self, other: &Revoked) -> bool {
        self.0.iter().map(|list| &list.der).eq(other.0.iter().map(|list| &list.der))
    }
}

/// Whether one of the authorities has signed a list.
fn is_signed(list: &CertificateRevocationListDer<'_>, authorities: &[CertificateDer<'_>]) -> bool {
    let Ok((_, list)) = x509_parser::parse_x509_crl(list) else { return false };
    authorities.iter().any(|authority| {
        let parsed = x509_parser::parse_x509_certificate(authority);
        parsed.is_ok_and(|(_, authority)| list.verify_signature(authority.public_key()).is_ok())
    })
}

/// Authorities and revocation lists, as read from the files.
#[derive(Clone, Debug)]
struct Believed {
    anchors: Arc<[TrustAnchor<'static>]>,
    /// When the first of the authorities' certificates ends.
    not_after: Option<i64>,
    revoked: Revoked,
}

/// Parts of a [`Trust`] that have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changed {
    /// Other authorities are believed.
    pub authorities: bool,
    /// Other certificates are revoked.
    pub lists: bool,
}

/// The believed authorities of one deployment.
#[derive(Debug)]
pub struct Trust {
    deployment: String,
    believed: RwLock<Believed>,
    /// Number of changes of `believed`.
    round: AtomicU64,
}

impl Trust {
    /// Trusts these authorities' certificates, for names of `deployment` only.
    ///
    /// # Errors
    /// There is no certificate, or one cannot be read.
    pub fn new(authorities: Vec<CertificateDer<'static>>, deployment: String) -> Result<Trust, String> {
        let anchors = authorities.iter().map(|der| webpki::anchor_from_trusted_cert(der).map(|a| a.to_owned()));
        let anchors: Vec<_> = anchors.collect::<Result<_, _>>().map_err(|error| format!("no certificate: {error}"))?;
        if anchors.is_empty() {
            return Err("it holds no certificate".into());
        }
        let not_after = crate::tls::not_after(&authorities);
        let believed = Believed { anchors: anchors.into(), not_after, revoked: Revoked::default() };
        Ok(Trust { deployment, believed: RwLock::new(believed), round: AtomicU64::new(0) })
    }

    /// Replaces the revocation lists.
    pub fn revoke(&self, revoked: Revoked) {
        self.believed.write().revoked = revoked;
        self.round.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes over the authorities and lists of another [`Trust`] of the same deployment.
    pub fn replace(&self, other: &Trust) -> Changed {
        debug_assert_eq!(self.deployment, other.deployment, "whoever reads files again compares names");
        let after = other.believed.read().clone();
        let before = std::mem::replace(&mut *self.believed.write(), after.clone());
        self.round.fetch_add(1, Ordering::SeqCst);
        Changed { authorities: before.anchors != after.anchors, lists: !before.revoked.is_same(&after.revoked) }
    }

    /// A number that changes after each change of the believed certificates.
    pub fn round(&self) -> u64 {
        self.round.load(Ordering::SeqCst)
    }

    /// When the first of the authorities' certificates ends, in seconds since 1970.
    pub fn not_after(&self) -> Option<i64> {
        self.believed.read().not_after
    }

    /// The identity of a certificate; `chain` begins with it.
    ///
    /// # Errors
    /// Why the certificate is not believed.
    pub fn judge(&self, role: Role, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<Identity, Refusal> {
        let (first, rest) = chain.split_first().ok_or(Refusal::NoCertificate)?;
        if is_of_development(first) {
            return Err(Refusal::Development);
        }
        let certificate = EndEntityCert::try_from(first).map_err(|_| Refusal::Invalid)?;
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        let Believed { anchors, revoked, .. } = self.believed.read().clone();
        let verify = |revocation: Option<RevocationOptions<'_>>| {
            let usage = KeyUsage::client_auth();
            certificate.verify_for_usage(algorithms, &anchors, rest, now, usage, revocation, None).map(drop)
        };
        verify(None).map_err(|error| refusal_of(&error))?;
        // One by one: an authority may have the name of its predecessor, and each signs its own
        // list.
        for list in revoked.0.iter() {
            let lists = [&list.list];
            let options = RevocationOptionsBuilder::new(&lists).expect("there is one");
            let options = options.with_depth(RevocationCheckDepth::EndEntity);
            // An authority without a list has revoked nothing.
            let options = options.with_status_policy(UnknownStatusPolicy::Allow).build();
            // The certificate is believed, and one of the authorities has signed the list. With any
            // other error it is the list of another authority of the same name, and says nothing of
            // this one.
            if let Err(error @ webpki::Error::CertRevoked) = verify(Some(options)) {
                return Err(refusal_of(&error));
            }
        }
        let identity = Identity::of(first).ok_or(Refusal::NoName)?;
        if identity.deployment != self.deployment {
            return Err(Refusal::OtherDeployment);
        }
        if identity.role == role { Ok(identity) } else { Err(Refusal::OtherRole) }
    }

    /// Why a connection whose certificate was believed may not stay, if so: the certificate was
    /// revoked since, or its authority is not believed any more. A connection may outlast its
    /// certificate's end, which is therefore not judged.
    pub fn dropped(&self, role: Role, chain: &[CertificateDer<'_>], now: SystemTime) -> Option<Refusal> {
        let end = crate::tls::not_after(chain).and_then(|end| u64::try_from(end).ok());
        let now = end.map_or(now, |end| now.min(UNIX_EPOCH + Duration::from_secs(end)));
        self.judge(role, chain, now).err().filter(|why| matches!(why, Refusal::Revoked | Refusal::OtherAuthority))
    }
}

fn refusal_of(error: &webpki::Error) -> Refusal {
    match error {
        webpki::Error::CertRevoked => Refusal::Revoked,
        webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. } => Refusal::Expired,
        webpki::Error::UnknownIssuer
        | webpki::Error::InvalidSignatureForPublicKey
        | webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => Refusal::OtherAuthority,
        _ => Refusal::Invalid,
    }
}
