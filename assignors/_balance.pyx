# cython: freethreading_compatible=True
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The sticky core, compiled. `balance_py.py` is its twin and documents it."""

from array import array

from cpython.array cimport array as c_array
from cpython.array cimport clone
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

ctypedef int64_t cost_t

cdef enum:
    NO_ONE = -1

cdef int64_t NEW = 1 << 24
cdef int64_t HIGH = (<int64_t>1) << 56
cdef int64_t UNREACHED = (<int64_t>1) << 62
cdef c_array _INTS = array("i")
cdef c_array _LONGS = array("q")

NOBODY = NO_ONE


cdef int32_t[::1] _ints(Py_ssize_t length):
    return clone(_INTS, length, True)


cdef int64_t[::1] _longs(Py_ssize_t length):
    return clone(_LONGS, length, True)


cdef int _check_indexes(const int32_t[::1] row, Py_ssize_t low, Py_ssize_t limit, str what) except -1:
    cdef Py_ssize_t i
    for i in range(row.shape[0]):
        if row[i] < low or row[i] >= limit:
            raise ValueError(f"{what}[{i}] is {row[i]}, outside {low} to {limit - 1}")
    return 0


cdef int _check_stops(const int32_t[::1] stops, Py_ssize_t length, str what) except -1:
    cdef Py_ssize_t i
    cdef int32_t before = 0
    for i in range(stops.shape[0]):
        if stops[i] < before:
            raise ValueError(f"{what}[{i}] is {stops[i]}, below its predecessor")
        before = stops[i]
    if before != length:
        raise ValueError(f"{what} ends at {before} instead of {length}")
    return 0


def settle_claims(Py_ssize_t size, const int32_t[::1] stops, const int32_t[::1] claims, const int64_t[::1] generations):
    cdef c_array made = clone(_INTS, size, False)
    cdef int32_t[::1] owners = made
    cdef int64_t[::1] best = clone(_LONGS, size, False)
    cdef Py_ssize_t i, member, begin = 0
    cdef int64_t generation
    cdef int32_t index
    if generations.shape[0] != stops.shape[0]:
        raise ValueError(f"{stops.shape[0]} members with {generations.shape[0]} generations")
    _check_stops(stops, claims.shape[0], "stops")
    _check_indexes(claims, 0, size, "claims")
    for i in range(size):
        owners[i] = NO_ONE
        best[i] = -UNREACHED
    for member in range(stops.shape[0]):
        generation = generations[member]
        for i in range(begin, stops[member]):
            index = claims[i]
            if generation > best[index]:
                best[index] = generation
                owners[index] = <int32_t>member
            elif generation == best[index] and owners[index] != member:
                owners[index] = NO_ONE
        begin = stops[member]
    return made


def count_classes(const int32_t[::1] class_of, Py_ssize_t kinds):
    cdef c_array made = clone(_INTS, kinds, True)
    cdef int32_t[::1] supplies = made
    cdef Py_ssize_t i
    _check_indexes(class_of, 0, kinds, "class_of")
    for i in range(class_of.shape[0]):
        supplies[class_of[i]] += 1
    return made


cdef inline Py_ssize_t _edge(const int32_t[::1] edge_members, Py_ssize_t begin, Py_ssize_t stop, int32_t member) noexcept:
    """The place of a member among a class's ascending edges, or -1."""
    cdef Py_ssize_t low = begin, high = stop, middle
    # In a class that every member may read, an index is the member's number, which saves the searches.
    if member < stop - begin and edge_members[begin + member] == member:
        return begin + member
    while low < high:
        middle = (low + high) >> 1
        if edge_members[middle] < member:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and edge_members[low] == member else -1


