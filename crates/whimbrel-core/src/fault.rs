//! Faults that are built into the broker on purpose, to see whether tests notice: their list, and
//! the macro `fault!`, with which the code asks for one.
//!
//! There are faults only with the feature `mutants`, which tests switch on. Without it [`Faults`]
//! has size zero and `fault!` is constant `false`: a production build neither has faults nor pays
//! for them. The effect of a fault stands in its place in the code, behind `if fault!(..)`; a long
//! one stands here.

use whimbrel_event::{Event, EventId, HostId, PubendId, Tick, Time};
use whimbrel_wire::Dest;

use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::Overlay;
use crate::remote::Learnt;
use crate::session::Publication;

/// Whether a fault is built in, as in `fault!(self, SkipNack)`. The first argument has a field of
/// type [`Faults`] named `faults`, the second is a variant of `Mutant`.
#[cfg(feature = "mutants")]
macro_rules! fault {
    ($of:expr, $mutant:ident) => {
        $of.faults.has($crate::fault::Mutant::$mutant)
    };
}

/// Whether a fault is built in: constant `false`.
#[cfg(not(feature = "mutants"))]
macro_rules! fault {
    ($of:expr, $mutant:ident) => {
        $of.faults.has_any()
    };
}

/// Which fault is built into a part of the broker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    #[cfg(feature = "mutants")]
    built_in: Option<Mutant>,
}

impl Faults {
    #[cfg(feature = "mutants")]
    pub(crate) fn has(self, mutant: Mutant) -> bool {
        self.built_in == Some(mutant)
    }

    /// Constant `false`.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub(crate) const fn has_any(self) -> bool {
        false
    }
}

#[cfg(feature = "mutants")]
impl Broker {
    /// Builds a fault in. The overlay takes it over when it is joined, not later.
    pub fn build_in(&mut self, mutant: Mutant) {
        self.set_faults(Faults { built_in: Some(mutant) });
    }
}

#[cfg(feature = "mutants")]
impl crate::store::Restoring {
    /// Builds a fault in, as [`Broker::build_in`].
    pub fn build_in(&mut self, mutant: Mutant) {
        self.faults = Faults { built_in: Some(mutant) };
    }
}

impl Broker {
    /// Builds the faults into this core, its cache and its own streams.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.cache.faults = faults;
        self.streams.own.faults = faults;
    }

    /// Passes an event of another broker's stream on a second time, if it has passed before.
    pub(crate) fn deliver_again(
        &mut self,
        now: Time,
        (pubend, upto): (PubendId, Tick),
        learnt: &Learnt<'_>,
        out: &mut dyn Output,
    ) {
        let Learnt::Data { event, .. } = learnt else { return };
        if self.streams.remote(pubend).is_some_and(|remote| remote.passed >= upto) {
            let event = Event::keep(event.id, event.accepted, &event.event);
            let route = self.router.route(event.topic()).expect("the topic has been checked");
            self.pass(now, route, &mut Publication::of(&event, 0), false, out);
        }
    }
}

impl Overlay {
    /// Undoes that an event was matched for destinations to which no way leads: the next event
    /// tells them silence in its place.
    pub(crate) fn take_back(&mut self, id: EventId, dests: &[(HostId, Dest)]) {
        for (host, dest) in dests {
            if !self.is_reachable(*host) {
                let number = self.destinations.number(*host).expect("it was just matched");
                let own = usize::from(id.pubend.index());
                self.destinations.get_mut(number).expect("it is served").last[own] = dest.previous;
            }
        }
    }
}

