"""What collective calls cost a rank: messages, bytes, rounds.

Knows: numbers. Does not know: communicators.
"""

from __future__ import annotations

__all__ = ["Traffic"]


class Traffic:
    """What the calls of one communicator cost this rank.

    Collectives of the MPI library count as the algorithms that fit their sizes: a reduction as recursive doubling, a
    broadcast as a binomial tree.

    reductions : int, reductions of the fixed small vector.
    rounds : int, times that this rank waited for others.
    messages : int, messages that this rank sent.
    bytes_sent : int, bytes of these.
    largest_buffer : int, bytes of the largest buffer for what others send.
    before : tuple, these when the last flush began.
    """

    __slots__ = ("before", "bytes_sent", "largest_buffer", "messages", "reductions", "rounds")

    def __init__(self) -> None:
        self.reductions = self.rounds = self.messages = self.bytes_sent = self.largest_buffer = 0
        self.before = 0, 0, 0, 0

    def begin(self) -> None:
        """A flush begins: what is counted from now on is its own."""
        self.before = self.reductions, self.rounds, self.messages, self.bytes_sent

    def told(self) -> dict[str, dict[str, int]]:
        """For `File.statistics`: since the file was opened, and since the last flush began."""
        names = "reductions", "rounds", "messages", "bytes_sent"
        now = self.reductions, self.rounds, self.messages, self.bytes_sent
        last = {name: n - b for name, n, b in zip(names, now, self.before, strict=True)}
        whole = dict(zip(names, now, strict=True)) | {"largest_buffer": self.largest_buffer}
        return {"communication": whole, "communication_of_flush": last}

    def sent(self, messages: int, nbytes: int) -> None:
        """This rank sends messages of `nbytes` each."""
        self.messages += messages
        self.bytes_sent += messages * nbytes

    def received(self, nbytes: int) -> None:
        """This rank has a buffer for what others send."""
        self.largest_buffer = max(self.largest_buffer, nbytes)
