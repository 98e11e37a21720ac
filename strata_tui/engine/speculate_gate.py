"""The gate: whether drafting pays, and how many drafts, from what was measured while running. Pure.

Cost: the time of a window of n tokens (speculate_cost.py), and of a draft, from the last ones, so that they follow the
hit rate. Acceptance: by kind of draft and its confidence, so that an overconfident drafter is corrected.
A window of k drafts is worth 1 + a1 + a1 a2 + ... tokens for c(k + 1) + the drafts' time; plain decoding one
token for c(1).

Where a change of length costs much by itself (a graph is built and recorded on a GPU), windows come in stretches: what
the changes to them and back cost is shared out among as many as usually follow each other, their length is chosen by
what is accepted on average, for a while, and they end when that does not pay. Elsewhere each window is as long as its
drafts' own confidence makes worth.

Each drafter has an account of time: what its drafts save is paid in, what they cost is taken out, and LOSS of all the
time that goes by is paid in, too. At nothing left it is off, until there is enough for another try: a change for the
better is noticed, and a drafter that never pays costs no more than that share. Some of what a try costs is not seen in
it or right behind it (experts that it drove out of the slots are missed later), so after each that failed the share is
halved, down to LEAST, until drafts pay again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from .speculate_cost import RECENT, Costs

LOSS, LEAST = 0.004, 0.001  # share of the time that a drafter may cost on balance: at first, and after failed tries
# In an account, in plain tokens' time: at first, for another try, and at most by the share;
_FIRST, _AGAIN, _MOST = 2.0, 0.5, 2.0
_SAVED_UP = 0.95  # of that: all there can be
_SAVED, _DEBT = 8.0, 6.0  # at most by what drafts saved, and at least
_OUTLIER = 2.0  # times what is usual: more is not laid to a drafter's charge (nor a plain token's to its credit) ...
_BEHIND = 5.0  # ... but plain tokens right behind a draft or window may cost that much: graphs are built anew for them
_AFTER = 2  # such tokens
_CATCHES_UP = 32  # tokens that a drafter can read in the time of a draft, about, where it has not been asked for some
_HELD_UP = 2  # rounds in a row: what more of them take is how it is now
_PLAIN_FIRST = 24  # plain tokens measured before the first drafts: a few would often be too slow or too fast by chance
_PLAIN_EVERY, _PLAIN_AGAIN = 256, 16  # rounds after which plain tokens are measured again, and how many
_DEAR = 0.25  # of a plain token: a change of length that costs more makes stretches of windows
_KEPT, _AGAIN_IN = 8, 32  # windows of a length that follow each other: in a stretch that begins, and later on
_LATER = 0.8  # how often a draft is right beside the one before it, while none was seen
_BROKE = 1.0  # plain tokens' time of debt, beside a change of length, that ends them
_MARGIN = 1.02  # by which a window must look better than plain decoding
_PROBE_EVERY = 16  # rounds without a window after which one is tried although it does not seem to pay ...
_PROBE_RATE = 0.25  # ... with a draft of at least this acceptance rate, and an account that allows it
_DECLINED = 4  # drafts in a row without a window after which the next waits for the account
_MEMORY = 64.0  # drafts that a rate remembers
_STRETCH_MEMORY = 0.3  # weight of the last stretch of windows among all


@dataclass(slots=True)
class Rate:
    """A share that follows what happens now: hits and tries, fading, with a guess that counts as some tries."""

    guess: float
    weight: float = 4.0
    hits: float = 0.0
    tries: float = 0.0

    @property
    def value(self) -> float:
        return (self.hits + self.guess * self.weight) / (self.tries + self.weight)

    def add(self, hit: bool) -> None:
        fade = 1 - 1 / _MEMORY
        self.hits = self.hits * fade + hit
        self.tries = self.tries * fade + 1


@dataclass(slots=True)
class Account:
    """One drafter's account, in seconds."""

    balance: float
    blocked: bool = False
    share: float = LOSS

    def add(self, saved: float, spent: float, plain: float) -> None:
        """A round that took `spent`, of which its drafts `saved` some, or cost some; `plain`: c(1)."""
        income = self.share * spent if self.balance < _MOST * plain else 0.0  # only savings are saved up
        self.balance = max(min(self.balance + saved + income, _SAVED * plain), -_DEBT * plain)
        if self.balance < 0:
            self.share = self.share if self.blocked else max(LEAST, self.share / 2)
            self.blocked = True
        elif self.balance >= _AGAIN * plain:
            self.blocked = False
        if saved > 0 and self.balance >= _MOST * plain:
            self.share = LOSS