def count_owned(
    const int32_t[::1] owners, const int32_t[::1] class_of, const int32_t[::1] stops, const int32_t[::1] edge_members
):
    cdef c_array made = clone(_INTS, edge_members.shape[0], True)
    cdef int32_t[::1] owned = made
    cdef Py_ssize_t i, edge
    cdef int32_t kind
    if owners.shape[0] != class_of.shape[0]:
        raise ValueError(f"{owners.shape[0]} owners for {class_of.shape[0]} partitions")
    _check_stops(stops, edge_members.shape[0], "stops")
    _check_indexes(class_of, 0, stops.shape[0], "class_of")
    for i in range(owners.shape[0]):
        if owners[i] >= 0:
            kind = class_of[i]
            edge = _edge(edge_members, stops[kind - 1] if kind else 0, stops[kind], owners[i])
            if edge >= 0:
                owned[edge] += 1
    return made


cdef _check_edges(supplies, const int32_t[::1] stops, const int32_t[::1] edge_members, owned, far, Py_ssize_t members):
    if len(stops) != len(supplies):
        raise ValueError(f"{len(supplies)} classes with {len(stops)} rows of edges")
    if len(owned) != len(edge_members) or len(far) != len(edge_members):
        raise ValueError("owned and far need one number for each edge")
    _check_stops(stops, edge_members.shape[0], "stops")
    _check_indexes(edge_members, 0, members, "edge_members")
    _check_indexes(supplies, 0, (1 << 31) - 1, "supplies")


def balance(
    const int32_t[::1] supplies,
    const int32_t[::1] stops,
    const int32_t[::1] edge_members,
    const int32_t[::1] owned,
    const int32_t[::1] far,
    const int32_t[::1] weights,
):
    cdef Py_ssize_t kinds = supplies.shape[0], members = weights.shape[0], number = 0, i
    cdef list pieces
    _check_edges(supplies, stops, edge_members, owned, far, members)
    _check_indexes(weights, 1, 1 << 30, "weights")
    for i in range(kinds):
        if supplies[i] and stops[i] == (stops[i - 1] if i else 0):
            raise ValueError(f"class {i} has {supplies[i]} partitions, but no member may read them")
    network = _Network(supplies, stops, edge_members, owned, far, members)
    pieces = [(array("i", range(kinds)), array("i", range(members)))]
    while pieces:
        classes, some = pieces.pop()
        network.take(classes, some, number)
        number += 1
        network.set_shares(weights)
        if network.is_cut():
            pieces.append(network.side(True))
            pieces.append(network.side(False))
        else:
            network.place_nothing()
            network.fill_cheapest()
    return network.made


def place(
    const int32_t[::1] supplies,
    const int32_t[::1] stops,
    const int32_t[::1] edge_members,
    const int32_t[::1] owned,
    const int32_t[::1] far,
    const int32_t[::1] loads,
):
    cdef Py_ssize_t kinds = supplies.shape[0], members = loads.shape[0]
    _check_edges(supplies, stops, edge_members, owned, far, members)
    _check_indexes(loads, 0, (1 << 31) - 1, "loads")
    network = _Network(supplies, stops, edge_members, owned, far, members)
    network.place_with(loads, array("i", range(kinds)), array("i", range(members)))
    return network.made


