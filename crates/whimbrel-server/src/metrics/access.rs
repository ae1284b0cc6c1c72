//! Metrics of authentication.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;

use super::encoding::{put, put_family};
use crate::access::Access;

pub(super) fn encode(encoder: &mut DescriptorEncoder, access: &Access) -> fmt::Result {
    let counts = access.counts();
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let outcomes = [
        ("remembered", load(&counts.remembered)),
        ("password", load(&counts.by_password)),
        ("token", load(&counts.by_token)),
        ("refused", load(&counts.refused)),
        ("busy", load(&counts.busy)),
    ];
    let help =
        "How it ended when somebody signed in with a password or a token: remembered, password, token, refused, busy";
    put_family(encoder, "whimbrel_sign_ins", help, "outcome", outcomes.into_iter())?;
    let help = "Lines that the audit has left out because there were too many at once";
    put(encoder, "whimbrel_audit_left_out", help, &ConstCounter::new(access.audit().left_out_in_all()))
}
