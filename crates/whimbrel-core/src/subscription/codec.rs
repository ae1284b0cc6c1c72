//! The encoding of a subscription: as a record on disk, and as a part of a session that goes to
//! another broker, to take the session over or to keep a copy. Both have the same bytes for the
//! options.

use whimbrel_event::{PubendId, Qos, Tick};

use super::{Durability, SubscriptionSpec};
use crate::store::{
    ByteReader, DurableNo, OwnTicks, ReadTicks, ordinary_ticks, put_bytes, put_selector, put_ticks, put_varint,
    selector_of, ticks,
};

/// Most streams of other brokers in which a former selector may count.
const REMOTE_MAX: u64 = 1 << 16;

/// Most former selectors, and streams of one, that another broker tells; the bytes that are there
/// bound them as well.
const LIST_MAX: u64 = 1 << 20;

const DURABILITIES: [Durability; 4] =
    [Durability::Queued, Durability::Nondurable, Durability::SemiDurable, Durability::Durable];

// Flags. Programs ignore those that they do not know, and never set them.
const NO_LOCAL: u8 = 1;
const RETAIN_AS_PUBLISHED: u8 = 1 << 1;
const BY_TOKEN: u8 = 1 << 2;
const NOTICES: u8 = 1 << 3;
/// Unknown to programs before 0.2, as all that follow.
const NAMED: u8 = 1 << 4;
/// [`NAMED`] has a meaning.
const KNOWS_NAMED: u8 = 1 << 5;
/// Of [`CarriedSubscription::reads`]; unused in a record.
const READS: u8 = 1 << 6;
/// The last flag that there is room for.
const REPLIER: u8 = 1 << 7;

/// The quality of service of a byte.
pub(crate) fn qos(byte: u8) -> Option<Qos> {
    [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce].get(usize::from(byte)).copied()
}

/// Whether deliveries of a subscription had the names of their events before 0.2, without an
/// option: those of tracked subscriptions did.
fn was_named(text: &str, spec: &SubscriptionSpec) -> bool {
    let is_tracked = matches!(spec.durability, Durability::SemiDurable | Durability::Durable);
    (is_tracked || spec.by_token || spec.notices) && !text.starts_with("$share/")
}

impl SubscriptionSpec {
    /// Appends the options; `marks`: flags that are not of an option.
    fn put(&self, out: &mut Vec<u8>, marks: u8) {
        // Each field is named, so that a new option is not left out.
        let &SubscriptionSpec {
            qos,
            durability,
            no_local,
            retain_as_published,
            by_token,
            notices,
            named,
            is_replier,
            identifier,
        } = self;
        let durability = DURABILITIES.iter().position(|known| *known == durability).expect("all are listed");
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(no_local, NO_LOCAL)
            | flag(retain_as_published, RETAIN_AS_PUBLISHED)
            | flag(by_token, BY_TOKEN)
            | flag(notices, NOTICES)
            | flag(named, NAMED)
            | flag(is_replier, REPLIER)
            | KNOWS_NAMED;
        out.extend_from_slice(&[durability as u8, qos as u8, flags | marks]);
        put_varint(out, identifier.into());
    }

    /// Reads the options of the subscription with that text, and all flags.
    fn read(bytes: &mut ByteReader<'_>, text: &str) -> Option<(SubscriptionSpec, u8)> {
        let durability = *DURABILITIES.get(usize::from(bytes.u8()?))?;
        let (qos, flags, identifier) = (qos(bytes.u8()?)?, bytes.u8()?, bytes.small()?);
        let has = |flag| flags & flag != 0;
        let mut spec = SubscriptionSpec {
            qos,
            durability,
            no_local: has(NO_LOCAL),
            retain_as_published: has(RETAIN_AS_PUBLISHED),
            by_token: has(BY_TOKEN),
            notices: has(NOTICES),
            named: has(NAMED),
            is_replier: has(REPLIER),
            identifier,
        };
        if !has(KNOWS_NAMED) {
            spec.named = was_named(text, &spec);
        }
        Some((spec, flags))
    }
}

