//! The checks of the book of roaming clients at the end of a world: what had to be delivered, and
//! was not.

use std::collections::BTreeSet;
use std::time::Duration;

use whimbrel_event::{HOST_RELIABLE_MAX, PubendId, Time};

use super::book::{Book, Era, Name};
use super::fact::Fact;
use super::publisher::VOLATILE;
use super::trouble::{LINGER, Troubles};
use super::web::TOLD;
use crate::overlay::book::{ARRIVE_MAX, Process, Rule, wants};

/// How long a publisher waits for an answer, at most.
const ANSWERED: Duration = Duration::from_secs(3);

impl Book {
    /// Checks at the end of a world, when all deliveries have been made. `probes`: the time at
    /// which everything had worked for a while; events sent from then on have no excuse.
    pub(super) fn close(&mut self, probes: Time) {
        let mut broken = Vec::new();
        for account in self.accounts.values() {
            let era = account.eras.last().filter(|era| era.is_answered && !era.is_over);
            let Some((era, began)) = era.and_then(|era| Some((era, era.began?))) else {
                broken.push((Rule::Session, format!("{} has no subscription in the end", account.name)));
                continue;
            };
            if account.attached.is_none() {
                broken.push((Rule::Session, format!("{} has no session in the end", account.name)));
            }
            let who = format!("{} ({:?}, since {began:?})", account.name, account.keeper);
            let due = |fact: &&Fact| fact.sent[0].0 > began && fact.answered.is_some();
            for (number, fact) in self.facts.iter().enumerate() {
                if !due(&fact) || !wants(&account.wish, &fact.message) || self.is_pending(era, fact, probes) {
                    continue;
                }
                let Fact { key, sent, written, .. } = fact;
                let what = format!("{key}, said {sent:?}, named {:?}, written {written:?}", named(fact));
                let sent = fact.sent[0].0;
                match era.got.get(&number) {
                    Some(got) => {
                        self.counts.due += 1;
                        let took = got.at.since(sent);
                        if sent >= probes && took > ARRIVE_MAX {
                            broken.push((Rule::Late, format!("{who} gets {what} after {took:?}")));
                        }
                    }
                    None => {
                        let gaps = self.gaps_of(era, fact);
                        let is_excused = gaps.iter().any(|(reason, at)| self.is_justified(era, fact, (reason, *at)))
                            || self.is_gone(fact)
                            || self.is_forgotten(era, fact)
                            || self.is_left_open(era, fact);
                        self.counts.excused += u64::from(is_excused);
                        if !is_excused || sent >= probes {
                            broken.push((Rule::Lost, format!("{who} does not get {what}, gaps: {gaps:?}")));
                        }
                    }
                }
            }
        }
        for fact in &self.facts {
            self.counts.marked += u64::from(fact.is_marked);
            let accepted = self.where_accepted(fact);
            self.counts.doubled += u64::from(accepted.len() > 1);
            let is_wrong = match fact.is_marked {
                false => fact.written.len() > 1 && !self.is_said_to_strangers(fact),
                true => self.could_be_asked(&accepted),
            };
            if is_wrong {
                let Fact { key, sent, written, .. } = fact;
                let what = format!("{key}, said {sent:?}, is named {:?}, logged as {written:?}", named(fact));
                broken.push((Rule::Logged, what));
            }
        }
        broken.into_iter().for_each(|(rule, what)| self.breaks(rule, what));
    }

    /// Whether a broker that may have accepted the event had not confirmed the subscription.
    fn is_pending(&self, era: &Era, fact: &Fact, probes: Time) -> bool {
        let is_named = |process: &Process| {
            let name = &self.names[process.0];
            era.pending.iter().any(|pending| pending == name || pending == whimbrel_core::ALL_OTHERS)
        };
        fact.sent[0].0 < probes && fact.sent.iter().any(|(_, process)| is_named(process))
    }

