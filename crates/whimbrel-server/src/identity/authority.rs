//! Makes certificates: of a deployment's authority, its brokers and its clients.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::trust::Trust;
use super::{Identity, NAME_MAX, Role, is_name};

/// Time before its making from which a certificate is valid, for peers whose clocks are behind.
const BACKDATED: Duration = Duration::from_secs(3600);

/// The longest validity: 100 years of 365.25 days.
pub const VALID_MAX: Duration = Duration::from_secs(100 * 31_557_600);

/// Hosts of one certificate, at most.
pub const HOSTS_MAX: usize = 64;

/// The authority's certificate within its directory.
const CA_CERTIFICATE: &str = "ca.pem";

/// The authority's key within its directory.
const CA_KEY: &str = "ca.key";

/// Why no certificate was made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// A name that may not stand in a certificate.
    #[error("{0:?} is no name: use letters, digits, '-', '_' and '.', at most {NAME_MAX} characters")]
    Name(String),
    /// Neither a host name nor an address, or too many hosts.
    #[error(
        "{0:?} is no host: give a DNS name such as broker.example.org, or an IP address, at most {HOSTS_MAX} in all"
    )]
    Host(String),
    /// A validity of zero, or beyond [`VALID_MAX`].
    #[error("a certificate cannot be valid for {0:?}: give from 1s to 100 years, such as --valid 365days")]
    Valid(Duration),
    /// The file exists already.
    #[error("{} exists and is not overwritten: whoever uses it would lose it. Remove it, or choose another --out", .0.display())]
    Exists(PathBuf),
    /// The authority cannot be used.
    #[error("cannot use the authority in {}: {cause}. Make one with `whimbrel cert ca --out {} --deployment NAME`", .directory.display(), .directory.display())]
    Authority {
        /// Its directory.
        directory: PathBuf,
        /// Why.
        cause: String,
    },
    /// A file or directory cannot be written.
    #[error("cannot write {}: {cause}. Choose a directory (--out) that exists or can be made, and that you may write to", .path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The system gave no randomness, or its clock is wrong.
    #[error("cannot make a certificate: {0}. Is the system's clock right?")]
    System(String),
}

/// Files that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The certificate, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM, readable by its owner only.
    pub key: PathBuf,
}

/// Contents of a certificate to be made.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The holder's role.
    pub role: Role,
    /// The holder's name.
    pub name: &'a str,
    /// DNS names and IP addresses under which clients reach a broker.
    pub hosts: &'a [String],
    /// Validity from now, at most [`VALID_MAX`].
    pub valid: Duration,
}

/// Makes the authority of a deployment in a directory, which is created if it does not exist.
///
/// # Errors
/// An authority exists there, the name or the validity is refused, or a file cannot be written.
pub fn make_authority(directory: &Path, deployment: &str, valid: Duration) -> Result<Made, MakeError> {
    check_name(deployment)?;
    let mut params = params(&format!("Whimbrel authority of {deployment}"), valid)?;
    params.subject_alt_names = vec![uri(&format!("{}{deployment}/ca", super::SCHEME))?];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(system)?;
    let certificate = params.self_signed(&key).map_err(system)?;
    write_both(directory, CA_CERTIFICATE, CA_KEY, &certificate.pem(), &key.serialize_pem())
}

