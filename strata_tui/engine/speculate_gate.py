"""The gate: whether drafting pays, and how many drafts, from what was measured while running. Pure.

Cost: the time of a window of n tokens, and of a draft, as medians of the last ones, so that they follow the
hit rate. Acceptance: by kind of draft and its confidence, so that an overconfident drafter is corrected.
A window of k drafts is worth 1 + a1 + a1 a2 + ... tokens for c(k + 1) + the drafts' time; plain decoding one
token for c(1). A window of another length than the one before costs more (a graph is built for it): so costs are
measured on windows that follow one of their length, what a change costs is measured by itself, a length that was
begun is kept for a while, and to leave it must be worth the change.

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

LOSS, LEAST = 0.01, 0.0025  # share of the time that a drafter may cost on balance: at first, and after failed tries
# In an account, in plain tokens' time: at first, for another try, and at most by the share;
_FIRST, _AGAIN, _MOST = 2.0, 0.5, 2.0
_SAVED, _DEBT = 8.0, 6.0  # at most by what drafts saved, and at least
_OUTLIER = 1.5  # times what is usual: more is not laid to a drafter's charge (nor a plain token's to its credit)
_BEHIND = 5.0  # ... but a plain token right behind a draft or window may cost that much: graphs are built anew for it
_HELD_UP = 2  # rounds in a row: what more of them take is how it is now
_RECENT = 9  # measurements of one kind that count
_PLAIN_FIRST = 3  # plain tokens before the first drafts
_PLAIN_EVERY = 128  # rounds after which plain tokens are measured again
_KEPT = 4  # windows of a length that follow each other at least
_BROKE = 1.0  # plain tokens' time of debt that end them early
_MARGIN = 1.02  # by which a window must look better than plain decoding
_STALE = 256  # rounds after which a window's cost is doubted
_PROBE_EVERY = 16  # rounds without a window after which one is tried although it does not seem to pay ...
_PROBE_RATE = 0.25  # ... with a draft of at least this acceptance rate, and an account that allows it
_DECLINED = 4  # drafts in a row without a window after which the next waits for the account
_SLOPE = 0.1  # cost of one more row, in plain tokens, while none was measured
_MEMORY = 64.0  # drafts that a rate remembers


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
    _windows: dict[int, deque[tuple[int, float]]] = field(default_factory=dict)  # (round, seconds)
    _drafts: dict[str, deque[float]] = field(default_factory=dict)
    _rates: dict[Key, Rate] = field(default_factory=dict)
    _declined: dict[str, int] = field(default_factory=dict)  # drafts in a row that were not worth a window
    _changes: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))  # seconds that a change costs
    _length: int = 0  # of the last window; 0: something else came in between
    _keep: int = 0  # windows of that length that still follow
    _keeper: str = ""  # whose drafts they are of
    _plain: float | None = None
    _over: int = 0  # rounds in a row that took more than is laid to anyone's charge
    _round: int = 0
    _since_plain: int = 0
    _since_window: int = 0
    _last: str = ""  # whose drafts or window came right before

    def window(self, n: int, *, sure: int = 1) -> float | None:
        """Cost of a window of n tokens: measured lately, else drawn through those that were; None: unknown.

        `sure`: fewer measurements of n itself do not count.
        """
        plain = self._plain
        if plain is None or n == 1:
            return plain
        counted = [m for m, times in self._windows.items() if m > 1 and (m != n or len(times) >= sure)]
        fresh = {m: new for m in counted if (new := self._lately(m))}
        # without a fresh one, old ones are better than a guess
        known = fresh or {m: [s for _, s in self._windows[m]] for m in counted}
        # no window costs less than one token, or much more than its tokens one by one
        costs = {1: plain, **{m: min(max(plain, median(times)), _OUTLIER * m * plain) for m, times in known.items()}}
        above = [cost for m, cost in costs.items() if m >= n]
        below = max(m for m in costs if m <= n)
        if below == n or (above and min(above) <= costs[below]):
            return min(above)  # a longer window never costs less
        each = (costs[below] - plain) / (below - 1) if below > 1 else _SLOPE * plain
        drawn = costs[below] + each * (n - below)
        return min([drawn, *above])

    def _lately(self, n: int) -> list[float]:
        return [seconds for at, seconds in self._windows[n] if self._round - at <= _STALE]

    @property
    def longest(self) -> int:
        """Most drafts worth asking for: a window is at most one token longer than any before."""
        return max(self._windows, default=0)

    @property
    def change(self) -> float:
        """What a window of another length than the one before costs more."""
        return max(0.0, median(self._changes)) if self._changes else 0.0

    def draft_cost(self, drafter: str) -> float:
        """Of one draft."""
        times = self._drafts.get(drafter)
        return median(times) if times else 0.0

    def rate(self, key: Key, guess: float) -> Rate:
        """The acceptance rate of drafts of this kind, given that all before were accepted."""
        return self._rates.setdefault(key, Rate(min(0.98, max(0.02, guess))))

    def may_draft(self, drafter: str) -> bool:
        """Whether drafts of this kind are worth a try now: costs are known and the account allows it."""
        plain = self._plain
        if plain is None or len(self._windows[1]) < _PLAIN_FIRST or self._since_plain >= _PLAIN_EVERY:
            return False
        if self._keep and drafter == self._keeper:
            return True
        return not self.idle(drafter) or self._account(drafter).balance >= plain

    def idle(self, drafter: str) -> bool:
        """Whether its drafts do not pay, as far as known, so that they are only tried now and then."""
        return self._account(drafter).blocked or self._declined.get(drafter, 0) >= _DECLINED

    def _account(self, drafter: str) -> Account:
        return self.accounts.setdefault(drafter, Account(_FIRST * (self.window(1) or 0.0)))

    def length(self, drafter: str, rates: Sequence[float]) -> int:
        """How many of the drafts with these acceptance rates a window should have; 0: decode plainly.

        `drafter` was asked; that it had none counts as drafts that are not worth a window.
        """
        plain = self.window(1)
        if plain is None:
            return 0
        if self._keep and drafter == self._keeper and len(rates) >= self._length - 1:
            return self._length - 1
        best, best_pace = 0, _MARGIN / (plain + (self.change if self._length > 1 else 0.0))
        for k in range(1, min(len(rates), self.longest) + 1):
            pace = self._pace(rates[:k])
            if pace > best_pace:
                best, best_pace = k, pace
        doubtful = bool(rates) and self._since_window >= _PROBE_EVERY and rates[0] >= _PROBE_RATE
        if not best and doubtful and self._account(drafter).balance >= _AGAIN * plain:
            best = 1
        self._declined[drafter] = 0 if best else self._declined.get(drafter, 0) + 1
        return best

    def goes_on(self, rates: Sequence[float], next_rate: float, drafter: str) -> bool:
        """Whether one more draft, of a rate like `next_rate`, raises the pace of a window with these."""
        now = self._pace(rates)
        more = self._pace([*rates, next_rate], self.draft_cost(drafter))
        return more > now

    def _pace(self, rates: Sequence[float], more: float = 0.0) -> float:
        n = len(rates) + 1
        cost = self.window(n)
        if not cost:
            return 0.0
        if n != self._length:
            cost += self.change / _KEPT
        tokens, chance = 1.0, 1.0
        for rate in rates:
            chance *= rate
            tokens += chance
        return tokens / (cost + more)

    def drafted(self, drafter: str, drafts: int, seconds: float) -> None:
        """`drafter` was asked for so many drafts, to be used or not."""
        if drafts:
            self._drafts.setdefault(drafter, deque(maxlen=_RECENT)).append(seconds / drafts)
            plain = self.window(1)
            if plain is not None and drafter in self.accounts:
                seconds = min(seconds, _OUTLIER * drafts * max(plain, self.draft_cost(drafter)))
                self.accounts[drafter].add(-seconds, seconds, plain)
            self._last = drafter  # what a plain token now costs more is its draft's doing

    def note(self, *, window: int, seconds: float, drafter: str, got: int) -> None:
        """A round is over: a window of so many tokens (1: plain) that took `seconds` and gave `got` tokens."""
        self._round += 1
        changed = window != self._length
        if changed:
            known = self._windows.get(window)
            if self._length and known:
                self._changes.append(seconds - median(s for _, s in known))
            self._keep, self._keeper = (_KEPT, drafter) if window > 1 else (0, "")
        else:
            self._windows.setdefault(window, deque(maxlen=_RECENT)).append((self._round, seconds))
            self._plain = median(s for _, s in self._windows[1]) if window == 1 else self._plain
        self._keep = max(0, self._keep - 1)
        self._length = window
        self._since_plain = 0 if window == 1 and not changed else self._since_plain + 1
        self._since_window = 0 if window > 1 else self._since_window + 1
        plain, usual = self.window(1), self.window(window, sure=3)
        last, self._last = self._last, drafter if window > 1 else ""
        if plain is None or usual is None:
            return
        usual += self.change if changed and window > 1 else 0.0
        most = (_BEHIND if window == 1 and last else _OUTLIER) * usual
        self._over = self._over + 1 if seconds > most else 0
        if self._over <= _HELD_UP:
            seconds = min(seconds, most)
        charged = drafter if window > 1 else last
        for name, account in self.accounts.items():
            account.add(got * plain - seconds if name == charged else 0.0, seconds, plain)
        if self._keep and self._account(self._keeper).balance < -_BROKE * plain:
            self._keep = 0

    def paused(self) -> None:
        """Something else than windows was computed: what comes next tells nothing of its cost."""
        self._length = self._keep = 0

    def judge(self, keys: Sequence[Key], accepted: int) -> None:
        """The drafts of these kinds were verified: `accepted` of them were right, the next one was not."""
        for i, key in enumerate(keys[: accepted + 1]):
            self._rates[key].add(i < accepted)