Key = tuple[str, int, int]  # drafter, position (0: the first draft), confidence


@dataclass(slots=True)
class Gate:
    """`may_draft` and `length` before a round, `note` after it. Times in seconds."""

    accounts: dict[str, Account] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    _drafts: dict[str, deque[float]] = field(default_factory=dict)
    _rates: dict[Key, Rate] = field(default_factory=dict)
    _declined: dict[str, int] = field(default_factory=dict)  # drafts in a row that were not worth a window
    _stretches: dict[str, float] = field(default_factory=dict)  # windows that follow each other
    _drafter: str = ""  # whose windows follow each other now
    _row: int = 0  # ... how many so far
    _keep: int = 0  # ... and how many of the same length still do
    _average: dict[tuple[str, int], Rate] = field(default_factory=dict)  # by drafter and position
    _over: int = 0  # rounds in a row that took more than is laid to anyone's charge
    _since_window: int = 0
    _plain_due: int = 0  # plain tokens that are to be measured before the next draft
    _last: str = ""  # whose drafts or windows came right before
    _behind: int = 0  # plain tokens that are still laid to its charge

    @property
    def longest(self) -> int:
        """Most drafts worth asking for: a window is at most one token longer than any before."""
        return self.costs.longest

    def draft_cost(self, drafter: str) -> float:
        """Of one draft."""
        times = self._drafts.get(drafter)
        return median(times) if times else 0.0

    def rate(self, key: Key, guess: float) -> Rate:
        """The acceptance rate of drafts of this kind, given that all before were accepted."""
        return self._rates.setdefault(key, Rate(min(0.98, max(0.02, guess))))

    def may_draft(self, drafter: str, behind: int = 0) -> bool:
        """Whether drafts of this kind are worth a try now: costs are known and the account allows it. `behind`: tokens
        that the drafter must read first."""
        plain = self.costs.plain
        if self.costs.since_plain >= _PLAIN_EVERY:
            self._plain_due = _PLAIN_AGAIN
        if plain is None or self.costs.measured(1) < _PLAIN_FIRST or self._plain_due:
            return False
        if drafter == self._drafter:
            return self._account(drafter).balance > self._floor(plain)
        if not self.idle(drafter):
            return True
        first = self.draft_cost(drafter) * (1 + behind / _CATCHES_UP)  # cheap where a reply begins
        return self._account(drafter).balance >= max(plain, min(first, _SAVED_UP * _MOST * plain))

    def _floor(self, plain: float) -> float:
        """Of an account, while windows follow each other."""
        return -(_BROKE * plain + self.costs.change)

    def idle(self, drafter: str) -> bool:
        """Whether its drafts do not pay, as far as known, so that they are only tried now and then."""
        return self._account(drafter).blocked or self._declined.get(drafter, 0) >= _DECLINED

    def _account(self, drafter: str) -> Account:
        return self.accounts.setdefault(drafter, Account(_FIRST * (self.costs.plain or 0.0)))

    def length(self, drafter: str, rates: Sequence[float]) -> int:
        """How many of the drafts with these acceptance rates a window should have; 0: decode plainly.

        `drafter` was asked; that it had none counts as drafts that are not worth a window.
        """
        plain = self.costs.plain
        if plain is None:
            return 0
        if self._stays(drafter):
            self._declined[drafter] = 0
            return min(len(rates), self._settled(drafter))
        best, best_pace = 0, _MARGIN / plain
        for k in range(1, min(len(rates), self.longest) + 1):
            pace = self._pace(rates[:k], drafter)
            if pace > best_pace:
                best, best_pace = k, pace
        doubtful = bool(rates) and self._since_window >= _PROBE_EVERY and rates[0] >= _PROBE_RATE
        if not best and doubtful and self._account(drafter).balance >= _AGAIN * plain:
            best = 1
        self._declined[drafter] = 0 if best else self._declined.get(drafter, 0) + 1
        return best

    def goes_on(self, rates: Sequence[float], next_rate: float, drafter: str) -> bool:
        """Whether one more draft, of a rate like `next_rate`, raises the pace of a window with these."""
        if self._stays(drafter):
            return len(rates) < self._settled(drafter)
        now = self._pace(rates, drafter)
        more = self._pace([*rates, next_rate], drafter, self.draft_cost(drafter))
        return more > now

    @property
    def dear(self) -> bool:
        """Whether windows had better come in stretches; they do while that is not known."""
        return not self.costs.known or self.costs.change > _DEAR * (self.costs.plain or 0.0)

    def _stays(self, drafter: str) -> bool:
        """Whether a stretch of its windows goes on."""
        return drafter == self._drafter and self.costs.length > 1 and self.dear

    def _settled(self, drafter: str) -> int:
        """Drafts of each window of a stretch; 0: it ends."""
        now, plain = self.costs.length - 1, self.costs.plain or 0.0
        if self._keep:
            return now
        rates: list[float] = []
        best, best_pace = 0, _MARGIN / plain
        for k in range(1, self.longest + 1):
            guess = rates[-1] * _LATER if rates else _PROBE_RATE
            rates.append(self._average.get((drafter, k - 1), Rate(guess)).value)
            more = k * self.draft_cost(drafter) + (2 * self.costs.change / _AGAIN_IN if k != now else 0.0)
            if (pace := self._pace(rates, drafter, more, stays=True)) > best_pace:
                best, best_pace = k, pace
        return best

    def _pace(self, rates: Sequence[float], drafter: str, more: float = 0.0, *, stays: bool = False) -> float:
        n = len(rates) + 1
        cost = self.costs.window(n)
        if not cost:
            return 0.0
        if not stays and self.costs.length not in (0, n):  # to there and back
            cost += 2 * self.costs.change / max(1.0, self._stretches.get(drafter, _KEPT))
        tokens, chance = 1.0, 1.0
        for rate in rates:
            chance *= rate
            tokens += chance
        return tokens / (cost + more)

    def drafted(self, drafter: str, drafts: int, seconds: float) -> None:
        """`drafter` was asked for so many drafts, to be used or not."""
        if drafts:
            self._drafts.setdefault(drafter, deque(maxlen=RECENT)).append(seconds / drafts)
            plain = self.costs.plain
            if plain is not None and drafter in self.accounts:
                seconds = min(seconds, _BEHIND * drafts * plain)
                self.accounts[drafter].add(-seconds, seconds, plain)
            self._last, self._behind = drafter, _AFTER  # what plain tokens now cost more is its drafts' doing

    def note(self, *, window: int, seconds: float, drafter: str, got: int, auto: bool = True) -> None:
        """A round is over: a window of so many tokens (1: plain) that took `seconds` and gave `got` tokens. Unless
        `auto`, it was not the gate's choice: it tells of costs, and changes no account.
        """
        usual, before = self.costs.usual(window), self.costs.length
        self.costs.note(window, seconds)
        if self.costs.since_plain == 0:
            self._plain_due = max(0, self._plain_due - 1)
        self._since_window = 0 if window > 1 else self._since_window + 1
        if window > 1:
            self._last, self._behind = drafter, _AFTER
        charged = drafter if window > 1 else self._last if self._behind else ""
        if window == 1 and self._behind:
            self._behind -= 1
        self._follow(drafter if window > 1 else "", window != before)
        plain = self.costs.plain
        if plain is None or usual is None or not auto:
            return
        most = (_BEHIND if window == 1 and charged else _OUTLIER) * usual
        self._over = self._over + 1 if seconds > most else 0
        if self._over <= _HELD_UP:
            seconds = min(seconds, most)
        for name, account in self.accounts.items():
            account.add(got * plain - seconds if name == charged else 0.0, seconds, plain)
        if self._drafter and self._account(self._drafter).balance <= self._floor(plain):
            self._keep = 0

    def _follow(self, drafter: str, changed: bool) -> None:
        """Counts windows that follow each other; `drafter`: whose this one is, "" for a plain token."""
        if drafter != self._drafter:
            if self._drafter:
                usually = self._stretches.get(self._drafter, float(_KEPT))
                self._stretches[self._drafter] = usually + _STRETCH_MEMORY * (self._row - usually)
            self._drafter, self._row = drafter, 0
        self._row += bool(drafter)
        if changed or not drafter:
            self._keep = _KEPT if drafter else 0
        elif self._keep == 0:  # the length was thought over, and stays
            self._keep = _AGAIN_IN
        self._keep = max(0, self._keep - 1)

    def paused(self) -> None:
        """Something else than windows was computed: a prompt."""
        self.costs.paused()
        self._keep = 0

    def judge(self, keys: Sequence[Key], accepted: int) -> None:
        """The drafts of these kinds were verified: `accepted` of them were right, the next one was not."""
        for i, key in enumerate(keys[: accepted + 1]):
            self._rates[key].add(i < accepted)
            self._average.setdefault((key[0], i), Rate(_PROBE_RATE)).add(i < accepted)
