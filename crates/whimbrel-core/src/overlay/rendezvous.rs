//! The broker in charge of a thing, the same at all brokers that know the same brokers: rendezvous
//! hashing (Thaler and Ravishankar, 1998). It is the broker with the greatest mixed hash of its
//! name and the thing's name. So a broker that is added or removed changes this for its own share
//! only.

use whimbrel_event::{FNV_OFFSET, HostId, fnv1a, split_mix};

/// Brokers, with the hashes of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Candidates(Vec<(HostId, u64)>);

impl Candidates {
    pub(super) fn new<'a>(brokers: impl Iterator<Item = (HostId, &'a str)>) -> Candidates {
        let mut all: Vec<_> = brokers.map(|(host, name)| (host, fnv1a(FNV_OFFSET, name.as_bytes()))).collect();
        all.sort_unstable();
        Candidates(all)
    }

    pub(super) fn has(&self, host: HostId) -> bool {
        self.0.binary_search_by_key(&host, |(host, _)| *host).is_ok()
    }

    /// The broker in charge of a thing; `None`: there are no brokers.
    pub(super) fn first(&self, text: &str) -> Option<HostId> {
        let thing = fnv1a(FNV_OFFSET, text.as_bytes()).rotate_left(17);
        self.0.iter().max_by_key(|(host, name)| (split_mix(&mut (name ^ thing)), *host)).map(|(host, _)| *host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brokers(numbers: impl Iterator<Item = u64>) -> Candidates {
        let named: Vec<_> = numbers.map(|number| (HostId::new((number + 1) << 8), format!("b{number}"))).collect();
        Candidates::new(named.iter().map(|(host, name)| (*host, &**name)))
    }

    #[test]
    fn shares_are_even_and_who_goes_changes_its_own_only() {
        let (before, after) = (brokers(0..5), brokers(0..4));
        let gone = HostId::new(5 << 8);
        let mut shares = std::collections::BTreeMap::new();
        for number in 0..5_000 {
            let text = format!("$share/g/t{number}");
            let first = before.first(&text).expect("there are brokers");
            *shares.entry(first).or_insert(0) += 1;
            assert!(first == gone || after.first(&text) == Some(first));
        }
        assert_eq!(shares.len(), 5);
        assert!(shares.values().all(|share| (850..1150).contains(share)), "{shares:?}");
    }

    #[test]
    fn names_decide_and_not_hosts_or_their_order() {
        let [one, other] = [1, 2].map(|number| HostId::new(number << 8));
        let named = [(one, "a"), (other, "b")];
        let swapped = [(other, "a"), (one, "b")];
        let first = |named: &[(HostId, &str)], text: &str| {
            let host = Candidates::new(named.iter().copied()).first(text);
            named.iter().find(|(known, _)| Some(*known) == host).map(|(_, name)| name.to_string())
        };
        for number in 0..20 {
            let text = number.to_string();
            assert_eq!(first(&named, &text), first(&swapped, &text));
        }
        assert_eq!(Candidates::default().first("t"), None);
    }
}