/// A selector that a subscription has had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FormerSelector<'a> {
    pub(crate) selector: Option<&'a str>,
    /// The last ticks for which it counts.
    pub(crate) upto: OwnTicks,
    /// The last ticks in other brokers' streams, where known.
    pub(crate) remote: Vec<(PubendId, Tick)>,
}

/// A subscription as the map of the log holds it. The filter is in the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SubscriptionRecord<'a> {
    /// The subscription's number, if it is durable.
    pub(crate) number: Option<DurableNo>,
    pub(crate) spec: SubscriptionSpec,
    /// The ticks after which its interest is logged.
    pub(crate) start: OwnTicks,
    pub(crate) selector: Option<&'a str>,
    /// Former selectors, oldest first.
    pub(crate) old: Vec<FormerSelector<'a>>,
}

impl<'a> SubscriptionRecord<'a> {
    /// The form that is written. The first one knew of own streams only, the second of no streams
    /// of the deadline class.
    const VERSION: u8 = 3;

    /// Appends the version of the form, and the record.
    pub(crate) fn put_versioned(&self, out: &mut Vec<u8>) {
        out.push(Self::VERSION);
        put_varint(out, self.number.map_or(0, |number| u64::from(number.0) + 1));
        self.spec.put(out, 0);
        put_ticks(out, &self.start);
        put_selector(out, self.selector);
        put_varint(out, self.old.len() as u64);
        for former in &self.old {
            put_selector(out, former.selector);
            put_ticks(out, &former.upto);
            put_streams(out, &former.remote);
        }
    }

    /// Reads the record of the subscription with that text, in any form; `None` if it is not valid.
    pub(crate) fn read_versioned(value: &'a [u8], text: &str) -> Option<Self> {
        let bytes = &mut ByteReader(value);
        let (has_remote, ticks): (bool, ReadTicks) = match bytes.u8()? {
            1 => (false, ordinary_ticks),
            2 => (true, ordinary_ticks),
            Self::VERSION => (true, ticks),
            _ => return None,
        };
        let number = bytes.varint()?.checked_sub(1).map(u32::try_from).transpose().ok()?.map(DurableNo);
        let (spec, _) = SubscriptionSpec::read(bytes, text)?;
        let (start, selector) = (ticks(bytes)?, selector_of(bytes)?);
        let former = |bytes: &mut ByteReader<'a>| {
            let (selector, upto) = (selector_of(bytes)?, ticks(bytes)?);
            let remote = if has_remote { streams(bytes, REMOTE_MAX)? } else { Vec::new() };
            Some(FormerSelector { selector, upto, remote })
        };
        let old = (0..bytes.varint()?).map(|_| former(bytes)).collect::<Option<Vec<_>>>()?;
        bytes.end()?;
        Some(SubscriptionRecord { number, spec, start, selector, old })
    }
}

/// A selector that a subscription has had, and up to which tick it counts in each stream.
pub(crate) type CarriedOld<'a> = (Option<&'a str>, Vec<(PubendId, Tick)>);

/// A subscription as another broker gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CarriedSubscription<'a> {
    pub(crate) text: &'a str,
    pub(crate) spec: SubscriptionSpec,
    /// Not all retained messages are read: the importing broker reads them from the beginning.
    pub(crate) reads: bool,
    pub(crate) selector: Option<&'a str>,
    /// Former interests, oldest first, and up to which tick of each stream they count.
    pub(crate) old: Vec<CarriedOld<'a>>,
}

impl<'a> CarriedSubscription<'a> {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.text.as_bytes());
        self.spec.put(out, if self.reads { READS } else { 0 });
        put_selector(out, self.selector);
        put_varint(out, self.old.len() as u64);
        for (selector, upto) in &self.old {
            put_selector(out, *selector);
            put_streams(out, upto);
        }
    }

    pub(crate) fn read(bytes: &mut ByteReader<'a>) -> Option<Self> {
        let text = bytes.text()?;
        let (spec, flags) = SubscriptionSpec::read(bytes, text)?;
        let selector = selector_of(bytes)?;
        let former = |bytes: &mut ByteReader<'a>| Some((selector_of(bytes)?, streams(bytes, LIST_MAX)?));
        let count = bytes.varint().filter(|count| *count <= LIST_MAX)?;
        let old = (0..count).map(|_| former(bytes)).collect::<Option<Vec<_>>>()?;
        Some(CarriedSubscription { text, spec, reads: flags & READS != 0, selector, old })
    }
}

