"""The set-up of the experiment, as `whimbrel lab responsiveness` has it: five brokers in a full mesh, slots in which links are in trouble,
publishers and subscribers; and how events are counted. Nothing here opens a socket."""

import heapq
import math
from dataclasses import dataclass

# One broker of the paper, `n`, has index `n - 1`.
BROKERS = 5

# The links: both ends, and the one-way delay in ms.
MESH = [
    ((0, 1), 16),
    ((0, 2), 20),
    ((0, 3), 25),
    ((0, 4), 6),
    ((1, 2), 18),
    ((1, 3), 5),
    ((1, 4), 12),
    ((2, 3), 15),
    ((2, 4), 15),
    ((3, 4), 15),
]

TOPICS = ["t1", "t2", "t3"]

# The brokers of the publishers, by topic.
PUBLISHERS = [1, 2, 3]

# The subscribers: the paper's name, the index of the topic, the subscriber's broker.
PAIRS = [("s1.t1", 0, 0), ("s1.t2", 1, 0), ("s3.t3", 2, 2), ("s4.t2", 1, 3), ("s5.t1", 0, 4), ("s5.t3", 2, 4)]

DEADLINE_MS = 50
SLOW_MS = 100
# The time between two events of a publisher, ns.
EVERY_NS = 10_000_000
BODY = 100
SLOTS = 10
BAD_PERMILLE = 120

# What happens to a link in trouble: its delay becomes SLOW_MS, or it loses everything.
TROUBLES = {"a": "slow", "b": "hole"}

_MASK = (1 << 64) - 1


class Random:
    """SplitMix64, the numbers of `whimbrel_sim::random::Random`."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, bound):
        return (self.next() * bound) >> 64


def drawn(seed):
    """By slot and link: whether it is in trouble. The same as `SlotPlan::drawn` of the lab."""
    random = Random(seed)
    return [[random.below(1000) < BAD_PERMILLE for _ in MESH] for _ in range(SLOTS)]


def phases(seed):
    """By topic: when its publisher begins within the first EVERY_NS, ns."""
    random = Random(seed)
    return [random.below(EVERY_NS // 1000) * 1000 for _ in TOPICS]


def link_of(one, other):
    """The index of the link between two brokers."""
    ends = (min(one, other), max(one, other))
    return next(index for index, (known, _) in enumerate(MESH) if known == ends)


def delays(bad, trouble):
    """By link: its one-way delay in ms where the links marked in `bad` are in trouble, infinite where it loses everything."""
    worse = {"slow": SLOW_MS, "hole": math.inf}[trouble]
    return [worse if is_bad else good for is_bad, (_, good) in zip(bad, MESH)]


def fastest(source, to, by_link):
    """The least delay over any path, ms; infinite without one."""
    best = {source: 0}
    open_ = [(0, source)]
    while open_:
        at, broker = heapq.heappop(open_)
        if broker == to:
            return at
        for other in (other for other in range(BROKERS) if other != broker):
            reached = at + by_link[link_of(broker, other)]
            if reached < best.get(other, math.inf):
                best[other] = reached
                heapq.heappush(open_, (reached, other))
    return math.inf


def floors(seed, trouble):
    """The shares of events, in per cent, that no router can deliver in time, and that none can deliver at all, if every path is known at once."""
    late = lost = 0
    for bad in drawn(seed):
        by_link = delays(bad, trouble)
        for _, topic, to in PAIRS:
            takes = fastest(PUBLISHERS[topic], to, by_link)
            late += takes > DEADLINE_MS
            lost += takes == math.inf
    return {"late": 100 * late / (SLOTS * len(PAIRS)), "lost": 100 * lost / (SLOTS * len(PAIRS))}


def direct(seed):
    """The share of events, in per cent, whose direct link is in trouble."""
    bad = sum(slot[link_of(PUBLISHERS[topic], to)] for slot in drawn(seed) for _, topic, to in PAIRS)
    return 100 * bad / (SLOTS * len(PAIRS))


def best_hub():
    """The broker over which the pairs have the least delay in sum, where all links but its own are absent."""

    def over(hub):
        def leg(broker):
            return 0 if broker == hub else MESH[link_of(broker, hub)][1]

        return sum(leg(PUBLISHERS[topic]) + leg(to) for _, topic, to in PAIRS)

    return min(range(BROKERS), key=over)


@dataclass
class Tally:
    """Counts of events."""

    sent: int = 0
    late: int = 0
    lost: int = 0
    repeated: int = 0
    worst_ms: float = 0.0

    def add(self, other):
        self.sent += other.sent
        self.late += other.late
        self.lost += other.lost
        self.repeated += other.repeated
        self.worst_ms = max(self.worst_ms, other.worst_ms)

    def share(self, what):
        """In per cent of those that were sent; `what` is `late` or `lost`. Late are lost ones, too."""
        return 100 * getattr(self, what) / self.sent


def judge(sent, received, begin, end):
    """What became of the events of a publisher at a subscriber. `sent`: when each was sent, by number, ns; `received`: numbers and when they came; those
    sent from `begin` to `end` count."""
    first = {}
    repeated = 0
    for number, at in received:
        if number in first:
            repeated += 1
            first[number] = min(first[number], at)
        else:
            first[number] = at
    tally = Tally(repeated=repeated)
    for number, at in enumerate(sent):
        if not begin <= at < end:
            continue
        tally.sent += 1
        came = first.get(number)
        if came is None:
            tally.lost += 1
            tally.late += 1
            continue
        took = (came - at) / 1e6
        tally.worst_ms = max(tally.worst_ms, took)
        tally.late += took > DEADLINE_MS
    return tally


def is_ahead(ours, theirs):
    """Whether a share of ours is less than another system's; where neither has any, there is nothing to be ahead in."""
    return ours < theirs or ours == theirs == 0
