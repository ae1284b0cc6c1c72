//! Certificates: from files, or made on the spot for development.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoClientAuth, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ServerConfig, SignatureScheme};

/// A file of a broker's credentials, or of those that it believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// The certificate chain.
    Certificate,
    /// Its private key.
    Key,
    /// Certificates of authorities.
    Authorities,
    /// Revocation lists.
    Revoked,
}

/// Why certificate files cannot be used.
#[derive(Debug)]
pub struct FileError {
    /// The file at fault.
    pub of: File,
    /// What happened.
    pub message: String,
    /// What to do.
    pub help: &'static str,
}

/// The certificate that a broker shows. Another one may replace it: connections stay, and
/// handshakes from then on show the new one.
#[derive(Debug)]
pub struct Shown(RwLock<Arc<CertifiedKey>>);

impl Shown {
    /// Shows this certificate.
    pub fn new(certified: Arc<CertifiedKey>) -> Arc<Shown> {
        Arc::new(Shown(RwLock::new(certified)))
    }

    /// The certificate that is shown now.
    pub fn current(&self) -> Arc<CertifiedKey> {
        self.0.read().clone()
    }

    /// Shows this certificate from now on. Returns whether it is another one.
    pub fn replace(&self, certified: Arc<CertifiedKey>) -> bool {
        let before = std::mem::replace(&mut *self.0.write(), certified.clone());
        before.cert != certified.cert
    }

    /// When the first certificate of the chain ends, in seconds since 1970.
    pub fn not_after(&self) -> Option<i64> {
        not_after(&self.current().cert)
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _issuers: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A certificate from files, without an authority.
#[derive(Clone, Debug)]
pub struct Own {
    /// Shows it to clients.
    pub config: Arc<ServerConfig>,
    /// The certificate.
    pub shown: Arc<Shown>,
}

/// A certificate made on the spot.
#[derive(Debug)]
pub struct Made {
    /// Shows it to clients.
    pub config: Arc<ServerConfig>,
    /// The certificate in PEM, for clients that want to trust it.
    pub pem: String,
}

/// Reads a certificate chain and its key, both in PEM, and checks that they belong together.
///
/// # Errors
/// The file that cannot be read or used, and why.
pub fn from_files(cert: &Path, key: &Path) -> Result<Own, FileError> {
    let shown = Shown::new(Arc::new(read_pair(cert, key)?));
    Ok(Own { config: Arc::new(server_config(shown.clone(), None)), shown })
}

/// Reads a certificate chain and its key, and checks that they belong together.
pub(crate) fn read_pair(cert: &Path, key: &Path) -> Result<CertifiedKey, FileError> {
    let fault = |of, path: &Path, why: String, help| {
        let what = if of == File::Key { "private key" } else { "certificate" };
        FileError { of, message: format!("cannot use the {what} file {}: {why}", path.display()), help }
    };
    let help = "name a PEM file that the broker may read";
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .map_err(|error| fault(File::Certificate, cert, describe(error), help))?;
    if chain.is_empty() {
        return Err(fault(File::Certificate, cert, "it holds no certificate".into(), help));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| fault(File::Key, key, describe(error), help))?;
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => fault(
            File::Key,
            key,
            "it does not belong to the certificate".into(),
            "name the key that the certificate was made for",
        ),
        rustls::Error::InvalidCertificate(why) => {
            fault(File::Certificate, cert, format!("invalid certificate: {why:?}"), help)
        }
        error => fault(File::Key, key, error.to_string(), help),
    })
}

/// When the first of these certificates ends, in seconds since 1970; `None` if none can be read.
pub(crate) fn not_after(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let end = |der: &CertificateDer<'_>| {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        Some(certificate.validity().not_after.timestamp())
    };
    chain.iter().filter_map(end).min()
}

/// Makes a self-signed certificate for loopback and `addresses`.
///
/// # Errors
/// The system's source of randomness failed.
pub fn make(addresses: &[IpAddr]) -> io::Result<Made> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(addresses.iter().map(IpAddr::to_string));
    names.sort();
    names.dedup();
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(io::Error::other)?;
    let certified = CertifiedKey::from_der(vec![made.cert.der().clone()], key, &ring::default_provider());
    let config = server_config(Shown::new(Arc::new(certified.map_err(io::Error::other)?)), None);
    Ok(Made { config: Arc::new(config), pem: made.cert.pem() })
}

/// A configuration that shows the certificate to clients; with `clients`, it accepts only clients
/// whose certificate that verifier believes.
pub(crate) fn server_config(shown: Arc<Shown>, clients: Option<Arc<dyn ClientCertVerifier>>) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring offers the cipher suites of TLS 1.2 and 1.3");
    let is_open = clients.is_none();
    let clients = clients.unwrap_or_else(|| Arc::new(NoClientAuth));
    let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(shown);
    if !is_open {
        // A client that must show a certificate shows it each time: a ticket would outlive its end.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        return config;
    }
    // Clients that reconnect show a ticket and save the signature. Without randomness for the
    // ticket's key, each handshake is signed.
    if let Ok(ticketer) = ring::Ticketer::new() {
        config.ticketer = ticketer;
        config.send_tls13_tickets = 1;
    }
    config
}

/// The configuration for HTTP: browsers are told in the handshake (ALPN) that HTTP/1.1 is spoken.
pub(crate) fn for_http(config: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Why a handshake failed, if it failed for the other end's certificate.
pub(crate) fn refused_certificate(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(CertificateError::Other(why)) => Some(why.to_string()),
        rustls::Error::InvalidCertificate(why) => Some(why.to_string()),
        why @ rustls::Error::NoCertificatesPresented => Some(why.to_string()),
        _ => None,
    }
}

pub(crate) fn describe(error: pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it holds none".into(),
        error => format!("not PEM: {error}"),
    }
}
