//! The certificate that the broker shows, and those that it believes: at the start, and when the
//! files are read again.

use std::sync::Arc;

use super::problem::Problem;
use crate::identity::credentials::Known;
use crate::identity::trust::{Changed, Trust};
use crate::tls::Own;

/// Source of the certificate.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// From files, read and checked.
    Files(Own),
    /// Made at the start, for development.
    Made,
    /// There is no certificate, and no need of one.
    None,
    /// From files; an authority identifies this broker, other brokers and clients.
    Known(Box<Known>),
}

impl Certificate {
    /// When certificates from files end, in seconds since 1970: `broker` for its own, `authority`
    /// for those that it believes; the first of several.
    pub fn not_after(&self) -> Vec<(&'static str, i64)> {
        let (own, authority) = match self {
            Certificate::Known(known) => (known.shown.not_after(), known.trust.not_after()),
            Certificate::Files(own) => (own.shown.not_after(), None),
            Certificate::Made | Certificate::None => (None, None),
        };
        let ends = [("broker", own), ("authority", authority)];
        ends.into_iter().filter_map(|(which, end)| Some((which, end?))).collect()
    }

    /// The believed certificates, if there is an authority.
    pub fn trust(&self) -> Option<&Arc<Trust>> {
        if let Certificate::Known(known) = self { Some(&known.trust) } else { None }
    }

    /// Whether there are files that can be read again.
    pub fn is_from_files(&self) -> bool {
        matches!(self, Certificate::Files(_) | Certificate::Known(_))
    }

    /// Checks whether a certificate read later can replace this one while the broker runs.
    ///
    /// # Errors
    /// It is of another kind, or names another broker; that needs a restart.
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

    /// Replaces the shown and the believed certificates by those read later, which
    /// [`Certificate::becomes`] has checked. Returns the differences, as text.
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
