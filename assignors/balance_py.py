"""The balancing core on integers, in plain Python.

It is equivalent to `_balance.pyx`. Every test of one runs on the other, and both return the same arrays. Its goals are
balance, then fewest moves, then nearness.

*Classes.* Partitions with the same subscribers, near the same racks, are interchangeable except for their previous
owner. So the search is over classes of partitions: an edge (class, member) carries a number of partitions. `owned` is
the number of partitions of the class that the member has had. `far` is true if the member would read them from another
rack. A group with equal subscriptions has one class, for ten partitions or a million.

*Balance.* Loads are balanced if no other plan has a lexicographically smaller row of descending loads. That row also
has the least sum of squares and the least sum of pairwise differences. For a set of members, let a be the load they
would have if partitions could go anywhere. If a maximum flow cannot place everything with loads up to a, its minimum
cut gives members that have more in every balanced plan. The classes on that side have no other subscribers. If the flow
cannot bring every member up to a - 1, the cut is a set of members that have less. In both cases the two sides of the
cut can be solved separately. Otherwise loads of a - 1 and a are possible, and no plan is better balanced. Both sides
have members, and a side without classes is not cut again. So at most 4 * min(classes, members) sets are examined, which
bounds the search.

*Moves, then nearness.* A minimum-cost flow solves such a piece. Its cost is (above the low load, new to its reader, far
from its reader), compared in this order. It gives the fewest moves of any balanced plan, and then the fewest far reads.
It is found by shortest augmenting paths, all paths of one length at a time.

With weights, load / weight is balanced, and a is each member's own share.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate

NO_MEMBER = -1
_NEW = 1 << 24
_HIGH = 1 << 56
_UNREACHED = 1 << 62


def settle_claims(size: int, stops: Sequence[int], claims: Sequence[int], generations: Sequence[int]) -> array[int]:
    """The owner of each of `size` partitions by claims; the highest generation wins (KIP-341).

    `claims[stops[m - 1]:stops[m]]` are the partitions that member m claims, in its generation. If two members claim a
    partition in the same highest generation, neither owns it, since the correct claim is unknown.
    """
    owners = array("i", [NO_MEMBER]) * size
    best = array("q", [-(1 << 62)]) * size
    begin = 0
    for member, stop in enumerate(stops):
        generation = generations[member]
        for index in claims[begin:stop]:
            if generation > best[index]:
                best[index] = generation
                owners[index] = member
            elif generation == best[index] and owners[index] != member:
                owners[index] = NO_MEMBER
        begin = stop
    return owners


def count_classes(class_of: Sequence[int], kinds: int) -> array[int]:
    """The number of partitions of each class."""
    supplies = _zeros(kinds)
    for kind in class_of:
        supplies[kind] += 1
    return supplies


def count_owned(
    owners: Sequence[int], class_of: Sequence[int], stops: Sequence[int], edge_members: Sequence[int]
) -> array[int]:
    """The number of partitions of its class that the member of each edge owns.

    Ownership without an edge does not count.
    """
    owned = _zeros(len(edge_members))
    edge_of = _edge_tables(stops, edge_members)
    for owner, kind in zip(owners, class_of, strict=True):
        if owner != NO_MEMBER and (edge := edge_of[kind].get(owner)) is not None:
            owned[edge] += 1
    return owned


def balance(
    supplies: Sequence[int],
    stops: Sequence[int],
    edge_members: Sequence[int],
    owned: Sequence[int],
    far: Sequence[int],
    weights: Sequence[int],
) -> array[int]:
    """The number of partitions that each member gets of each class, as one number per edge.

    `supplies[c]`: partitions in class c, whose edges are `stops[c - 1]:stops[c]`, each to a different member of
    `edge_members`, ascending. `far[e]`: 1 if the member would read the class from another rack, else 0. `weights[m]` >
    0. Every class with a supply needs an edge.
    """
    begin = 0
    for kind, stop in enumerate(stops):
        if supplies[kind] and begin == stop:
            raise ValueError(f"class {kind} has {supplies[kind]} partitions, but no member may read them")
        begin = stop
    network = _Network(supplies, stops, edge_members, owned, far, len(weights))
    pieces = [(list(range(len(supplies))), list(range(len(weights))))]
    number = 0
    while pieces:
        classes, members = pieces.pop()
        for kind in classes:
            network.class_piece[kind] = number
        for member in members:
            network.member_piece[member] = number
        number += 1
        network.take(classes, members)
        network.set_shares(weights)
        if network.is_cut():
            pieces.append(network.side(below=True))
            pieces.append(network.side(below=False))
        else:
            network.take(classes, members)
            network.fill_cheapest()
    return network.flow


def place(
    supplies: Sequence[int],
    stops: Sequence[int],
    edge_members: Sequence[int],
    owned: Sequence[int],
    far: Sequence[int],
    loads: Sequence[int],
) -> array[int]:
    """As `balance`, with the exact load `loads[m]` of each member; nearness comes before moves.

    Raises ValueError if no plan has these loads.
    """
    network = _Network(supplies, stops, edge_members, owned, far, len(loads))
    network.new_price, network.far_price = network.far_price, network.new_price
    network.take(list(range(len(supplies))), list(range(len(loads))))
    network.low[:] = network.high[:] = loads
    network.fill_cheapest()
    if network.load != list(loads):
        raise ValueError("loads that do not add up to the supplies")
    return network.flow


def deal(
    owners: Sequence[int],
    class_of: Sequence[int],
    stops: Sequence[int],
    edge_members: Sequence[int],
    owned: Sequence[int],
    flow: Sequence[int],
) -> array[int]:
    """Return the new owner of each partition, from the numbers of `balance`.

    A member with too many partitions gives up every n-th one. The last ones would be whole topics, because the
    partitions of a topic are adjacent. Free partitions are assigned to the members in turn, for the same reason.
    """
    keep = [min(pair) for pair in zip(owned, flow, strict=True)]
    need = [shall - kept for shall, kept in zip(flow, keep, strict=True)]
    seen = _zeros(len(edge_members))
    edge_of = _edge_tables(stops, edge_members)
    dealt = array("i", [NO_MEMBER]) * len(owners)
    for index, (owner, kind) in enumerate(zip(owners, class_of, strict=True)):
        if owner != NO_MEMBER and (edge := edge_of[kind].get(owner)) is not None:
            place = seen[edge]
            seen[edge] = place + 1
            if (place + 1) * keep[edge] // owned[edge] > place * keep[edge] // owned[edge]:
                dealt[index] = owner
    rings = [
        deque(edge for edge in range(begin, stop) if need[edge])
        for begin, stop in zip([0, *stops], stops, strict=False)
    ]
    for index, kind in enumerate(class_of):
        if dealt[index] == NO_MEMBER:
            ring = rings[kind]
            edge = ring.popleft()
            dealt[index] = edge_members[edge]
            need[edge] -= 1
            if need[edge]:
                ring.append(edge)
    return dealt


def withhold(owners: Sequence[int], previous: Sequence[int], stops: Sequence[int], claims: Sequence[int]) -> array[int]:
    """`owners` without partitions still claimed by another member, for a second round (KIP-429).

    A partition that stays with its settled owner is not withheld because of an outdated claim.
    """
    given = array("i", owners)
    begin = 0
    for member, stop in enumerate(stops):
        for index in claims[begin:stop]:
            if owners[index] not in (member, previous[index]):
                given[index] = NO_MEMBER
        begin = stop
    return given


def group_by_owner(owners: Sequence[int], members: int) -> tuple[array[int], array[int]]:
    """(stops, rows): member m owns the partitions `rows[stops[m - 1]:stops[m]]`, ascending."""
    lists: list[list[int]] = [[] for _ in range(members)]
    for index, owner in enumerate(owners):
        if owner != NO_MEMBER:
            lists[owner].append(index)
    rows = array("i")
    for one in lists:
        rows.extend(one)
    return array("i", accumulate(map(len, lists))), rows


def encode_rows(names: Sequence[bytes], starts: Sequence[int], row: Sequence[int]) -> bytes:
    """One member's partitions in wire format: an array of (topic, array of int32), big-endian.

    `names[t]`: topic t in UTF-8, its partitions being `starts[t] <= index < starts[t + 1]`; `row` ascending.
    """
    parts: list[bytes] = []
    at = topic = topics = 0
    while at < len(row):
        while starts[topic + 1] <= row[at]:
            topic += 1
        begin, base, stop = at, starts[topic], starts[topic + 1]
        while at < len(row) and row[at] < stop:
            at += 1
        numbers = array("i", [index - base for index in row[begin:at]])
        if sys.byteorder == "little":
            numbers.byteswap()
        name = names[topic]
        parts += (struct.pack(">h", len(name)), name, struct.pack(">i", at - begin), numbers.tobytes())
        topics += 1
    return struct.pack(">i", topics) + b"".join(parts)


def decode_rows(data: bytes, at: int, numbers: Mapping[bytes, int], starts: Sequence[int]) -> tuple[array[int], int]:
    """Decode the format of `encode_rows` from offset `at`.

    Returns (partition indexes in wire order, end offset). `numbers`: the index of each known topic in `starts`. Unknown
    topics and partitions are left out. Raises ValueError for truncated data and invalid lengths.
    """
    found = array("i")
    topics, at = _int(data, at, 4)
    for _ in range(topics):
        length, at = _int(data, at, 2)
        name, at = data[at : at + length], at + length
        count, at = _int(data, at, 4)
        if at + 4 * count > len(data):
            raise ValueError(f"{count} partitions in {len(data) - at} bytes")
        row = array("i", data[at : at + 4 * count])
        at += 4 * count
        if sys.byteorder == "little":
            row.byteswap()
        if (topic := numbers.get(name)) is not None:
            start, size = starts[topic], starts[topic + 1] - starts[topic]
            found.extend(start + number for number in row if 0 <= number < size)
    return found, at


def _int(data: bytes, at: int, width: int) -> tuple[int, int]:
    if at + width > len(data):
        raise ValueError(f"a length expected at {at} of {len(data)} bytes")
    value = int.from_bytes(data[at : at + width], "big", signed=True)
    if value < 0:
        raise ValueError(f"a length of {value}")
    return value, at + width


def _zeros(length: int) -> array[int]:
    return array("i", bytes(4 * length))


def _edge_tables(stops: Sequence[int], edge_members: Sequence[int]) -> list[dict[int, int]]:
    begins = [0, *stops]
    return [
        {edge_members[edge]: edge for edge in range(begin, stop)} for begin, stop in zip(begins, stops, strict=False)
    ]


class _Network:
    """Flow network of classes and members. The nodes are the classes, then the members.

    An edge belongs to the current piece if both its ends do, because cuts only remove edges.
    """

    def __init__(
        self,
        supplies: Sequence[int],
        stops: Sequence[int],
        edge_members: Sequence[int],
        owned: Sequence[int],
        far: Sequence[int],
        members: int,
    ) -> None:
        kinds = len(supplies)
        self.supplies, self.owned, self.far, self.edge_members = supplies, owned, far, edge_members
        self.kinds = kinds
        self.begins = [0, *stops]
        self.flow = _zeros(len(edge_members))
        self.left = [0] * kinds
        self.load = [0] * members
        self.low = [0] * members
        self.high = [0] * members
        self.class_piece = [0] * kinds
        self.member_piece = [0] * members
        self.classes: list[int] = []
        self.members: list[int] = []
        self.edge_class = [kind for kind in range(kinds) for _ in range(self.begins[kind], self.begins[kind + 1])]
        self.into: list[list[int]] = [[] for _ in range(members)]
        for edge, member in enumerate(edge_members):
            self.into[member].append(edge)
        self.level = [-1] * (kinds + members)
        self.next = [0] * (kinds + members)
        self.dist = [0] * (kinds + members)
        self.goal = 0
        self.priced = False
        self.new_price, self.far_price = _NEW, 1

    def take(self, classes: list[int], members: list[int]) -> None:
        """Start on a piece, with an empty flow."""
        self.classes, self.members = classes, members
        for kind in classes:
            self.left[kind] = self.supplies[kind]
            for edge in range(self.begins[kind], self.begins[kind + 1]):
                if self._active(edge):
                    self.flow[edge] = 0
        for member in members:
            self.load[member] = 0

    def set_shares(self, weights: Sequence[int]) -> None:
        """Set each member's `low` and `high` by the piece's level.

        They are its largest load strictly below the level, and up to the level. The level is the load / weight reached
        with the last partition, if each goes to the member that is then the lowest.
        """
        total = sum(self.supplies[kind] for kind in self.classes)
        if not total or not self.members:
            for member in self.members:
                self.low[member] = self.high[member] = 0
            return
        heavy = sum(weights[member] for member in self.members)
        first = weights[self.members[0]]
        if all(weights[member] == first for member in self.members):
            above, below = -(-total // len(self.members)), first
        else:
            share = {member: total * weights[member] // heavy for member in self.members}
            above, below = 0, 1
            for member in self.members:
                if share[member] * below > above * weights[member]:
                    above, below = share[member], weights[member]
            for _ in range(total - sum(share.values())):
                best = self.members[0]
                for member in self.members:
                    if (share[member] + 1) * weights[best] < (share[best] + 1) * weights[member]:
                        best = member
                share[best] += 1
                if share[best] * below > above * weights[best]:
                    above, below = share[best], weights[best]
        for member in self.members:
            self.high[member] = above * weights[member] // below
            self.low[member] = (above * weights[member] + below - 1) // below - 1

    def is_cut(self) -> bool:
        """True if some members must take less than `low` or more than `high`; see `side`."""
        self.priced = False
        self._fill(self.low)
        short = [member for member in self.members if self.load[member] < self.low[member]]
        if short:
            self._mark_what_reaches(short)
            return True
        self._fill(self.high)
        return any(self.left[kind] for kind in self.classes)

    def side(self, *, below: bool) -> tuple[list[int], list[int]]:
        """(classes, members) of one side of the cut: a level of -1 is below."""
        return (
            [kind for kind in self.classes if (self.level[kind] < 0) == below],
            [member for member in self.members if (self.level[self.kinds + member] < 0) == below],
        )

    def fill_cheapest(self) -> None:
        """Place everything at the least cost, by successive shortest paths.

        All paths of one length are in one maximum flow.
        """
        self.priced = True
        while any(self.left[kind] for kind in self.classes):
            self._measure()
            if self.goal >= _UNREACHED:
                raise ValueError("no plan has these loads")
            self._fill(self.high)

    def _fill(self, room: list[int]) -> None:
        """Find a maximum flow by blocking flows; with prices, along shortest paths only."""
        while self._set_levels(room):
            for kind in self.classes:
                self.next[kind] = self.begins[kind]
            for member in self.members:
                self.next[self.kinds + member] = 0
            for kind in self.classes:
                if self.left[kind]:
                    self._push(kind, room)

    def _set_levels(self, room: list[int]) -> bool:
        """Set the distances in edges from classes with a remaining supply.

        Returns True if a member with room is reached.
        """
        level = self.level
        for kind in self.classes:
            level[kind] = 0 if self.left[kind] else -1
        for member in self.members:
            level[self.kinds + member] = -1
        queue = deque(kind for kind in self.classes if self.left[kind])
        reached = False
        while queue:
            node = queue.popleft()
            if node < self.kinds:
                for edge in range(self.begins[node], self.begins[node + 1]):
                    target = self.kinds + self.edge_members[edge]
                    if level[target] < 0 and self._forward(edge):
                        level[target] = level[node] + 1
                        queue.append(target)
                        reached = reached or self._room(target - self.kinds, room) > 0
            else:
                for edge in self.into[node - self.kinds]:
                    kind = self.edge_class[edge]
                    if level[kind] < 0 and self._backward(edge):
                        level[kind] = level[node] + 1
                        queue.append(kind)
        return reached

    def _push(self, source: int, room: list[int]) -> None:
        """Push the remaining supply of a class along the levels until it is blocked."""
        path: list[int] = []
        node = source
        while True:
            if node >= self.kinds and (amount := self._room(node - self.kinds, room)):
                amount = min(amount, self.left[source])
                for step, edge in enumerate(path):
                    amount = min(amount, self._backward(edge) if step % 2 else self._forward(edge))
                for step, edge in enumerate(path):
                    self.flow[edge] += -amount if step % 2 else amount
                self.load[node - self.kinds] += amount
                self.left[source] -= amount
                if not self.left[source]:
                    return
                path.clear()
                node = source
                continue
            onward = self._advance(node)
            if onward >= 0:
                path.append(onward)
                node = self.kinds + self.edge_members[onward] if node < self.kinds else self.edge_class[onward]
                continue
            self.level[node] = -2
            if not path:
                return
            back = path.pop()
            node = self.edge_class[back] if node >= self.kinds else self.kinds + self.edge_members[back]

    def _advance(self, node: int) -> int:
        """The next edge from a node to the next level, or -1."""
        below = self.level[node] + 1
        if node < self.kinds:
            for edge in range(self.next[node], self.begins[node + 1]):
                if self.level[self.kinds + self.edge_members[edge]] == below and self._forward(edge):
                    self.next[node] = edge
                    return edge
            self.next[node] = self.begins[node + 1]
        else:
            into = self.into[node - self.kinds]
            for place in range(self.next[node], len(into)):
                if self.level[self.edge_class[into[place]]] == below and self._backward(into[place]):
                    self.next[node] = place
                    return into[place]
            self.next[node] = len(into)
        return -1

    def _measure(self) -> None:
        """Set the cost of the cheapest path from supplies to each node, and to room (`goal`)."""
        dist = self.dist
        for kind in self.classes:
            dist[kind] = 0 if self.left[kind] else _UNREACHED
        for member in self.members:
            dist[self.kinds + member] = _UNREACHED
        queue = deque(kind for kind in self.classes if self.left[kind])
        waiting = set(queue)
        while queue:
            node = queue.popleft()
            waiting.discard(node)
            if node < self.kinds:
                steps = [
                    (self.kinds + self.edge_members[edge], self._price(edge))
                    for edge in range(self.begins[node], self.begins[node + 1])
                    if self._active(edge)
                ]
            else:
                steps = [
                    (self.edge_class[edge], -self._refund(edge))
                    for edge in self.into[node - self.kinds]
                    if self._active(edge) and self.flow[edge]
                ]
            for target, price in steps:
                if dist[node] + price < dist[target]:
                    dist[target] = dist[node] + price
                    if target not in waiting:
                        waiting.add(target)
                        queue.append(target)
        self.goal = _UNREACHED
        for member in self.members:
            if self.load[member] < self.high[member]:
                price = 0 if self.load[member] < self.low[member] else _HIGH
                if dist[self.kinds + member] < _UNREACHED:
                    self.goal = min(self.goal, dist[self.kinds + member] + price)

    def _mark_what_reaches(self, short: list[int]) -> None:
        """Set level -1 for every node that could shed load to a member of `short`, 0 for the others."""
        level = self.level
        for kind in self.classes:
            level[kind] = 0
        for member in self.members:
            level[self.kinds + member] = 0
        for member in short:
            level[self.kinds + member] = -1
        queue = deque(short)
        while queue:
            for edge in self.into[queue.popleft()]:
                kind = self.edge_class[edge]
                if self._active(edge) and level[kind] == 0:
                    level[kind] = -1
                    for out in range(self.begins[kind], self.begins[kind + 1]):
                        member = self.edge_members[out]
                        if self._active(out) and self.flow[out] and level[self.kinds + member] == 0:
                            level[self.kinds + member] = -1
                            queue.append(member)

    def _active(self, edge: int) -> bool:
        return self.class_piece[self.edge_class[edge]] == self.member_piece[self.edge_members[edge]]

    def _price(self, edge: int) -> int:
        """The cost of one more partition on this edge."""
        return (0 if self.flow[edge] < self.owned[edge] else self.new_price) + self.far[edge] * self.far_price

    def _refund(self, edge: int) -> int:
        """The saving of one partition less on this edge."""
        return (self.new_price if self.flow[edge] > self.owned[edge] else 0) + self.far[edge] * self.far_price

    def _forward(self, edge: int) -> int:
        """The partitions that this edge takes at its present price, if it is on a cheapest path."""
        if not self._active(edge):
            return 0
        if not self.priced:
            return _UNREACHED
        kind, member = self.edge_class[edge], self.edge_members[edge]
        if self.dist[kind] + self._price(edge) != self.dist[self.kinds + member]:
            return 0
        spare = self.owned[edge] - self.flow[edge]
        return spare if spare > 0 else _UNREACHED

    def _backward(self, edge: int) -> int:
        """The partitions that this edge returns at its present refund, if it is on a cheapest path."""
        flow = self.flow[edge]
        if not flow or not self._active(edge):
            return 0
        if not self.priced:
            return flow
        kind, member = self.edge_class[edge], self.edge_members[edge]
        if self.dist[self.kinds + member] - self._refund(edge) != self.dist[kind]:
            return 0
        excess = flow - self.owned[edge]
        return excess if excess > 0 else flow

    def _room(self, member: int, room: list[int]) -> int:
        """The number of partitions that this member still takes, if it ends a cheapest path."""
        load = self.load[member]
        if load >= room[member]:
            return 0
        if not self.priced:
            return room[member] - load
        cheap = load < self.low[member]
        if self.dist[self.kinds + member] + (0 if cheap else _HIGH) != self.goal:
            return 0
        return (self.low[member] if cheap else self.high[member]) - load
