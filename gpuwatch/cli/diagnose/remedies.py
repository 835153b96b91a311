"""Long remedies that several checks share are told once on a screen, and referred to from then on."""

import re
from collections.abc import Iterator
from itertools import groupby

SENTENCE = re.compile(r"(?<=\.) (?=[A-Z])")
LEAST = 60
"""Characters worth a reference."""


class Remedies:
    """What a reader of one screen has read so far."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}  # sentence -> the check that told it

    def brief(self, id_: str, remedy: str) -> str:
        """The remedy of this check; of several sentences in a row that another one told the first stands for all:
        `Drain the node, then reset the GPU, as for G05.`
        """
        sentences = SENTENCE.split(remedy)
        brief = " ".join(self._sentences(sentences))
        self._told = dict.fromkeys(sentences, id_) | self._told
        return brief

    def _sentences(self, sentences: list[str]) -> Iterator[str]:
        for teller, run in groupby(sentences, self._told.get):
            first, *rest = run
            if teller is not None and len(" ".join(rest)) >= LEAST:
                yield f"{first.removesuffix('.')}, as for {teller}."
            else:
                yield from (first, *rest)
