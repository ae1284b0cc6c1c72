//! Access rules and quotas of principals, without IO.
//!
//! Each connection has a [`Principal`]. [`Rules`] say what principals may do; an action that no
//! rule allows is denied, and rules only allow. For a connection they are narrowed to [`Grants`]
//! once, so that a publish costs a comparison per grant. [`Meter`] keeps [`Quota`]s.
//!
//! ```
//! use whimbrel_access::{Action, Actions, Principal, Rule, Rules};
//!
//! let rule = Rule {
//!     principals: vec!["bus-*".into()],
//!     actions: Actions::of([Action::Publish]),
//!     topics: vec!["fleet/%u/#".into()],
//!     ..Rule::default()
//! };
//! let rules = Rules::new(&[rule]).expect("the rule is sound");
//! let bus = Principal::new("bus-7").expect("a name");
//! let grants = rules.grants(&bus, "any-client-id");
//! assert!(grants.publish("fleet/bus-7/position", 5, None).is_ok());
//! assert!(grants.publish("fleet/bus-8/position", 5, None).is_err());
//! assert!(grants.subscribe("fleet/bus-7/#").is_err());
//! ```

mod bucket;
mod grants;
mod meter;
mod pattern;
mod principal;
mod quota;
mod rule;
mod rules;
mod topics;

pub use bucket::{BURST, Bucket};
pub use grants::Grants;
pub use meter::{Meter, Slot};
pub use pattern::{PATTERN_MAX, Pattern, PatternError};
pub use principal::{ANONYMOUS, PRINCIPAL_MAX, Principal, PrincipalError};
pub use quota::{Exceeded, Quota, QuotaError};
pub use rule::{Action, Actions, FILTERS_MAX, RULES_MAX, Rule, RuleError, RuleFault};
pub use rules::{Admission, Denied, RuleNo, Rules};
