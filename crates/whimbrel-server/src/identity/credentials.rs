//! The certificates that a broker shows to other brokers and to clients, and those that it accepts.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};

use super::trust::{Revoked, Trust};
use super::verify::{Rule, Verifier};
use super::{DEVELOPMENT, Identity, Role};
use crate::tls::{self, FileError, Shown};

/// The protocol between brokers, named in the handshake (ALPN).
const PROTOCOL: &[u8] = b"whimbrel/1";

/// The certificate that a broker shows to other brokers, and those that it accepts.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// For links that other brokers dial.
    pub server: Arc<ServerConfig>,
    /// For links that this broker dials.
    pub client: Arc<ClientConfig>,
    /// The certificates that it believes; `None` with `--dev`.
    pub trust: Option<Arc<Trust>>,
}

/// Credentials of a broker with an authority.
#[derive(Clone, Debug)]
pub struct Known {
    /// Towards other brokers.
    pub overlay: Credentials,
    /// Towards clients, which must show certificates of the same authority.
    pub clients: Arc<ServerConfig>,
    /// Towards HTTP clients, which may show certificates of the same authority.
    pub http: Arc<ServerConfig>,
    /// The broker's identity.
    pub identity: Identity,
    /// The certificate shown to all of them.
    pub shown: Arc<Shown>,
    /// The certificates that the broker believes.
    pub trust: Arc<Trust>,
}

/// Reads a broker's certificate, its key, the authorities, and their revocation lists, all in PEM.
/// If `clients_must`, clients without a certificate are turned away.
///
/// # Errors
/// The file that cannot be used, and why; also if the certificate is not a broker's, or not of
/// these authorities.
pub fn from_files(
    (cert, key): (&Path, &Path),
    authorities: &Path,
    revoked: Option<&Path>,
    clients_must: bool,
) -> Result<Known, FileError> {
    let certified = tls::read_pair(cert, key)?;
    let fault = |of, path: &Path, why: String, help| {
        let what = match of {
            tls::File::Authorities => "file of authorities",
            tls::File::Revoked => "list of revoked certificates",
            tls::File::Certificate | tls::File::Key => "certificate file",
        };
        FileError { of, message: format!("cannot use the {what} {}: {why}", path.display()), help }
    };
    let help = "make one with `whimbrel cert broker`";
    let identity = Identity::of(&certified.cert[0])
        .ok_or_else(|| fault(tls::File::Certificate, cert, "it names no broker".into(), help))?;
    let of_authorities = |why| fault(tls::File::Authorities, authorities, why, "name a PEM file such as ca.pem");
    let ders: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(authorities).and_then(Iterator::collect);
    let ders = ders.map_err(|error| of_authorities(tls::describe(error)))?;
    let trust = Trust::new(ders.clone(), identity.deployment.clone()).map_err(of_authorities)?;
    if let Some(path) = revoked {
        let help = "name a CRL in PEM, made by the authority";
        trust.revoke(Revoked::read(path, &ders).map_err(|why| fault(tls::File::Revoked, path, why, help))?);
    }
    if let Err(refusal) = trust.judge(Role::Broker, &certified.cert, std::time::SystemTime::now()) {
        return Err(fault(tls::File::Certificate, cert, refusal.to_string(), help));
    }
    let (shown, trust) = (Shown::new(Arc::new(certified)), Arc::new(trust));
    let but = Some(identity.name.clone());
    let brokers = Rule::Trusted { trust: trust.clone(), role: Role::Broker, but };
    let clients = || Rule::Trusted { trust: trust.clone(), role: Role::Client, but: None };
    let open_to = |must| tls::server_config(shown.clone(), Some(Verifier::new(clients(), must)));
    Ok(Known {
        overlay: credentials(&shown, &Verifier::new(brokers, true), Some(trust.clone())),
        clients: Arc::new(open_to(clients_must)),
        http: tls::for_http(&open_to(false)),
        identity,
        shown,
        trust,
    })
}

/// Makes credentials on the spot, which only brokers that run with `--dev` accept.
///
/// # Errors
/// The system's source of randomness failed.
pub fn of_development() -> io::Result<Credentials> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(DEVELOPMENT.try_into().map_err(io::Error::other)?)];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let pair = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = params.self_signed(&pair).map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(pair.serialize_der()).map_err(io::Error::other)?;
    let certified = CertifiedKey::from_der(vec![certificate.der().clone()], key, &ring::default_provider());
    let shown = Shown::new(Arc::new(certified.map_err(io::Error::other)?));
    Ok(credentials(&shown, &Verifier::new(Rule::Development, true), None))
}

/// Credentials under which each connection is judged anew: there are no tickets, and no data is
/// sent before the handshake has ended.
fn credentials(shown: &Arc<Shown>, verifier: &Arc<Verifier>, trust: Option<Arc<Trust>>) -> Credentials {
    let provider = Arc::new(ring::default_provider());
    let versions = &[&rustls::version::TLS13];
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .expect("ring offers the cipher suites of TLS 1.3")
        .with_client_cert_verifier(verifier.clone())
        .with_cert_resolver(shown.clone());
    server.send_tls13_tickets = 0;
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("ring offers the cipher suites of TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_client_cert_resolver(shown.clone());
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    Credentials { server: Arc::new(server), client: Arc::new(client), trust }
}
