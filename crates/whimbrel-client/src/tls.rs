//! Trusted certificates, and the client's own, for TLS.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::{Error, Identity, Tls};

/// Reads the files of authorities and of the own certificate, for one connection or, with
/// [`Tls::Prepared`], for many.
///
/// # Errors
/// A file cannot be read or used, or the system has no authorities.
pub fn tls_config(tls: &Tls, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::from(io::Error::other(error)))?;
    let builder = match tls {
        Tls::Prepared(config) => return Ok(config.clone()),
        Tls::System => builder.with_root_certificates(system_roots()?),
        Tls::Authority(file) => builder.with_root_certificates(roots_in(file)?),
        Tls::Insecure => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
    };
    let Some(Identity { certificate, key }) = identity else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let bad = |file: &str, cause: String| Error::Certificate { file: file.to_owned(), cause };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| bad(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(bad(certificate, "it has no certificate".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, error.to_string()))?;
    let config = builder.with_client_auth_cert(chain, private).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => bad(key, format!("it does not belong to the certificate {certificate}")),
        error => bad(certificate, error.to_string()),
    })?;
    Ok(Arc::new(config))
}

/// The authorities that the system trusts. `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.
fn system_roots() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(roots);
    }
    let cause = found.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
    Err(Error::Authority { file: "the authorities of the system".to_owned(), cause })
}

fn roots_in(file: &str) -> Result<RootCertStore, Error> {
    let bad = |cause: String| Error::Authority { file: file.to_owned(), cause };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| bad(error.to_string()))? {
        roots.add(certificate.map_err(|error| bad(error.to_string()))?).map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() { Err(bad("it has no certificate".to_owned())) } else { Ok(roots) }
}

/// Trusts every certificate. Signatures are still checked, so the connection is encrypted to the
/// peer that answers, whichever it is.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