def deal(
    const int32_t[::1] owners,
    const int32_t[::1] class_of,
    const int32_t[::1] stops,
    const int32_t[::1] edge_members,
    const int32_t[::1] owned,
    const int32_t[::1] flow,
):
    cdef Py_ssize_t size = owners.shape[0], edges = edge_members.shape[0], kinds = stops.shape[0]
    cdef c_array made = clone(_INTS, size, False)
    cdef int32_t[::1] dealt = made
    cdef int32_t[::1] keep = _ints(edges)
    cdef int32_t[::1] need = _ints(edges)
    cdef int32_t[::1] seen = _ints(edges)
    cdef int32_t[::1] after = _ints(edges)
    cdef int32_t[::1] last = _ints(kinds)
    cdef int64_t[::1] wanted = _longs(kinds)
    cdef Py_ssize_t i, edge, begin, first
    cdef int64_t place
    cdef int32_t kind, before
    if class_of.shape[0] != size or owned.shape[0] != edges or flow.shape[0] != edges:
        raise ValueError("rows of different lengths")
    _check_stops(stops, edges, "stops")
    _check_indexes(class_of, 0, kinds, "class_of")
    for edge in range(edges):
        keep[edge] = min(owned[edge], flow[edge])
        need[edge] = flow[edge] - keep[edge]
    for i in range(size):
        dealt[i] = NO_ONE
        if owners[i] >= 0:
            kind = class_of[i]
            edge = _edge(edge_members, stops[kind - 1] if kind else 0, stops[kind], owners[i])
            if edge >= 0:
                place = seen[edge]
                seen[edge] += 1
                if owned[edge] < seen[edge]:
                    raise ValueError("owned counts fewer partitions than there are")
                if (place + 1) * keep[edge] // owned[edge] > place * keep[edge] // owned[edge]:
                    dealt[i] = owners[i]
        if dealt[i] == NO_ONE:
            wanted[class_of[i]] += 1
    # A ring of the edges that still need something; `last` is the one before the next to be served.
    begin = 0
    for kind in range(kinds):
        first = -1
        last[kind] = NO_ONE
        for edge in range(begin, stops[kind]):
            if need[edge] > 0:
                wanted[kind] -= need[edge]
                if first < 0:
                    first = edge
                else:
                    after[last[kind]] = <int32_t>edge
                last[kind] = <int32_t>edge
        if first >= 0:
            after[last[kind]] = <int32_t>first
        if wanted[kind] != 0:
            raise ValueError(f"class {kind}: the flow leaves {wanted[kind]} partitions without an owner")
        begin = stops[kind]
    for i in range(size):
        if dealt[i] == NO_ONE:
            kind = class_of[i]
            before = last[kind]
            edge = after[before]
            dealt[i] = edge_members[edge]
            need[edge] -= 1
            if need[edge]:
                last[kind] = <int32_t>edge
            else:
                after[before] = after[edge]
    return made


def withhold(
    const int32_t[::1] owners, const int32_t[::1] previous, const int32_t[::1] stops, const int32_t[::1] claims
):
    cdef Py_ssize_t size = owners.shape[0], member, i, begin = 0
    cdef c_array made = clone(_INTS, size, False)
    cdef int32_t[::1] given = made
    cdef int32_t index
    if previous.shape[0] != size:
        raise ValueError("rows of different lengths")
    _check_stops(stops, claims.shape[0], "stops")
    _check_indexes(claims, 0, size, "claims")
    for i in range(size):
        given[i] = owners[i]
    for member in range(stops.shape[0]):
        for i in range(begin, stops[member]):
            index = claims[i]
            if owners[index] != member and owners[index] != previous[index]:
                given[index] = NO_ONE
        begin = stops[member]
    return made


def group_by_owner(const int32_t[::1] owners, Py_ssize_t members):
    cdef c_array made_stops = clone(_INTS, members, True)
    cdef int32_t[::1] stops = made_stops
    cdef int32_t[::1] at
    cdef c_array made_rows
    cdef int32_t[::1] rows
    cdef Py_ssize_t i
    cdef int32_t total = 0, count
    _check_indexes(owners, NO_ONE, members, "owners")
    for i in range(owners.shape[0]):
        if owners[i] >= 0:
            stops[owners[i]] += 1
    at = _ints(members)
    for i in range(members):
        at[i] = total
        total += stops[i]
        stops[i] = total
    made_rows = clone(_INTS, total, False)
    rows = made_rows
    for i in range(owners.shape[0]):
        if owners[i] >= 0:
            rows[at[owners[i]]] = <int32_t>i
            at[owners[i]] += 1
    return made_stops, made_rows


cdef inline uint8_t* _put(uint8_t* at, int64_t value, int width) noexcept:
    cdef int i
    for i in range(width):
        at[i] = <uint8_t>((value >> (8 * (width - 1 - i))) & 0xFF)
    return at + width