    /// Whether a gap may hide the event.
    fn is_justified(&self, era: &Era, fact: &Fact, (reason, told): (&str, Time)) -> bool {
        let sent = fact.sent[0].0;
        let began = era.began.unwrap_or(sent);
        let is_lost = fact.sent.iter().any(|(_, process)| self.troubles.lost_disk_of(process.0, sent));
        // A host that began after the subscription, or that its broker did not know of yet, had to
        // be announced first. The time that counts is when the event was sent to that host, which
        // may not be the first time it was sent.
        let Troubles { web, hearing, losses, .. } = &self.troubles;
        let home = era.granted.map(|process| process.0);
        let is_unknown = |host: (usize, Time)| {
            let may_know = |home: usize| web.who_may_know(host, began, losses)[home];
            home.is_some_and(|home| !may_know(home) || self.was_unheard_of(era, host, (home, began)))
        };
        let is_young = losses.iter().any(|(at, node)| {
            let is_early = |when: &Time| *when >= *at && when.since(*at) < LINGER;
            let is_unheard_of = || *at + TOLD > began || is_unknown((*node, *at));
            fact.sent.iter().any(|(when, to)| to.0 == *node && is_early(when)) && is_unheard_of()
        });
        // Or the subscription's broker has lost its disk, and was not linked with the host since
        // for long enough.
        let is_strange = fact.sent.iter().any(|(when, to)| {
            let born = self.troubles.born(to.0, *when);
            let has_heard = |home| hearing.has_heard((to.0, born.max(self.troubles.born(home, *when))), (home, *when));
            let is_soon = *when >= began && when.since(began) < LINGER;
            is_soon && is_unknown((to.0, born)) && home.is_some_and(|home| !has_heard(home))
        });
        let is_volatile = fact.message.topic == VOLATILE;
        let is_released = reason == "released" && self.gives_up && told > sent;
        is_volatile || is_released || is_young || is_strange || era.is_forgiven || reason == "lost" && is_lost
    }

    /// Whether the broker that granted a subscription had not heard of the host that another
    /// machine had from `since` on, and had not been linked long enough with one that had. It can
    /// neither wait for such a host nor name it.
    fn was_unheard_of(&self, era: &Era, (node, since): (usize, Time), (home, granted): (usize, Time)) -> bool {
        let Troubles { hearing, .. } = &self.troubles;
        let disk = self.troubles.disk_at(node, since);
        let is_known = self.troubles.hosts_of((node, disk)).any(|host| era.known.contains(&host));
        let both = since.max(self.troubles.born(home, granted));
        !is_known && !hearing.has_heard((node, both), (home, granted))
    }

    /// Whether the event was never seen by a client or witness, and its broker lost its disk after
    /// it was sent.
    fn is_gone(&self, fact: &Fact) -> bool {
        let sent = fact.sent[0].0;
        let lost = |process: &Process| self.troubles.lost_disk_of(process.0, sent);
        fact.names.is_empty() && fact.sent.iter().any(|(_, process)| lost(process))
    }

    /// Whether no broker can know of the stream that the event was in, so that none can tell a gap
    /// of it. The event's host began after the subscription and never confirmed it (a subscription
    /// begins in a stream when that stream's broker confirms it). The host has lost its disk, and
    /// each other broker has lost its own too or was down while that host was there. Not so if the
    /// client has received something of the stream: its token names it.
    fn is_forgotten(&self, era: &Era, fact: &Fact) -> bool {
        let Some(began) = era.began.filter(|_| !fact.names.keys().any(|(stream, _)| era.has_had(*stream))) else {
            return false;
        };
        // Where the event was sent before in vain, and not written, it is in no stream.
        let is_written = |process: &Process| {
            let (node, disk) = (process.0, self.troubles.disk_of(*process));
            let mut streams = fact.names.keys().map(|(stream, _)| PubendId(*stream).host());
            let mut written = fact.written.iter();
            written.any(|(at, of, ..)| (*at, *of) == (node, disk))
                || streams.any(|host| self.troubles.hosts_of((node, disk)).any(|known| known == host))
        };
        let is_anywhere = fact.sent.iter().any(|(_, process)| is_written(process));
        fact.sent.iter().filter(|(_, process)| !is_anywhere || is_written(process)).all(|(sent, process)| {
            let is_unknown = self.is_unheard_of(fact) || self.troubles.is_known_to_none(process.0, *sent);
            self.troubles.born(process.0, *sent) > began && is_unknown
        })
    }

    /// Whether no broker, with its present disk, has ever heard of the hosts of the event's
    /// streams: none was told of them.
    fn is_unheard_of(&self, fact: &Fact) -> bool {
        let mut hosts = fact.names.keys().map(|(stream, _)| PubendId(*stream).host());
        !fact.names.is_empty() && hosts.all(|host| self.troubles.is_unheard_of(host))
    }

