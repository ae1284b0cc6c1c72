//! Copies of others' sessions come.

use std::collections::BTreeMap;

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{BrokerMessage, Copies as Page, CopiesTaken, LIST_MAX};

use super::copies::SessionCopy;
use super::copying::{GONE, MOVING, MOVING_AMONG, WHOLE, WHOLE_AMONG};
use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::Sender;
use crate::store::ByteReader;

impl Broker {
    /// Copies of another broker's sessions have come.
    pub(in crate::overlay) fn on_copies(&mut self, now: Time, from: Sender, page: &Page<'_>, out: &mut dyn Output) {
        let (mut lacking, mut news) = (Vec::new(), Vec::new());
        let mut bytes = ByteReader(page.body);
        let principals: BTreeMap<u32, &str> =
            page.principals.iter().copied().filter(|(_, principal)| !principal.is_empty()).collect();
        for place in 0_u32.. {
            if bytes.0.is_empty() {
                break;
            }
            let taken = self.take_copy(now, (from.host, principals.get(&place).copied()), &mut bytes);
            let Some((client, is_taken, is_news)) = taken else {
                self.overlay.net.refuse_message();
                return;
            };
            if !is_taken && lacking.len() < LIST_MAX {
                lacking.push(client);
            }
            if is_news {
                news.push(client);
            }
        }
        if !news.is_empty() {
            self.record_known(from.host);
        }
        news.into_iter().for_each(|client| self.record_claim(now, client));
        let streams = self.streams.stream_set().digest;
        let told = BrokerMessage::CopiesTaken(CopiesTaken { page: page.page, lacking, streams });
        self.send_to(now, from.host, (&told, false), out);
    }

    /// Takes one copy: whose, whether there is one now on which changes can build, and whether its
    /// clerk is to be told.
    fn take_copy<'a>(
        &mut self,
        now: Time,
        (owner, principal): (HostId, Option<&str>),
        bytes: &mut ByteReader<'a>,
    ) -> Option<(&'a str, bool, bool)> {
        let copies = &mut self.overlay.roam.copies;
        let (client, form) = (bytes.text()?, bytes.u8()?);
        if form == GONE {
            let its = copies.get(client).filter(|copy| copy.owner == owner);
            let its = its.map(|copy| copy.void.unwrap_or((owner, copy.epoch)));
            if let Some(has_it) = its {
                copies.remove(client);
                self.overlay.roam.takeover.record_elsewhere(client, has_it);
            }
            return Some((client, true, its.is_some()));
        }
        let of = if matches!(form, WHOLE_AMONG | MOVING_AMONG) { Some(bytes.varint()?) } else { None };
        let stream_set = self.streams.stream_set();
        // Who does not know of the same streams cannot tell what was meant, and says so.
        let is_understood = of.is_none_or(|digest| digest == stream_set.digest);
        let among = of.map(|_| stream_set.streams.clone());
        let (epoch, version, since) = (bytes.varint()?, bytes.varint()?, bytes.varint()?);
        if matches!(form, MOVING | MOVING_AMONG) {
            let moving = bytes.bytes()?;
            if !is_understood {
                return Some((client, false, false));
            }
            if fault!(self, CopyStale) {
                return Some((client, true, false));
            }
            let copies = &mut self.overlay.roam.copies;
            let told = (version, moving, among.as_ref());
            return Some((client, copies.change(now, client, (owner, epoch, since), told), false));
        }
        if !matches!(form, WHOLE | WHOLE_AMONG) {
            return None;
        }
        let (structure, moving) = (bytes.bytes()?, bytes.bytes()?);
        if !is_understood {
            return Some((client, false, false));
        }
        let (before, given, asker, void) = (Vec::new(), None, None, None);
        let (structure, moving, principal) = (structure.into(), moving.into(), principal.map(Box::from));
        let copy = SessionCopy {
            owner,
            before,
            epoch,
            version,
            since,
            structure,
            principal,
            moving,
            among,
            came: now,
            given,
            asker,
            void,
        };
        Some((client, true, self.put_whole(client, copy)?))
    }

    /// Takes a whole copy unless there is a later one; whether its clerk is to be told.
    fn put_whole(&mut self, client: &str, mut copy: SessionCopy) -> Option<bool> {
        let overlay = &mut self.overlay;
        let copies = &mut overlay.roam.copies;
        let known = copies.get(client).map(|copy| (copy.epoch, copy.version, copy.owner));
        if known.is_some_and(|(known, before, _)| (known, before) > (copy.epoch, copy.version)) {
            return Some(false);
        }
        copy.before = copies.owners_before(client, copy.owner);
        let is_news = known.is_none_or(|(known, _, before)| (known, before) != (copy.epoch, copy.owner));
        let is_put = copies.put(client, copy);
        overlay.stats.copies_refused += u64::from(!is_put);
        Some(is_put && is_news)
    }
}