/// Makes a certificate of the authority in `directory`, and writes it and its key to `out` as
/// `<role>-<name>.pem` and `.key`.
///
/// # Errors
/// The authority cannot be used, `wanted` is refused, or a file exists or cannot be written.
pub fn make(directory: &Path, out: &Path, wanted: &Wanted<'_>) -> Result<Made, MakeError> {
    check_name(wanted.name)?;
    let fault = |cause: String| MakeError::Authority { directory: directory.to_owned(), cause };
    let read = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).map_err(|error| fault(format!("{}: {error}", path.display())))
    };
    let (ca_pem, ca_key) = (read(CA_CERTIFICATE)?, read(CA_KEY)?);
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|error| fault(error.to_string()))?;
    let deployment = super::deployment_of(&ca).ok_or_else(|| fault("it names no deployment".into()))?;
    let signer = KeyPair::from_pem(&ca_key).map_err(|error| fault(error.to_string()))?;
    let issuer = Issuer::from_ca_cert_der(&ca, signer).map_err(|error| fault(error.to_string()))?;

    let identity = Identity { deployment: deployment.clone(), role: wanted.role, name: wanted.name.to_owned() };
    let params = params_of(&identity, wanted)?;
    let key = KeyPair::generate().map_err(system)?;
    let certificate = params.signed_by(&key, &issuer).map_err(system)?;
    let trust = Trust::new(vec![ca], deployment).map_err(fault)?;
    let chain = [certificate.der().clone()];
    if trust.judge(wanted.role, &chain, SystemTime::now()).is_err() {
        return Err(fault(format!("{CA_KEY} is not the key of {CA_CERTIFICATE}")));
    }
    let stem = format!("{}-{}", wanted.role.word(), wanted.name);
    write_both(out, &format!("{stem}.pem"), &format!("{stem}.key"), &certificate.pem(), &key.serialize_pem())
}

fn params_of(identity: &Identity, wanted: &Wanted<'_>) -> Result<CertificateParams, MakeError> {
    let mut params = params(&identity.name, wanted.valid)?;
    params.subject_alt_names = vec![uri(&identity.to_string())?];
    if let Some(beyond) = wanted.hosts.get(HOSTS_MAX) {
        return Err(MakeError::Host(beyond.clone()));
    }
    for host in wanted.hosts {
        params.subject_alt_names.push(name_of_host(host)?);
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match wanted.role {
        Role::Broker => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        Role::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn name_of_host(host: &str) -> Result<SanType, MakeError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    let is_dns = rustls::pki_types::DnsName::try_from(host.strip_prefix("*.").unwrap_or(host)).is_ok();
    match host.try_into() {
        Ok(name) if is_dns => Ok(SanType::DnsName(name)),
        _ => Err(MakeError::Host(host.to_owned())),
    }
}

/// Parameters common to all certificates.
fn params(common_name: &str, valid: Duration) -> Result<CertificateParams, MakeError> {
    if valid.as_secs() == 0 || valid > VALID_MAX {
        return Err(MakeError::Valid(valid));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(system)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + now.saturating_sub(BACKDATED);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + valid;
    Ok(params)
}

fn uri(text: &str) -> Result<SanType, MakeError> {
    text.try_into().map(SanType::URI).map_err(system)
}

fn check_name(name: &str) -> Result<(), MakeError> {
    if is_name(name) { Ok(()) } else { Err(MakeError::Name(name.to_owned())) }
}

fn system(error: impl std::fmt::Display) -> MakeError {
    MakeError::System(error.to_string())
}

/// Writes both files or neither, and overwrites nothing.
fn write_both(directory: &Path, certificate: &str, key: &str, pem: &str, key_pem: &str) -> Result<Made, MakeError> {
    fs::create_dir_all(directory).map_err(|cause| MakeError::Write { path: directory.to_owned(), cause })?;
    let made = Made { certificate: directory.join(certificate), key: directory.join(key) };
    if made.certificate.exists() {
        return Err(MakeError::Exists(made.certificate));
    }
    write_new(&made.key, key_pem, 0o600)?;
    if let Err(error) = write_new(&made.certificate, pem, 0o644) {
        // A key without its certificate is useless, and would block the next try.
        let _ = fs::remove_file(&made.key);
        return Err(error);
    }
    Ok(made)
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), MakeError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|cause| match cause.kind() {
        io::ErrorKind::AlreadyExists => MakeError::Exists(path.to_owned()),
        _ => MakeError::Write { path: path.to_owned(), cause },
    })
}