    /// Whether the event was logged by several hosts, each unknown to all brokers that could be
    /// reached from the next one that it was sent to. Then its publisher repeats it to a broker
    /// that cannot have heard of the earlier host: that host is gone with its disk, and so are all
    /// brokers that had met it. Where one of them is left, the event is marked.
    fn is_said_to_strangers(&self, fact: &Fact) -> bool {
        let disk = |process: &Process| (process.0, self.troubles.disk_of(*process));
        let hosts: BTreeSet<(usize, u32)> = fact.written.iter().map(|(node, disk, ..)| (*node, *disk)).collect();
        let said =
            |host: &(usize, u32)| fact.sent.iter().find(|(_, process)| disk(process) == *host).map(|(at, _)| *at);
        let mut said: Vec<(Time, usize)> = hosts.iter().filter_map(|host| Some((said(host)?, host.0))).collect();
        said.sort_unstable();
        let Troubles { web, losses, .. } = &self.troubles;
        let is_strange = |(before, there): (Time, usize), (now, here): (Time, usize)| {
            let known = web.who_may_know((there, self.troubles.born(there, before)), now, losses);
            !web.linked_with(here, now).any(|node| known[node])
        };
        let is_new = |at: usize| said[..at].iter().all(|before| is_strange(*before, said[at]));
        said.len() == fact.written.len() && (1..said.len()).all(is_new)
    }

    /// The machines whose brokers have accepted the event, as far as is known, each with the time
    /// at which the event was first sent there, in that order.
    fn where_accepted(&self, fact: &Fact) -> Vec<(Time, usize)> {
        let logged = fact.written.iter().map(|(node, ..)| *node);
        let nodes: BTreeSet<usize> = logged.chain(fact.names.values().flatten().map(|process| process.0)).collect();
        let said = |node: usize| Some((fact.sent.iter().find(|(_, process)| process.0 == node)?.0, node));
        let mut said: Vec<(Time, usize)> = nodes.into_iter().filter_map(said).collect();
        said.sort_unstable();
        said
    }

    /// Whether one of these brokers has accepted the event after another one that it could reach
    /// all the time: a mark says that it could not.
    fn could_be_asked(&self, accepted: &[(Time, usize)]) -> bool {
        let is_near = |(before, there): (Time, usize), (now, here): (Time, usize)| {
            !self.troubles.were_apart((there, here), (before, now.after(ANSWERED)))
        };
        (1..accepted.len()).any(|at| accepted[..at].iter().any(|before| is_near(*before, accepted[at])))
    }

    /// Whether the event is still open for the owner of the position. The last token stands before
    /// the event, and no broker that knew of the event's host is left with its disk (they may have
    /// lost their disks one after the other, if the rest had not met their successors). No broker
    /// knows then whether the stream is still at one that it has not heard of, or is gone. A gap
    /// would be a guess, so the position is kept for the case that the stream is found.
    fn is_left_open(&self, era: &Era, fact: &Fact) -> bool {
        let Some(token) = &era.token else { return false };
        let is_before = |(stream, tick): &Name| token.position(PubendId(*stream)).is_some_and(|at| at.0 < *tick);
        let is_lost =
            |(_, process): &(Time, Process)| self.troubles.is_forgotten_by_all(*process) || self.is_unheard_of(fact);
        !fact.names.is_empty() && fact.names.keys().all(is_before) && fact.sent.iter().all(is_lost)
    }

    /// The names that the event would have had at earlier hosts of the same machine, if the client
    /// has received nothing of its own stream. A gap that tells the end of an earlier host reaches
    /// up to the start of the present one. It covers all hosts between them, of which perhaps no
    /// broker has heard.
    fn elder_names(&self, era: &Era, fact: &Fact) -> Vec<Name> {
        let logged = fact.written.iter().map(|(node, disk, own, tick)| {
            let is_met = self.streams_of((*node, *disk, *own)).any(|stream| era.has_had(stream));
            ((*node, *disk, *own), *tick, is_met)
        });
        let named = fact.names.iter().filter_map(|((stream, tick), at)| {
            let (place, own) = ((*at)?, PubendId(*stream).reliable_place()?);
            Some(((place.0, self.troubles.disk_of(place), own), *tick, era.has_had(*stream)))
        });
        let mut names = Vec::new();
        for ((node, disk, own), tick, _) in logged.chain(named).filter(|(.., is_met)| !is_met) {
            let elder = (0..disk).flat_map(|elder| self.streams_of((node, elder, own)));
            names.extend(elder.map(|stream| (stream, tick)));
        }
        names
    }

