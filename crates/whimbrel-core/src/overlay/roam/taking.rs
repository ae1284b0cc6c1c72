//! Copies of others' sessions come.

use std::collections::BTreeMap;

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{BrokerMessage, Copies as Page, CopiesTaken, LIST_MAX};

use super::copies::Copy;
use super::copying::{GONE, MOVING, MOVING_AMONG, WHOLE, WHOLE_AMONG};
use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::messages::Sender;
use crate::store::Bytes;

impl Broker {
    /// Copies of another broker's sessions have come.
    pub(super) fn on_copies(&mut self, now: Time, from: Sender, page: &Page<'_>, out: &mut dyn Output) {
        let (mut lacking, mut news) = (Vec::new(), Vec::new());
        let mut bytes = Bytes(page.body);
        let owners: BTreeMap<u32, &str> = page.owners.iter().copied().filter(|(_, owner)| !owner.is_empty()).collect();
        for place in 0_u32.. {
            if bytes.0.is_empty() {
                break;
            }
            let taken = self.take_copy(now, (from.host, owners.get(&place).copied()), &mut bytes);
            let Some((client, is_taken, is_news)) = taken else {
                if let Some(overlay) = self.overlay.as_deref_mut() {
                    overlay.stats.messages_refused += 1;
                }
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
            self.note_known(from.host);
        }
        news.into_iter().for_each(|client| self.note_claim(now, client));
        let streams = self.streams.stream_set().digest;
        let told = BrokerMessage::CopiesTaken(CopiesTaken { page: page.page, lacking, streams });
        self.send_to(now, from.host, (&told, false), out);
    }

    /// Takes one copy: whose, whether there is one now on which changes can build, and whether its clerk is to be told.
    fn take_copy<'a>(
        &mut self,
        now: Time,
        (keeper, owner): (HostId, Option<&str>),
        bytes: &mut Bytes<'a>,
    ) -> Option<(&'a str, bool, bool)> {
        let copies = &mut self.overlay.as_deref_mut()?.roam.copies;
        let (client, form) = (bytes.text()?, bytes.u8()?);
        if form == GONE {
            let its = copies.get(client).filter(|copy| copy.keeper == keeper);
            let its = its.map(|copy| copy.void.unwrap_or((keeper, copy.epoch)));
            if let Some(has_it) = its {
                copies.remove(client);
                self.overlay.as_deref_mut()?.roam.takeover.note_elsewhere(client, has_it);
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
            let copies = &mut self.overlay.as_deref_mut()?.roam.copies;
            let told = (version, moving, among.as_ref());
            return Some((client, copies.change(now, client, (keeper, epoch, since), told), false));
        }
        if !matches!(form, WHOLE | WHOLE_AMONG) {
            return None;
        }
        let (structure, moving) = (bytes.bytes()?, bytes.bytes()?);
        if !is_understood {
            return Some((client, false, false));
        }
        let (before, given, asker, void) = (Vec::new(), None, None, None);
        let (structure, moving, owner) = (structure.into(), moving.into(), owner.map(Box::from));
        let copy = Copy {
            keeper,
            before,
            epoch,
            version,
            since,
            structure,
            owner,
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
    fn put_whole(&mut self, client: &str, mut copy: Copy) -> Option<bool> {
        let overlay = self.overlay.as_deref_mut()?;
        let copies = &mut overlay.roam.copies;
        let known = copies.get(client).map(|copy| (copy.epoch, copy.version, copy.keeper));
        if known.is_some_and(|(known, before, _)| (known, before) > (copy.epoch, copy.version)) {
            return Some(false);
        }
        copy.before = copies.keepers_before(client, copy.keeper);
        let is_news = known.is_none_or(|(known, _, before)| (known, before) != (copy.epoch, copy.keeper));
        let is_put = copies.put(client, copy);
        overlay.stats.copies_refused += u64::from(!is_put);
        Some(is_put && is_news)
    }
}
