//! Domains: names of groups of brokers, and labels, which say which groups may carry an event.

use core::fmt;
use std::sync::Arc;

/// Most names in one list of domains.
pub const DOMAINS_MAX: usize = 8;

/// Bytes of a domain's name; at least one.
pub const DOMAIN_BYTES_MAX: usize = 32;

/// Most lists that a label joins: of what is sent together each part has its own.
pub const LABEL_LISTS_MAX: usize = 8;

/// Bytes of the label of one event.
pub const LABEL_BYTES_MAX: usize = list_bytes(DOMAINS_MAX);

/// Bytes of a label that joins [`LABEL_LISTS_MAX`] lists.
pub const JOINED_BYTES_MAX: usize = LABEL_LISTS_MAX * (LABEL_BYTES_MAX + 1) - 1;

/// Between two names of a list.
const NAME_END: char = ',';

/// Between two lists of a label.
const LIST_END: char = ';';

const fn list_bytes(names: usize) -> usize {
    names * (DOMAIN_BYTES_MAX + 1) - 1
}

/// Whether a domain can have this name: 1 to [`DOMAIN_BYTES_MAX`] letters and digits of ASCII, `.`,
/// `_` and `-`.
pub fn is_domain(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=DOMAIN_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
}

/// A list of domains as one text: names in ascending order, each once, with commas between them.
/// Empty: none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Domains(Arc<str>);

impl Domains {
    /// The list of these names; `None` if one of them is not valid, or there are more than
    /// [`DOMAINS_MAX`].
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Domains> {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        let are_valid = names.len() <= DOMAINS_MAX && names.iter().all(|name| is_domain(name));
        are_valid.then(|| Domains(names.join(",").into()))
    }

    /// The list that is written so; `None` if it is not a list in this form.
    pub fn read(text: &str) -> Option<Domains> {
        (text.is_empty() || is_list(text)).then(|| Domains(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has no name.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split(NAME_END).filter(|name| !name.is_empty())
    }

    /// Whether a broker that is in these domains may carry no more than one that is in the others.
    pub fn is_within(&self, others: &Domains) -> bool {
        self.0 == others.0 || self.names().all(|name| others.names().any(|other| name == other))
    }

    /// The label of events that these domains may carry.
    pub fn label(&self) -> DomainLabel<'_> {
        DomainLabel(&self.0)
    }
}

impl fmt::Debug for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

fn is_list(list: &str) -> bool {
    let names = || list.split(NAME_END);
    names().count() <= DOMAINS_MAX && names().all(is_domain) && names().is_sorted_by(|one, other| one < other)
}

/// Says which brokers may carry something: those that are in a domain of each of its lists. Without
/// a list any broker may.
///
/// The label of an event has one list. That of several events, which are sent together, has the
/// lists of all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DomainLabel<'a>(&'a str);

impl<'a> DomainLabel<'a> {
    /// The label of what any broker may carry.
    pub const ANY: DomainLabel<'static> = DomainLabel("");

    /// The label of what no broker may carry: no domain has its name.
    pub const NOBODY: DomainLabel<'static> = DomainLabel("?");

    /// The label that is written so, with at most `lists` lists; `None` if it is not in the form in
    /// which labels are written.
    pub fn read(text: &'a str, lists: usize) -> Option<Self> {
        let all = || text.split(LIST_END);
        let is_valid = all().count() <= lists && all().all(is_list) && all().is_sorted_by(|one, other| one < other);
        (text.is_empty() || is_valid).then_some(DomainLabel(text))
    }

    /// A label that was checked when it was made: the text of another one. Another text is a bug.
    pub fn checked(text: &'a str) -> Self {
        DomainLabel(text)
    }

    /// The text.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether any broker may carry it.
    #[inline]
    pub fn is_any(self) -> bool {
        self.0.is_empty()
    }

    /// Whether a broker that is in these domains may carry it.
    pub fn admits(self, broker: &Domains) -> bool {
        let has_common = |list: &str| list.split(NAME_END).any(|name| broker.names().any(|other| name == other));
        self.is_any() || self.0.split(LIST_END).all(has_common)
    }

    /// The label of what has parts of both labels; `None` if it would have more than
    /// [`LABEL_LISTS_MAX`] lists.
    pub fn joined(self, other: DomainLabel<'_>) -> Option<Box<str>> {
        let mut lists: Vec<&str> = self.0.split(LIST_END).chain(other.0.split(LIST_END)).collect();
        lists.retain(|list| !list.is_empty());
        lists.sort_unstable();
        lists.dedup();
        (lists.len() <= LABEL_LISTS_MAX).then(|| lists.join(";").into())
    }
}

impl fmt::Debug for DomainLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str) -> DomainLabel<'_> {
        DomainLabel::read(text, LABEL_LISTS_MAX).expect("a label")
    }

    #[test]
    fn a_broker_carries_what_it_has_a_domain_of_each_list_for() {
        let in_domains = |names: &[&str]| Domains::of(names.iter().copied()).expect("valid names");
        for (text, broker, may_carry) in [
            ("", &[][..], true),
            ("", &["eu"], true),
            ("eu", &[], false),
            ("eu", &["eu"], true),
            ("eu", &["eu2"], false),
            ("eu,us", &["ap", "us"], true),
            ("eu;us", &["eu"], false),
            ("eu;us", &["eu", "us"], true),
            ("de,eu;eu,us", &["eu"], true),
        ] {
            assert_eq!(label(text).admits(&in_domains(broker)), may_carry, "{text} {broker:?}");
        }
    }

    #[test]
    fn with_fewer_domains_a_broker_carries_no_more() {
        let read = |text: &str| Domains::read(text).expect("a list");
        for (one, other, is_within) in
            [("", "", true), ("", "eu", true), ("eu", "", false), ("eu", "de,eu", true), ("de,eu", "eu", false)]
        {
            assert_eq!(read(one).is_within(&read(other)), is_within, "{one} {other}");
        }
    }

    #[test]
    fn a_list_and_a_label_have_one_form() {
        assert_eq!(Domains::of(["us", "eu", "us"]).expect("valid").as_str(), "eu,us");
        for text in ["us,eu", "eu,eu", "eu,", ",eu", "e u", "a;b", &"a".repeat(33)] {
            assert_eq!(Domains::read(text), None, "{text}");
        }
        let many: Vec<String> = (0..9).map(|number| format!("d{number}")).collect();
        assert_eq!(Domains::of(many.iter().map(String::as_str)), None);
        for text in ["us;eu", "eu;eu", "eu;", ";", "eu;;us", "us,eu"] {
            assert_eq!(DomainLabel::read(text, LABEL_LISTS_MAX), None, "{text}");
        }
        assert_eq!(DomainLabel::read("eu;us", 1), None);
    }

    #[test]
    fn joined_labels_admit_whom_both_admit() {
        assert_eq!(label("us").joined(label("eu")).as_deref(), Some("eu;us"));
        assert_eq!(label("us").joined(label("us")).as_deref(), Some("us"));
        assert_eq!(label("").joined(label("us")).as_deref(), Some("us"));
        assert_eq!(label("").joined(label("")).as_deref(), Some(""));
        assert_eq!(label("a;b;c;d;e").joined(label("f;g;h;i")), None);
    }
}