def encode_rows(list names, const int32_t[::1] starts, const int32_t[::1] row):
    cdef Py_ssize_t topics = len(names), length = row.shape[0], at = 0, topic = 0, begin, size = 4, used = 0
    cdef bytes made, name
    cdef uint8_t* to
    if starts.shape[0] != topics + 1:
        raise ValueError(f"{topics} topics with {starts.shape[0]} starts")
    if length:
        _check_indexes(row, starts[0], starts[topics], "row")
    while at < length:
        while starts[topic + 1] <= row[at]:
            topic += 1
        begin = at
        while at < length and row[at] < starts[topic + 1]:
            if row[at] < starts[topic]:
                raise ValueError(f"row[{at}] is not ascending")
            at += 1
        size += 6 + len(<bytes>names[topic]) + 4 * (at - begin)
        used += 1
    made = PyBytes_FromStringAndSize(NULL, size)
    to = _put(<uint8_t*>PyBytes_AS_STRING(made), used, 4)
    at = topic = 0
    while at < length:
        while starts[topic + 1] <= row[at]:
            topic += 1
        begin = at
        while at < length and row[at] < starts[topic + 1]:
            at += 1
        name = <bytes>names[topic]
        to = _put(to, len(name), 2)
        memcpy(to, PyBytes_AS_STRING(name), len(name))
        to = _put(to + len(name), at - begin, 4)
        for begin in range(begin, at):
            to = _put(to, row[begin] - starts[topic], 4)
    return made


cdef inline int64_t _get(const uint8_t* data, int width) noexcept:
    cdef int64_t value = -1 if data[0] & 0x80 else 0
    cdef int i
    for i in range(width):
        value = (value << 8) | data[i]
    return value


cdef int64_t _length(bytes data, Py_ssize_t at, int width) except -1:
    cdef int64_t value
    if at + width > len(data):
        raise ValueError(f"a length expected at {at} of {len(data)} bytes")
    value = _get(<const uint8_t*>PyBytes_AS_STRING(data) + at, width)
    if value < 0:
        raise ValueError(f"a length of {value}")
    return value


