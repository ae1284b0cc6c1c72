//! Judges certificates within a TLS handshake.

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

/// Certificates that are accepted.
pub(super) enum Rule {
    /// Certificates of the authority with this role, except for `but`, this broker's own name.
    Trusted { trust: Arc<Trust>, role: Role, but: Option<String> },
    /// Brokers that run with `--dev`; their certificates prove nothing.
    Development,
}

impl Rule {
    /// The identity in a certificate that is accepted; `None` with `--dev`, where there are no
    /// names.
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

/// A refusal as text: TLS passes on only the `Debug` form.
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

/// Judges the certificate of the other end, be it server or client.
pub(super) struct Verifier {
    rule: Rule,
    /// A client must show a certificate.
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

/// Verification of the other end's handshake signatures: both traits need these methods.
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
    // A broker is known by its name in the deployment, not by the address that was dialled.
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
