//! What the broker shows in handshakes, and whose certificates it believes: at the start, and when
//! the files are read again.

use std::sync::Arc;

use super::problem::Problem;
use crate::identity::credentials::Known;
use crate::identity::trust::{Changed, Trust};
use crate::tls::Own;

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// From files, read and checked.
    Files(Own),
    /// Made at the start, for development.
    Made,
    /// There is none, and nothing that needs one.
    None,
    /// From files; an authority identifies this broker, other brokers and clients.
    Known(Box<Known>),
}

impl Certificate {
    /// When certificates from files end, in seconds since 1970: `broker` for its own, `authority`
    /// for those that it believes; of several the first.
    pub fn not_after(&self) -> Vec<(&'static str, i64)> {
        let (own, authority) = match self {
            Certificate::Known(known) => (known.shown.not_after(), known.trust.not_after()),
            Certificate::Files(own) => (own.shown.not_after(), None),
            Certificate::Made | Certificate::None => (None, None),
        };
        let ends = [("broker", own), ("authority", authority)];
        ends.into_iter().filter_map(|(which, end)| Some((which, end?))).collect()
    }

    /// Whose certificates are believed, if there is an authority.
    pub fn trust(&self) -> Option<&Arc<Trust>> {
        if let Certificate::Known(known) = self { Some(&known.trust) } else { None }
    }

    /// Whether there are files that can be read again.
    pub fn is_from_files(&self) -> bool {
        matches!(self, Certificate::Files(_) | Certificate::Known(_))
    }

    /// Whether what was read later can take its place while the broker runs.
    ///
    /// # Errors
    /// It is of another kind, or names another broker; that needs a start.
    pub fn becomes(&self, later: &Certificate) -> Result<(), Problem> {
        let problem = match (self, later) {
            (Certificate::Known(now), Certificate::Known(later)) if now.identity != later.identity => Problem::new(
                format!("the certificate is that of {}, and this broker is {}", later.identity, now.identity),
            )
            .help("name the certificate of this broker (tls_cert), or start the other one with it"),
            (now, later) if std::mem::discriminant(now) != std::mem::discriminant(later) => Problem::new(
                "with or without a certificate, and with or without an authority, are decided when the broker starts",
            )
            .help("start the broker again, or write `tls_cert`, `tls_key` and `tls_ca` as they were"),
            _ => return Ok(()),
        };
        Err(problem)
    }

    /// Shows and believes from now on what was read later, of which it was asked whether it can;
    /// what is different, in words.
    pub fn become_as(&self, later: &Certificate) -> Vec<String> {
        let (is_other, changed) = match (self, later) {
            (Certificate::Known(now), Certificate::Known(later)) => {
                (now.shown.replace(later.shown.current()), now.trust.replace(&later.trust))
            }
            (Certificate::Files(now), Certificate::Files(later)) => {
                (now.shown.replace(later.shown.current()), Changed::default())
            }
            _ => return Vec::new(),
        };
        let parts = [
            (is_other, "another certificate of this broker"),
            (changed.authorities, "other authorities"),
            (changed.lists, "other lists of revoked certificates"),
        ];
        parts.into_iter().filter(|(is, _)| *is).map(|(_, what)| what.to_owned()).collect()
    }
}
