//! Identities of brokers and clients: a name within a deployment, bound to a key by a certificate
//! of the deployment's authority.

pub mod authority;
pub mod credentials;
pub mod trust;
mod verify;

use std::fmt;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Prefix of identities in certificates.
const SCHEME: &str = "whimbrel://";

/// Identity in the certificate of a broker that runs with `--dev`. It is no name, and no authority
/// signs it.
pub(crate) const DEVELOPMENT: &str = "whimbrel-dev://broker";

/// The longest name of a broker, a client or a deployment, in bytes.
pub const NAME_MAX: usize = 64;

/// Whether a name may stand in a certificate: letters, digits, `-`, `_` and `.`, from 1 to
/// [`NAME_MAX`] bytes.
pub fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(allowed)
}

/// Role of a certificate's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A broker of the overlay.
    Broker,
    /// A client.
    Client,
}

impl Role {
    /// The role's word in certificates and file names.
    pub fn word(self) -> &'static str {
        match self {
            Role::Broker => "broker",
            Role::Client => "client",
        }
    }
}

/// Identity of a certificate's holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The holder's deployment.
    pub deployment: String,
    /// The holder's role.
    pub role: Role,
    /// The holder's name.
    pub name: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.deployment, self.role.word(), self.name)
    }
}

impl Identity {
    /// Reads `whimbrel://<deployment>/<role>/<name>`; `None` if it is anything else.
    pub fn parse(uri: &str) -> Option<Identity> {
        let mut parts = uri.strip_prefix(SCHEME)?.split('/');
        let (deployment, role, name) = (parts.next()?, parts.next()?, parts.next()?);
        let role = [Role::Broker, Role::Client].into_iter().find(|known| known.word() == role)?;
        let is_sound = parts.next().is_none() && is_name(deployment) && is_name(name);
        is_sound.then(|| Identity { deployment: deployment.to_owned(), role, name: name.to_owned() })
    }

    /// The one identity in a certificate; `None` if it has none, or several. Does not judge the
    /// certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Identity> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let mut uris = certificate.valid_uri_names().filter(|uri| uri.starts_with(SCHEME));
        let (only, other) = (uris.next()?, uris.next());
        if other.is_some() { None } else { Identity::parse(only) }
    }
}

/// The deployment of an authority's own certificate.
pub(crate) fn deployment_of(authority: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(authority).ok()?;
    let name = certificate.valid_uri_names().find_map(|uri| uri.strip_prefix(SCHEME)?.strip_suffix("/ca"))?;
    is_name(name).then(|| name.to_owned())
}

/// Whether a certificate is that of a broker that runs with `--dev`.
pub(crate) fn is_of_development(certificate: &CertificateDer<'_>) -> bool {
    let certificate = EndEntityCert::try_from(certificate);
    certificate.is_ok_and(|certificate| certificate.valid_uri_names().any(|uri| uri == DEVELOPMENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let identity = Identity { deployment: "city".into(), role: Role::Broker, name: "depot-north".into() };
        assert_eq!(identity.to_string(), "whimbrel://city/broker/depot-north");
        assert_eq!(Identity::parse(&identity.to_string()), Some(identity));
        for wrong in [
            "whimbrel://city/broker/",
            "whimbrel://city/broker/a/b",
            "whimbrel://city/king/a",
            "whimbrel:///broker/a",
            "https://city/broker/a",
            "whimbrel://city/broker/a b",
        ] {
            assert_eq!(Identity::parse(wrong), None, "{wrong}");
        }
        assert!(!is_name(&"a".repeat(NAME_MAX + 1)) && is_name(&"a".repeat(NAME_MAX)));
    }
}
