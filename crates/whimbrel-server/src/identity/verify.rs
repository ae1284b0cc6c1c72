//! Judging certificates within a TLS handshake.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme};

use super::is_of_development;
use super::trust::{Refusal, Trust};
use super::{Identity, Role};

/// Whom to let in.
pub(super) enum Rule {
    /// Holders of certificates of the authority, in this role, but for the broker of that name:
    /// itself.
    Trusted { trust: Arc<Trust>, role: Role, but: Option<String> },
    /// Brokers that run with `--dev`; they prove nothing.
    Development,
}

impl Rule {
    /// Whose certificate it is; with `--dev` nobody is known.
    fn judge(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<Option<Identity>, Refusal> {
        match self {
            Rule::Trusted { trust, role, but } => {
                let identity = trust.judge(*role, chain, now)?;
                if but.as_ref() == Some(&identity.name) { Err(Refusal::OwnName) } else { Ok(Some(identity)) }
            }
            Rule::Development if chain.first().is_some_and(is_of_development) => Ok(None),
            Rule::Development => Err(Refusal::NoDevelopment),
        }
    }
}

/// A refusal in words: TLS passes on what it looks like to a programmer, and nothing else.
struct Said(Refusal);

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.text())
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.text())
    }
}

impl std::error::Error for Said {}

/// Judges whoever is at the other end, whichever end that is.
pub(super) struct Verifier {
    rule: Rule,
    /// Whoever dials must show a certificate.
    is_required: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(rule: Rule, is_required: bool) -> Arc<Verifier> {
        Arc::new(Verifier { rule, is_required, algorithms: ring::default_provider().signature_verification_algorithms })
    }

    fn check(&self, first: &CertificateDer<'_>, rest: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let chain: Vec<CertificateDer<'_>> = std::iter::once(first).chain(rest).cloned().collect();
        let now = UNIX_EPOCH + Duration::from_secs(now.as_secs());
        let judged = self.rule.judge(&chain, now);
        judged.map(drop).map_err(|refusal| CertificateError::Other(OtherError(Arc::new(Said(refusal)))).into())
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

/// How signatures within the handshake are verified, whoever made them: both traits ask for these
/// methods.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, cert, dss, &self.algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, cert, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates, now).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}

impl ServerCertVerifier for Verifier {
    // A broker is known by its name in the deployment, not by the address that led to it.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates, now).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}