def decode_rows(bytes data, Py_ssize_t at, dict numbers, const int32_t[::1] starts):
    cdef const uint8_t* bytes_at = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = len(data), used = 0, topic, i
    cdef int64_t topics, length, count, number
    cdef c_array made = clone(_INTS, size // 4, False)
    cdef int32_t[::1] found = made
    if at < 0:
        raise ValueError(f"offset {at}")
    topics = _length(data, at, 4)
    at += 4
    while topics:
        topics -= 1
        length = _length(data, at, 2)
        at += 2
        name = data[at : at + length]
        at += length
        count = _length(data, at, 4)
        at += 4
        if count > (size - at) // 4:
            raise ValueError(f"{count} partitions in {size - at} bytes")
        topic = numbers.get(name, -1)
        if topic >= 0:
            if topic + 1 >= starts.shape[0]:
                raise ValueError(f"topic {topic} of {starts.shape[0] - 1}")
            for i in range(count):
                number = _get(bytes_at + at + 4 * i, 4)
                if 0 <= number < starts[topic + 1] - starts[topic]:
                    found[used] = <int32_t>(starts[topic] + number)
                    used += 1
        at += 4 * count
    found = None
    return made[:used], at


cdef class _Network:
    cdef Py_ssize_t kinds
    cdef const int32_t[::1] supplies
    cdef const int32_t[::1] owned
    cdef const int32_t[::1] far
    cdef const int32_t[::1] edge_members
    cdef public c_array made
    cdef int32_t[::1] flow
    cdef int32_t[::1] begins
    cdef int32_t[::1] edge_class
    cdef int32_t[::1] into_begins
    cdef int32_t[::1] into
    cdef int32_t[::1] left
    cdef int32_t[::1] load
    cdef int32_t[::1] low
    cdef int32_t[::1] high
    cdef int32_t[::1] class_piece
    cdef int32_t[::1] member_piece
    cdef int32_t[::1] classes
    cdef int32_t[::1] members
    cdef int32_t[::1] level
    cdef int32_t[::1] next
    cdef int32_t[::1] path
    cdef int32_t[::1] queue
    cdef int32_t[::1] waiting
    cdef int64_t[::1] dist
    cdef int64_t goal
    cdef bint priced
    cdef int64_t new_price
    cdef int64_t far_price

    def __init__(
        self,
        const int32_t[::1] supplies,
        const int32_t[::1] stops,
        const int32_t[::1] edge_members,
        const int32_t[::1] owned,
        const int32_t[::1] far,
        Py_ssize_t members,
    ):
        cdef Py_ssize_t kinds = supplies.shape[0], edges = edge_members.shape[0], nodes = kinds + members
        cdef Py_ssize_t kind, edge, member
        cdef int32_t[::1] at
        self.kinds = kinds
        self.supplies = supplies
        self.owned = owned
        self.far = far
        self.edge_members = edge_members
        self.made = clone(_INTS, edges, True)
        self.flow = self.made
        self.begins = _ints(kinds + 1)
        self.edge_class = _ints(edges)
        for kind in range(kinds):
            self.begins[kind + 1] = stops[kind]
            for edge in range(self.begins[kind], stops[kind]):
                self.edge_class[edge] = <int32_t>kind
        self.into_begins = _ints(members + 1)
        self.into = _ints(edges)
        for edge in range(edges):
            self.into_begins[edge_members[edge] + 1] += 1
        for member in range(members):
            self.into_begins[member + 1] += self.into_begins[member]
        at = _ints(members)
        for edge in range(edges):
            member = edge_members[edge]
            self.into[self.into_begins[member] + at[member]] = <int32_t>edge
            at[member] += 1
        self.left = _ints(kinds)
        self.load = _ints(members)
        self.low = _ints(members)
        self.high = _ints(members)
        self.class_piece = _ints(kinds)
        self.member_piece = _ints(members)
        self.level = _ints(nodes)
        self.next = _ints(nodes)
        self.path = _ints(nodes)
        self.queue = _ints(nodes + 1)
        self.waiting = _ints(nodes)
        self.dist = _longs(nodes)
        self.goal = 0
        self.priced = False
        self.new_price = NEW
        self.far_price = 1

    cdef place_with(self, const int32_t[::1] loads, int32_t[::1] classes, int32_t[::1] members):
        cdef Py_ssize_t member
        self.new_price = 1
        self.far_price = NEW
        self.take(classes, members, 0)
        for member in range(loads.shape[0]):
            self.low[member] = self.high[member] = loads[member]
        self.fill_cheapest()
        for member in range(loads.shape[0]):
            if self.load[member] != loads[member]:
                raise ValueError("loads that do not add up to the supplies")

    cdef take(self, int32_t[::1] classes, int32_t[::1] members, Py_ssize_t number):
        cdef Py_ssize_t i
        self.classes = classes
        self.members = members
        for i in range(classes.shape[0]):
            self.class_piece[classes[i]] = <int32_t>number
        for i in range(members.shape[0]):
            self.member_piece[members[i]] = <int32_t>number
        self.place_nothing()

    cdef place_nothing(self):
        cdef Py_ssize_t i, edge
        cdef int32_t kind
        for i in range(self.classes.shape[0]):
            kind = self.classes[i]
            self.left[kind] = self.supplies[kind]
            for edge in range(self.begins[kind], self.begins[kind + 1]):
                if self.active(edge):
                    self.flow[edge] = 0
        for i in range(self.members.shape[0]):
            self.load[self.members[i]] = 0

    cdef set_shares(self, const int32_t[::1] weights):
        cdef Py_ssize_t i, count = self.members.shape[0]
        cdef int64_t total = 0, heavy = 0, above = 0, below = 1, rest
        cdef int32_t member, best
        cdef int32_t[::1] share
        cdef bint even = True
        for i in range(self.classes.shape[0]):
            total += self.supplies[self.classes[i]]
        if not total or not count:
            for i in range(count):
                self.low[self.members[i]] = self.high[self.members[i]] = 0
            return
        for i in range(count):
            heavy += weights[self.members[i]]
            even = even and weights[self.members[i]] == weights[self.members[0]]
        if even:
            above = (total + count - 1) // count
            below = weights[self.members[0]]
        else:
            share = self.load  # all zero at this point, and zeroed again below
            rest = total
            for i in range(count):
                member = self.members[i]
                share[member] = <int32_t>(total * weights[member] // heavy)
                rest -= share[member]
                if share[member] * below > above * weights[member]:
                    above = share[member]
                    below = weights[member]
            while rest:
                rest -= 1
                best = self.members[0]
                for i in range(count):
                    member = self.members[i]
                    if <int64_t>(share[member] + 1) * weights[best] < <int64_t>(share[best] + 1) * weights[member]:
                        best = member
                share[best] += 1
                if share[best] * below > above * weights[best]:
                    above = share[best]
                    below = weights[best]
            for i in range(count):
                share[self.members[i]] = 0
        for i in range(count):
            member = self.members[i]
            self.high[member] = <int32_t>(above * weights[member] // below)
            self.low[member] = <int32_t>((above * weights[member] + below - 1) // below - 1)

    cdef bint is_cut(self):
        cdef Py_ssize_t i
        cdef bint short = False
        self.priced = False
        self.fill(self.low)
        for i in range(self.members.shape[0]):
            if self.load[self.members[i]] < self.low[self.members[i]]:
                short = True
        if short:
            self.mark_what_reaches_the_short()
            return True
        self.fill(self.high)
        return self.any_left()

    cdef bint any_left(self) noexcept:
        cdef Py_ssize_t i
        for i in range(self.classes.shape[0]):
            if self.left[self.classes[i]]:
                return True
        return False

    cdef side(self, bint below):
        cdef Py_ssize_t i
        classes = array("i")
        members = array("i")
        for i in range(self.classes.shape[0]):
            if (self.level[self.classes[i]] < 0) == below:
                classes.append(self.classes[i])
        for i in range(self.members.shape[0]):
            if (self.level[self.kinds + self.members[i]] < 0) == below:
                members.append(self.members[i])
        return classes, members

    cdef fill_cheapest(self):
        self.priced = True
        while self.any_left():
            self.measure()
            if self.goal >= UNREACHED:
                raise ValueError("no plan has these loads")
            self.fill(self.high)

    cdef fill(self, int32_t[::1] room):
        cdef Py_ssize_t i
        cdef int32_t kind, member
        while self.set_levels(room):
            for i in range(self.classes.shape[0]):
                kind = self.classes[i]
                self.next[kind] = self.begins[kind]
            for i in range(self.members.shape[0]):
                member = self.members[i]
                self.next[self.kinds + member] = self.into_begins[member]
            for i in range(self.classes.shape[0]):
                if self.left[self.classes[i]]:
                    self.push(self.classes[i], room)

    cdef bint set_levels(self, int32_t[::1] room) noexcept:
        cdef Py_ssize_t i, edge, place, head = 0, tail = 0, node, target
        cdef bint reached = False
        for i in range(self.members.shape[0]):
            self.level[self.kinds + self.members[i]] = -1
        for i in range(self.classes.shape[0]):
            if self.left[self.classes[i]]:
                self.level[self.classes[i]] = 0
                self.queue[tail] = self.classes[i]
                tail += 1
            else:
                self.level[self.classes[i]] = -1
        while head < tail:
            node = self.queue[head]
            head += 1
            if node < self.kinds:
                for edge in range(self.begins[node], self.begins[node + 1]):
                    target = self.kinds + self.edge_members[edge]
                    if self.level[target] < 0 and self.forward(edge):
                        self.level[target] = self.level[node] + 1
                        self.queue[tail] = <int32_t>target
                        tail += 1
                        if not reached and self.room(target - self.kinds, room) > 0:
                            reached = True
            else:
                for place in range(self.into_begins[node - self.kinds], self.into_begins[node - self.kinds + 1]):
                    edge = self.into[place]
                    target = self.edge_class[edge]
                    if self.level[target] < 0 and self.backward(edge):
                        self.level[target] = self.level[node] + 1
                        self.queue[tail] = <int32_t>target
                        tail += 1
        return reached

    cdef void push(self, Py_ssize_t source, int32_t[::1] room) noexcept:
        cdef Py_ssize_t node = source, length = 0, step
        cdef int64_t amount, onward
        cdef int32_t edge
        while True:
            amount = self.room(node - self.kinds, room) if node >= self.kinds else 0
            if amount:
                amount = min(amount, <int64_t>self.left[source])
                for step in range(length):
                    edge = self.path[step]
                    amount = min(amount, self.backward(edge) if step & 1 else self.forward(edge))
                for step in range(length):
                    if step & 1:
                        self.flow[self.path[step]] -= <int32_t>amount
                    else:
                        self.flow[self.path[step]] += <int32_t>amount
                self.load[node - self.kinds] += <int32_t>amount
                self.left[source] -= <int32_t>amount
                if not self.left[source]:
                    return
                length = 0
                node = source
                continue
            onward = self.advance(node)
            if onward >= 0:
                self.path[length] = <int32_t>onward
                length += 1
                node = self.kinds + self.edge_members[onward] if node < self.kinds else self.edge_class[onward]
                continue
            self.level[node] = -2
            if not length:
                return
            length -= 1
            edge = self.path[length]
            node = self.edge_class[edge] if node >= self.kinds else self.kinds + self.edge_members[edge]

    cdef int64_t advance(self, Py_ssize_t node) noexcept:
        cdef int32_t below = self.level[node] + 1
        cdef Py_ssize_t edge, place, stop
        if node < self.kinds:
            stop = self.begins[node + 1]
            for edge in range(self.next[node], stop):
                if self.level[self.kinds + self.edge_members[edge]] == below and self.forward(edge):
                    self.next[node] = <int32_t>edge
                    return edge
        else:
            stop = self.into_begins[node - self.kinds + 1]
            for place in range(self.next[node], stop):
                edge = self.into[place]
                if self.level[self.edge_class[edge]] == below and self.backward(edge):
                    self.next[node] = <int32_t>place
                    return edge
        self.next[node] = <int32_t>stop
        return -1

    cdef void measure(self) noexcept:
        """The queue is a ring: a node waits in it at most once, so it never holds more than there are nodes."""
        cdef Py_ssize_t i, edge, place, node, head = 0, tail = 0, ring = self.queue.shape[0]
        cdef int64_t price
        cdef int32_t member
        for i in range(self.members.shape[0]):
            self.dist[self.kinds + self.members[i]] = UNREACHED
        for i in range(self.classes.shape[0]):
            node = self.classes[i]
            self.dist[node] = UNREACHED
            if self.left[node]:
                self.dist[node] = 0
                self.waiting[node] = 1
                self.queue[tail] = <int32_t>node
                tail += 1
        while head != tail:
            node = self.queue[head]
            head = head + 1 if head + 1 < ring else 0
            self.waiting[node] = 0
            if node < self.kinds:
                for edge in range(self.begins[node], self.begins[node + 1]):
                    if self.active(edge):
                        tail = self.relax(node, self.kinds + self.edge_members[edge], self.price(edge), tail)
            else:
                for place in range(self.into_begins[node - self.kinds], self.into_begins[node - self.kinds + 1]):
                    edge = self.into[place]
                    if self.flow[edge] and self.active(edge):
                        tail = self.relax(node, self.edge_class[edge], -self.refund(edge), tail)
        self.goal = UNREACHED
        for i in range(self.members.shape[0]):
            member = self.members[i]
            if self.load[member] < self.high[member] and self.dist[self.kinds + member] < UNREACHED:
                price = self.dist[self.kinds + member] + (0 if self.load[member] < self.low[member] else HIGH)
                self.goal = min(self.goal, price)

    cdef inline Py_ssize_t relax(self, Py_ssize_t node, Py_ssize_t target, int64_t price, Py_ssize_t tail) noexcept:
        if self.dist[node] + price < self.dist[target]:
            self.dist[target] = self.dist[node] + price
            if not self.waiting[target]:
                self.waiting[target] = 1
                self.queue[tail] = <int32_t>target
                return tail + 1 if tail + 1 < self.queue.shape[0] else 0
        return tail

    cdef void mark_what_reaches_the_short(self) noexcept:
        cdef Py_ssize_t i, place, out, head = 0, tail = 0
        cdef int32_t member, kind, edge
        for i in range(self.classes.shape[0]):
            self.level[self.classes[i]] = 0
        for i in range(self.members.shape[0]):
            member = self.members[i]
            self.level[self.kinds + member] = 0
            if self.load[member] < self.low[member]:
                self.level[self.kinds + member] = -1
                self.queue[tail] = member
                tail += 1
        while head < tail:
            member = self.queue[head]
            head += 1
            for place in range(self.into_begins[member], self.into_begins[member + 1]):
                edge = self.into[place]
                kind = self.edge_class[edge]
                if self.level[kind] == 0 and self.active(edge):
                    self.level[kind] = -1
                    for out in range(self.begins[kind], self.begins[kind + 1]):
                        member = self.edge_members[out]
                        if self.flow[out] and self.level[self.kinds + member] == 0 and self.active(out):
                            self.level[self.kinds + member] = -1
                            self.queue[tail] = member
                            tail += 1

    cdef inline bint active(self, Py_ssize_t edge) noexcept:
        return self.class_piece[self.edge_class[edge]] == self.member_piece[self.edge_members[edge]]

    cdef inline int64_t price(self, Py_ssize_t edge) noexcept:
        return (0 if self.flow[edge] < self.owned[edge] else self.new_price) + self.far[edge] * self.far_price

    cdef inline int64_t refund(self, Py_ssize_t edge) noexcept:
        return (self.new_price if self.flow[edge] > self.owned[edge] else 0) + self.far[edge] * self.far_price

    cdef inline int64_t forward(self, Py_ssize_t edge) noexcept:
        cdef int64_t spare
        if not self.active(edge):
            return 0
        if not self.priced:
            return UNREACHED
        if self.dist[self.edge_class[edge]] + self.price(edge) != self.dist[self.kinds + self.edge_members[edge]]:
            return 0
        spare = self.owned[edge] - self.flow[edge]
        return spare if spare > 0 else UNREACHED

    cdef inline int64_t backward(self, Py_ssize_t edge) noexcept:
        cdef int64_t excess
        if not self.flow[edge] or not self.active(edge):
            return 0
        if not self.priced:
            return self.flow[edge]
        if self.dist[self.kinds + self.edge_members[edge]] - self.refund(edge) != self.dist[self.edge_class[edge]]:
            return 0
        excess = self.flow[edge] - self.owned[edge]
        return excess if excess > 0 else self.flow[edge]

    cdef inline int64_t room(self, Py_ssize_t member, int32_t[::1] room) noexcept:
        cdef int32_t load = self.load[member]
        cdef bint cheap
        if load >= room[member]:
            return 0
        if not self.priced:
            return room[member] - load
        cheap = load < self.low[member]
        if self.dist[self.kinds + member] + (0 if cheap else HIGH) != self.goal:
            return 0
        return (self.low[member] if cheap else self.high[member]) - load
