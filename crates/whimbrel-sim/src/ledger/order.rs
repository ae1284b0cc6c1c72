//! On one subscription, over one connection, each stream is delivered in the order of its ticks,
//! and each publisher's messages in their order.

use std::collections::BTreeMap;

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_core::store::Disk;
use whimbrel_event::{PubendId, Reliability};
use whimbrel_mqtt::ConnId;

use super::Ledger;
use super::follow::Follow;
use super::places::Name;
use crate::check::Rule;
use crate::speech::Message;

/// The progress of the deliveries over a connection.
#[derive(Default, Debug)]
pub(super) struct Heads {
    /// The last tick and mark of each stream.
    streams: BTreeMap<(Kind, u64), (u64, String)>,
    /// The last message of each publisher, by the publisher's own count; QoS 0 counts apart.
    publishers: BTreeMap<(Kind, String, bool), u64>,
}

/// The filter, and whether the delivery had QoS 0. A subscription that changes to or from QoS 0 is
/// another one: MQTT keeps the order within each quality of service.
type Kind = (String, bool);

impl Ledger {
    /// An event is delivered, perhaps with its name.
    pub(super) fn in_order(&mut self, conn: ConnId, mark: &str, message: &Message, name: Option<Name>) {
        let Some(line) = self.lines.get_mut(&conn) else { return };
        let Some(who) = line.client_id.clone() else { return };
        let identifiers = message.subscription_identifiers();
        let follow = identifiers.first().and_then(|id| self.follows.get(&(who.clone(), *id)));
        if message.retain || follow.is_some_and(Follow::may_go_back) {
            return;
        }
        let fact = &self.facts[mark];
        let text =
            self.sessions.get(&who).and_then(|session| session.wishes.resolve(&fact.message.topic, &identifiers));
        // Messages that a member of a group has not answered go to another one.
        let Some(text) = text.filter(|text| !text.starts_with("$share")) else { return };
        let kind = (text.clone(), message.qos == Qos::AtMostOnce);
        let is_single = fact.is_single(self.log.durable.contains(mark));
        // MQTT 3.1.1 has no names: there the log tells the tick.
        let of_log = self.log.places.get(mark).filter(|_| is_single).map(|(pubend, tick)| (u64::from(*pubend), *tick));
        let is_of_log = |pubend| is_own(pubend) && self.names.host == Some(pubend - pubend % 16);
        let key = |(pubend, tick): Name| if is_of_log(pubend) { (pubend % 16, tick) } else { (pubend, tick) };
        if let Some((stream, tick)) = name.map(key).or(of_log) {
            let head = line.heads.streams.entry((kind.clone(), stream)).or_insert((0, String::new()));
            let (last, before) = std::mem::replace(head, (tick, mark.to_owned()));
            if tick <= last {
                let what = format!("{who} gets {mark} at {tick} of {stream:x}, after {before} at {last}, for {text}");
                return self.broken(Rule::Order, what);
            }
        }
        // Events accepted since the log failed are in other streams, and a publisher's order holds
        // within its stream.
        if self.machine.disk == Disk::Poisoned {
            return;
        }
        let Some(count) = mark.split_once('/').and_then(|(_, count)| count.parse().ok()).filter(|_| fact.times == 1)
        else {
            return;
        };
        let is_reliable = fact.message.qos > Qos::AtMostOnce;
        let publisher = (kind, fact.publisher.clone(), is_reliable);
        let before = line.heads.publishers.insert(publisher, count).unwrap_or(0);
        if count <= before {
            let what = format!("{who} gets {mark} after message {before} of the same publisher");
            self.broken(Rule::Order, what);
        }
    }
}

/// Whether a stream is of the kind that is logged: the log knows it by its index.
pub(super) fn is_own(pubend: u64) -> bool {
    PubendId(pubend).reliability() == Reliability::Reliable
}