    /// The gaps that hide the event, under any of its names: also under one by which no client
    /// received it and that a log has, and, for `lost`, under its names at earlier hosts.
    fn gaps_of<'a>(&self, era: &'a Era, fact: &Fact) -> Vec<(&'a str, Time)> {
        let of = |(node, disk, own, tick): &(usize, u32, u8, u64)| {
            let tick = *tick;
            self.streams_of((*node, *disk, *own)).map(move |stream| (stream, tick))
        };
        let names: Vec<Name> = fact.names.keys().copied().chain(fact.written.iter().flat_map(of)).collect();
        let elder = self.elder_names(era, fact);
        let unseen = self.unseen_names(fact);
        let hides = |names: &[Name], (stream, from): &Name, to: u64| {
            names.iter().any(|(of, tick)| of == stream && from < tick && *tick <= to)
        };
        let is_one = |(from, to, reason, _): &&(Name, u64, String, Time)| {
            let hides_unseen =
                |((stream, least), most): &(Name, u64)| *stream == from.0 && from.1 < *least && *most <= *to;
            hides(&names, from, *to) || reason == "lost" && hides(&elder, from, *to) || unseen.iter().any(hides_unseen)
        };
        era.gaps.iter().filter(is_one).map(|(_, _, reason, at)| (&**reason, *at)).collect()
    }

    /// The names that an unseen event may have: in a stream of [`Self::streams_to`], at a tick
    /// between the broker's clock when the event was sent and its clock when the event was answered
    /// or the broker ended, and before the publisher's later events there.
    fn unseen_names(&self, fact: &Fact) -> Vec<(Name, u64)> {
        if !fact.names.is_empty() || !fact.written.is_empty() {
            return Vec::new();
        }
        let said = fact.sent.iter().zip(&fact.clocks);
        let unseen = said.flat_map(|((sent, process), clock)| {
            let until = [fact.answered.map(|(at, _)| at), self.troubles.ends.get(process).copied()];
            let waited = until.into_iter().flatten().min().map_or(Duration::ZERO, |at| at.since(*sent));
            let end = (*clock + waited).as_nanos();
            // Events of one publisher have their ticks in its order.
            let later =
                self.facts.iter().filter(|other| other.publisher == fact.publisher && other.number > fact.number);
            let later: Vec<&Name> = later.flat_map(|other| other.names.keys()).collect();
            let most = move |stream: u64| {
                let ticks = later.iter().filter(|(of, _)| *of == stream).map(|(_, tick)| tick - 1);
                ticks.fold(end, u64::min)
            };
            let streams = self.streams_to(fact, *process).into_iter();
            streams.map(move |stream| ((stream, clock.as_nanos()), most(stream)))
        });
        unseen.collect()
    }

    /// The streams that an unseen event may be in, at that broker: the one that its publisher had
    /// there, or, of a volatile event, any, as its publisher may have nothing else in that one.
    fn streams_to(&self, fact: &Fact, process: Process) -> Vec<u64> {
        if fact.message.topic == VOLATILE {
            let disk = self.troubles.disk_of(process);
            return (0..HOST_RELIABLE_MAX).flat_map(|own| self.streams_of((process.0, disk, own))).collect();
        }
        let known =
            self.facts.iter().filter(|other| other.publisher == fact.publisher).find_map(|other| {
                other.names.iter().find(|(_, at)| **at == Some(process)).map(|((stream, _), _)| *stream)
            });
        known.into_iter().collect()
    }

    /// The streams that a disk's hosts log with that index, whether or not a client received an
    /// event of them.
    fn streams_of(&self, (node, disk, own): (usize, u32, u8)) -> impl Iterator<Item = u64> {
        self.troubles.hosts_of((node, disk)).map(move |host| host.reliable(own).0)
    }
}

fn named(fact: &Fact) -> Vec<String> {
    let name = |((stream, tick), at): (&Name, &Option<Process>)| format!("{stream:x}:{tick} at {at:?}");
    fact.names.iter().map(name).collect()
}
