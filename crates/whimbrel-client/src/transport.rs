//! TCP and TLS.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{Error, Tls};

/// A byte stream to a broker.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Connects to `mqtt://HOST:PORT`, `mqtts://HOST:PORT` or `HOST:PORT`.
pub(crate) async fn open(address: &str, tls: Option<&Tls>) -> Result<Box<dyn Stream>, Error> {
    let invalid = || Error::Address(address.to_owned());
    let (secure, rest) = match address.split_once("://") {
        None | Some(("mqtt" | "tcp", _)) => (false, address.rsplit("://").next().unwrap_or(address)),
        Some(("mqtts" | "ssl" | "tls", rest)) => (true, rest),
        Some(_) => return Err(invalid()),
    };
    let rest = rest.trim_end_matches('/');
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let authority = if has_port { rest.to_owned() } else { format!("{rest}:{}", if secure { 8883 } else { 1883 }) };
    let (host, _) = authority.rsplit_once(':').ok_or_else(invalid)?;
    if host.is_empty() {
        return Err(invalid());
    }
    let socket = TcpStream::connect(&authority).await?;
    socket.set_nodelay(true)?;
    if !secure {
        return Ok(Box::new(socket));
    }
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|_| invalid())?;
    let connector = TlsConnector::from(Arc::new(config(tls)?));
    Ok(Box::new(connector.connect(name, socket).await?))
}

fn config(tls: Option<&Tls>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::from(io::Error::other(error)))?;
    let file = match tls {
        Some(Tls::Insecure) => {
            let verifier = Arc::new(Anybody(provider));
            return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
        }
        Some(Tls::Authority(file)) => file,
        None => {
            let cause = "none is given; name its PEM file, or trust anybody in development".to_owned();
            return Err(Error::Authority { file: "(none)".to_owned(), cause });
        }
    };
    let bad = |cause: String| Error::Authority { file: file.clone(), cause };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| bad(error.to_string()))? {
        roots.add(certificate.map_err(|error| bad(error.to_string()))?).map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(bad("it has no certificate".to_owned()));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Trusts every certificate; signatures are still checked, so the connection is encrypted to whoever answers.
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