fn put_streams(out: &mut Vec<u8>, streams: &[(PubendId, Tick)]) {
    put_varint(out, streams.len() as u64);
    for (pubend, tick) in streams {
        put_varint(out, pubend.0);
        put_varint(out, tick.0);
    }
}

fn streams(bytes: &mut ByteReader<'_>, most: u64) -> Option<Vec<(PubendId, Tick)>> {
    let count = bytes.varint().filter(|count| *count <= most)?;
    (0..count).map(|_| Some((PubendId(bytes.varint()?), Tick(bytes.varint()?)))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::OWN;

    prop_compose! {
        fn any_ticks()(ticks in any::<[u64; OWN]>()) -> OwnTicks { ticks.map(Tick) }
    }

    prop_compose! {
        fn any_spec()(durability in 0_usize..4, level in 0_u8..3, flags in any::<[bool; 6]>(), identifier: u32) -> SubscriptionSpec {
            SubscriptionSpec {
                qos: qos(level).expect("it is valid"), durability: DURABILITIES[durability], no_local: flags[0], retain_as_published: flags[1],
                by_token: flags[2], notices: flags[3], named: flags[4], is_replier: flags[5], identifier,
            }
        }
    }

    proptest! {
        #[test]
        fn a_record_comes_back(
            spec in any_spec(), start in any_ticks(), upto in any_ticks(), number in proptest::option::of(any::<u32>()),
            selector in proptest::option::of("[a-z =]{0,30}"), pubend: u64,
        ) {
            let selector = selector.as_deref();
            let old = vec![
                FormerSelector { selector: None, upto, remote: vec![(PubendId(pubend), start[1])] },
                FormerSelector { selector, upto: start, remote: Vec::new() },
            ];
            let record = SubscriptionRecord { number: number.map(DurableNo), spec, start, selector, old };
            let mut bytes = Vec::new();
            record.put_versioned(&mut bytes);
            prop_assert_eq!(SubscriptionRecord::read_versioned(&bytes, "t"), Some(record));
            for end in 0..bytes.len() {
                prop_assert_eq!(SubscriptionRecord::read_versioned(&bytes[..end], "t"), None);
            }
        }

        #[test]
        fn a_carried_subscription_comes_back(
            text in "[a-z/+#]{1,12}", spec in any_spec(), reads: bool, selector in proptest::option::of("[a-z =]{0,9}"),
            upto in proptest::collection::btree_map(any::<u64>(), any::<u64>(), 0..8),
        ) {
            let upto = upto.into_iter().map(|(pubend, tick)| (PubendId(pubend), Tick(tick))).collect();
            let selector = selector.as_deref();
            let carried = CarriedSubscription { text: &text, spec, reads, selector, old: vec![(selector, upto), (None, Vec::new())] };
            let mut bytes = Vec::new();
            carried.put(&mut bytes);
            prop_assert_eq!(CarriedSubscription::read(&mut ByteReader(&bytes)), Some(carried));
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_a_panic(bytes: Vec<u8>) {
            let _ = (SubscriptionRecord::read_versioned(&bytes, "t"), CarriedSubscription::read(&mut ByteReader(&bytes)));
        }
    }

    /// Options that differ from the defaults, but for those that are later than the bytes below.
    fn spec() -> SubscriptionSpec {
        SubscriptionSpec {
            durability: Durability::Durable,
            no_local: true,
            retain_as_published: true,
            notices: true,
            named: true,
            identifier: 300,
            ..SubscriptionSpec::new(Qos::ExactlyOnce)
        }
    }

    /// The bytes are those that whimbrel wrote before there were streams of the deadline class.
    #[test]
    fn records_of_the_second_form_are_read() {
        let known = b"\x02\x08\x03\x02\x3b\xac\x02\x14\0\0\0\x01\x05a = 1\x01\0\0\x28\0\0\0\x01\x01\x02";
        let former = FormerSelector { selector: None, upto: [Tick(20); OWN], remote: vec![(PubendId(1), Tick(2))] };
        let (number, start, selector) = (Some(DurableNo(7)), [Tick(10); OWN], Some("a = 1"));
        let record = SubscriptionRecord { number, spec: spec(), start, selector, old: vec![former] };
        assert_eq!(SubscriptionRecord::read_versioned(known, "t"), Some(record));
    }

    /// The options are written as before they had a struct of their own.
    #[test]
    fn a_record_has_the_bytes_that_installations_have_on_disk() {
        let former = FormerSelector { selector: None, upto: [Tick(20); OWN], remote: vec![(PubendId(1), Tick(2))] };
        let (number, start, selector) = (Some(DurableNo(7)), [Tick(10); OWN], Some("a = 1"));
        let record = SubscriptionRecord { number, spec: spec(), start, selector, old: vec![former] };
        let mut bytes = Vec::new();
        record.put_versioned(&mut bytes);
        let known =
            b"\x03\x08\x03\x02\x3b\xac\x02\x14\0\0\0\0\0\0\0\x01\x05a = 1\x01\0\0\x28\0\0\0\0\0\0\0\x01\x01\x02";
        assert_eq!(bytes, known);
    }

    /// As above, for a hand-over or a copy.
    #[test]
    fn a_carried_subscription_has_the_bytes_that_other_brokers_know() {
        let old = vec![(None, vec![(PubendId(1), Tick(2))])];
        let carried = CarriedSubscription { text: "t", spec: spec(), reads: true, selector: Some("a = 1"), old };
        let mut bytes = Vec::new();
        carried.put(&mut bytes);
        assert_eq!(bytes, b"\x01t\x03\x02\x7b\xac\x02\x01\x05a = 1\x01\0\0\x01\x01\x02");
    }

    /// What a program of 0.1 makes of the flags of a replier: those that it knows.
    #[test]
    fn the_mark_of_a_replier_is_a_flag_that_older_programs_ignore() {
        let (mut plain, mut replier) = (Vec::new(), Vec::new());
        spec().put(&mut plain, READS);
        SubscriptionSpec { is_replier: true, ..spec() }.put(&mut replier, READS);
        let known = NO_LOCAL | RETAIN_AS_PUBLISHED | BY_TOKEN | NOTICES | NAMED | KNOWS_NAMED | READS;
        assert_eq!((replier[2] & known, replier[2] & !known), (plain[2], REPLIER));
        replier[2] &= known;
        assert_eq!(replier, plain, "nothing else differs");
    }

    #[test]
    fn whether_deliveries_are_named_follows_from_other_options_in_what_programs_before_0_2_wrote() {
        for (text, durability, flags, named) in [
            ("t", 3, 0, true),
            ("t", 2, 0, true),
            ("t", 1, 0, false),
            ("t", 1, BY_TOKEN, true),
            ("t", 1, NOTICES, true),
            ("$share/g/t", 3, 0, false),
            ("t", 3, KNOWS_NAMED, false),
            ("t", 1, KNOWS_NAMED | NAMED, true),
        ] {
            let (spec, _) =
                SubscriptionSpec::read(&mut ByteReader(&[durability, 1, flags, 0]), text).expect("it is valid");
            assert_eq!(spec.named, named, "{text} {durability} {flags}");
        }
    }

    #[test]
    fn records_of_the_first_form_are_read() {
        let record = [1, 8, 3, 1, 4, 5, 20, 0, 0, 0, 1, 1, b'a', 1, 0, 0, 40, 0, 0, 0];
        let record = SubscriptionRecord::read_versioned(&record, "t").expect("it is valid");
        let start = [Tick(10); OWN];
        let former = FormerSelector { selector: None, upto: [Tick(20); OWN], remote: Vec::new() };
        assert_eq!((record.number, record.start, record.selector), (Some(DurableNo(7)), start, Some("a")));
        let spec =
            SubscriptionSpec { by_token: true, identifier: 5, named: true, ..SubscriptionSpec::new(Qos::AtLeastOnce) };
        assert_eq!(record.spec, SubscriptionSpec { durability: Durability::Durable, ..spec });
        assert_eq!(record.old, vec![former]);
    }
}