/// A fault that is built in on purpose, to see whether a test notices.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A position is written as if nothing had come since all streams stood where a base says.
    Unmarked,
    /// A durable subscription is told a gap of another broker's stream instead of reading its log.
    GapTaken,
    /// The part of a log that another broker released early passes for silence.
    FarEarlyIsSilence,
    /// The answer to one reader of another broker's log passes for the answer to every reader.
    KeptForAll,
    /// A broker that goes on from a copy gives out tags that the client may still use for
    /// deliveries of the former owner.
    TagsTrusted,
    /// A publisher's first event at another broker does not wait for the one before.
    PredecessorIgnored,
    /// After a standstill a broker takes the time in which it heard nothing for silence of others.
    StandstillUnnoticed,
    /// The predecessors of a moved publisher's next event are not written.
    PredecessorUnwritten,
    /// When the cache is divided anew, partitions forget what they knew to be missing.
    ForgottenOverwriting,
    /// Silence is declared over events that wait for the disk.
    ClosesOverWaiting,
    /// After a restart the empty cache passes for complete.
    CacheBelieved,
    /// A publisher is answered before its event is durable.
    AnswersBeforeCommit,
    /// An event is passed on before it is durable.
    PassesBeforeCommit,
    /// An answer that need not wait for the log does not wait for those before it either.
    AnswerOvertakes,
    /// The log is released although a subscription has not acknowledged what it holds.
    ReleasesInFlight,
    /// A session that is not attached holds nothing of the log.
    ForgetsAbsent,
    /// After a restart positions are forgotten.
    HoldLost,
    /// Another selector counts also for what came before.
    SelectorAtOnce,
    /// A delivery at exactly once is sent before it is durable that it is on its way.
    PublishBeforePut,
    /// A client is told to forget a tag before it is durable that it has the event.
    ReleaseBeforePut,
    /// A publisher's number is not written with its event.
    SeqApart,
    /// A repeated event is acknowledged before the first is durable.
    RepeatAnswered,
    /// After a restart ticks that were reserved are given out again.
    TickReused,
    /// The log is believed for what came before a subscription was confirmed.
    LogBeforeStart,
    /// The part of the own log that was released early passes for silence.
    EarlyIsSilence,
    /// A client is told that the position which it keeps is known before that is durable.
    AcknowledgedBeforePut,
    /// A subscription that another connection asked for begins at the position named there.
    BeginsForAnother,
    /// A client is told of its new session before the old one is durably forgotten.
    OldSessionBack,
    /// A subscription that waits for its confirmation is not named in filter records.
    WishUnnamed,
    /// A broker that is owed an event is not named in filter records.
    DebtorUnnamed,
    /// A reader that does not find the next event in its chain takes the chain for ended.
    ChainBelieved,
    /// Holes of other brokers' streams are not asked for.
    SkipNack,
    /// Silence counts under old versions of the interest, too.
    OldVersionBelieved,
    /// The first silence of a broker counts also for events before the version it is told under.
    FirstSilenceBelieved,
    /// Where a subscription stands in streams that are not known yet is forgotten.
    StrangersForgotten,
    /// An event that comes a second time is passed on a second time.
    DeliverTwice,
    /// An event that was not sent, as there is no way, is taken for silence when the next one is.
    PreviousNotMoved,
    /// Each nack is answered with silence.
    AnswersNothing,
    /// A range that the cache has overwritten is answered with silence.
    AnswersFromHoles,
    /// A subscription is answered before other brokers know of it.
    ConfirmEarly,
    /// The retained message that was known first stays.
    RetainedOlderWins,
    /// Retained messages are not compared.
    RetainedNotCompared,
    /// A new subscription does not get a retained message, as the event may come anyway.
    RetainedWithheld,
    /// Silence is told up to a moment that has not come.
    SilenceAhead,
    /// Interests are not passed on.
    InterestStays,
    /// Events are sent to all brokers that want anything.
    SentToAll,
    /// A client that comes back is not told that its interest was not in force.
    ReturnsWithoutGap,
    /// A broker that was started again as the same host is taken for its former process.
    IncarnationIgnored,
    /// A broker that answers from transit tells the asker the silence that another broker was told.
    SilenceOfOtherInterest,
    /// A broker that waits for the answer to another's nack is told the silence of that other one.
    MergedRangeNacks,
    /// A broker that repairs the way of an event does not name the repairers before it.
    RepairLoop,
    /// The silence before an event is believed under each version of the interest.
    IntervalAcrossVersions,
    /// Events that are owed to another broker are not logged for it.
    OwedNotLogged,
    /// A debt to another broker is told before it is durable.
    OwedToldEarly,
    /// How far the log is held for another broker is not written.
    HoldUnwritten,
    /// A report lifts the hold altogether.
    HoldLifted,
    /// A session that moves stands where its broker had passed, not where its client had answered.
    CarriedAhead,
    /// A session that moves forgets its publisher's last number.
    CarriedWithoutNumber,
    /// A session that moves forgets what is in flight at exactly once.
    CarriedWithoutFlights,
    /// A session that was given away is dropped before it is safe elsewhere.
    SettledAtOnce,
    /// The owner of an older session is not told of the newer one.
    NewerIgnored,
    /// A clerk is believed that has not been told everything.
    UnsyncedBelieved,
    /// A replica keeps the first copy of a session.
    CopyStale,
}
