"""Names for the pods of the tests' node, as a cluster's DNS server answers: `python dns.py ADDRESS FILE`.

A line of FILE is `NAME ADDRESS`; it is read for each question. What it lacks does not exist (RFC 1035, 4.1).
"""

import socket
import struct
import sys
from pathlib import Path

HEADER, ANSWER = struct.Struct("!6H"), struct.Struct("!HHHIH4s")
RESPONSE, NO_SUCH_NAME = 0x8580, 3
A, INTERNET, POINTER = 1, 1, 0xC00C
"""Type and class of an IPv4 address; the name of an answer is that of the question, behind the header."""


def answer(question: bytes, names: dict[str, str]) -> bytes:
    """The response to one query."""
    number, *_ = HEADER.unpack_from(question)
    at, labels = HEADER.size, []
    while length := question[at]:
        labels.append(question[at + 1 : at + 1 + length].decode())
        at += 1 + length
    asked = question[HEADER.size : at + 5]
    address = names.get(".".join(labels).lower())
    is_found = address is not None and struct.unpack_from("!H", question, at + 1) == (A,)
    flags = RESPONSE | (0 if address else NO_SUCH_NAME)
    found = ANSWER.pack(POINTER, A, INTERNET, 1, 4, socket.inet_aton(address)) if address and is_found else b""
    return HEADER.pack(number, flags, 1, bool(found), 0, 0) + asked + found


def main() -> None:
    """Answer for ever, from the address that was asked: a resolver takes no answer from another one."""
    address, file = sys.argv[1], Path(sys.argv[2])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        while True:
            question, client = server.recvfrom(512)
            names = dict(line.split() for line in file.read_text().splitlines())
            server.sendto(answer(question, names), client)


if __name__ == "__main__":
    main()
