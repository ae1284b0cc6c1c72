//! Records of subscriptions, as the map of the log holds them.

use whimbrel_event::{PubendId, Qos, Tick};

use super::keys::{DurableNo, MapValue, OwnTicks, put_selector, put_ticks, qos, selector_of, ticks};
use super::wire::{ByteReader, put_varint};
use crate::api::Durability;

/// A subscription's options and interests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SubscriptionRecord<'a> {
    /// The subscription's number, if it is durable.
    pub(crate) number: Option<DurableNo>,
    pub(crate) durability: Durability,
    pub(crate) qos: Qos,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    pub(crate) by_token: bool,
    pub(crate) notices: bool,
    /// Whether deliveries have the names of their events; `None`: written before 0.2, which had no
    /// such option, see [`was_named`].
    pub(crate) named: Option<bool>,
    pub(crate) identifier: u32,
    /// The ticks after which its interest is logged.
    pub(crate) start: OwnTicks,
    pub(crate) selector: Option<&'a str>,
    /// Former selectors, oldest first.
    pub(crate) old: Vec<FormerSelector<'a>>,
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

/// Most such streams that are read.
const REMOTE_MAX: u64 = 1 << 16;

impl<'a> SubscriptionRecord<'a> {
    /// Reads a record; version 1 (`has_remote` is false) knew of own streams only.
    fn read_with(bytes: &mut ByteReader<'a>, has_remote: bool) -> Option<Self> {
        let number = bytes.varint()?.checked_sub(1).map(u32::try_from).transpose().ok()?.map(DurableNo);
        let durability = match bytes.u8()? {
            0 => Durability::Queued,
            1 => Durability::Nondurable,
            2 => Durability::SemiDurable,
            3 => Durability::Durable,
            _ => return None,
        };
        let (qos, flags, identifier) = (qos(bytes.u8()?)?, bytes.u8()?, bytes.small()?);
        let (start, selector) = (ticks(bytes)?, selector_of(bytes)?);
        let tick = |bytes: &mut ByteReader<'a>| Some((PubendId(bytes.varint()?), Tick(bytes.varint()?)));
        let former = |bytes: &mut ByteReader<'a>| {
            let (selector, upto) = (selector_of(bytes)?, ticks(bytes)?);
            let count = if has_remote { Some(bytes.varint()?).filter(|count| *count <= REMOTE_MAX)? } else { 0 };
            let remote = (0..count).map(|_| tick(bytes)).collect::<Option<Vec<_>>>()?;
            Some(FormerSelector { selector, upto, remote })
        };
        let old = (0..bytes.varint()?).map(|_| former(bytes)).collect::<Option<Vec<_>>>()?;
        let has = |flag| flags & flag != 0;
        Some(SubscriptionRecord {
            number,
            durability,
            qos,
            no_local: has(NO_LOCAL),
            retain_as_published: has(RETAIN_AS_PUBLISHED),
            by_token: has(BY_TOKEN),
            notices: has(NOTICES),
            named: has(KNOWS_NAMED).then_some(has(NAMED)),
            identifier,
            start,
            selector,
            old,
        })
    }
}

const NO_LOCAL: u8 = 1;
const RETAIN_AS_PUBLISHED: u8 = 1 << 1;
const BY_TOKEN: u8 = 1 << 2;
const NOTICES: u8 = 1 << 3;
// Programs before 0.2 ignore these two, and never set them.
const NAMED: u8 = 1 << 4;
const KNOWS_NAMED: u8 = 1 << 5;

/// Whether deliveries of a subscription had the names of their events before 0.2, without an
/// option: those of tracked subscriptions did.
pub(crate) fn was_named(text: &str, durability: Durability, by_token_or_notices: bool) -> bool {
    let is_tracked = matches!(durability, Durability::SemiDurable | Durability::Durable) || by_token_or_notices;
    is_tracked && !text.starts_with("$share/")
}

impl<'a> MapValue<'a> for SubscriptionRecord<'a> {
    const VERSION: u8 = 2;

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number.map_or(0, |number| u64::from(number.0) + 1));
        let durability = match self.durability {
            Durability::Queued => 0,
            Durability::Nondurable => 1,
            Durability::SemiDurable => 2,
            Durability::Durable => 3,
        };
        out.extend_from_slice(&[durability, self.qos as u8]);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        out.push(
            flag(self.no_local, NO_LOCAL)
                | flag(self.retain_as_published, RETAIN_AS_PUBLISHED)
                | flag(self.by_token, BY_TOKEN)
                | flag(self.notices, NOTICES)
                | flag(self.named.is_some(), KNOWS_NAMED)
                | flag(self.named == Some(true), NAMED),
        );
        put_varint(out, self.identifier.into());
        put_ticks(out, &self.start);
        put_selector(out, self.selector);
        put_varint(out, self.old.len() as u64);
        for former in &self.old {
            put_selector(out, former.selector);
            put_ticks(out, &former.upto);
            put_varint(out, former.remote.len() as u64);
            for (pubend, tick) in &former.remote {
                put_varint(out, pubend.0);
                put_varint(out, tick.0);
            }
        }
    }

    fn read(bytes: &mut ByteReader<'a>) -> Option<Self> {
        SubscriptionRecord::read_with(bytes, true)
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'a>) -> Option<Self> {
        if version == 1 { SubscriptionRecord::read_with(bytes, false) } else { None }
    }
}
