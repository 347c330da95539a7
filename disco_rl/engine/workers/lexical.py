"""BM25 over the passages of a context, and the share of an instruction that a passage covers."""

import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

# Words; each Chinese or Japanese character is a word of its own.
_CJK = "\u3040-\u30ff\u3400-\u9fff"
_WORDS = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_POSSESSIVE = re.compile(r"['’]s\b")

# Lucene's English stop words, and those that only word a request. A request's own verbs must not
# count as content: no passage holds them, so they'd lower the coverage of every one.
_STOP = frozenset(
    _WORDS.findall(
        """a an and are as at be but by for if in into is it no not of on or such that the their
    then there these they this to was will with
    who whom whose which what when where why how does did do has have had been were its he she his
    her him them from about please find identify locate determine state tell give list look lookup
    search report extract get provide name named called fact information mention mentioned say says
    """
    )
)
_LOCAL = threading.local()

NAME_WEIGHT = 2.0
"""What a name's word counts for beside another word of the same rarity: a lookup is about its
entity, and the words of its relation have synonyms. Ours; chosen on validation data."""


IDF_CAP = 6.5
"""The most that any word counts for: the idf of a word in one passage of a thousand."""

REGION, LOCAL = 1000, 5
"""A longer context is weighed as `REGION` passages of it. A relation's words stand in the same
share of passages however long it is, and a name in ever fewer: whatever holds the name would pass
for the fact from some length on (recipes/flat_length). So a word counts as in its share of a
region, or where that is less, in the passages that hold it, up to `LOCAL`: a name's stand together.
"""


def terms(text: str) -> list[str]:
    """Stemmed content words of `text`, in order. Snowball's English stemmer."""
    words = _WORDS.findall(_POSSESSIVE.sub("", text).lower())
    stemmer = getattr(_LOCAL, "stemmer", None)
    if stemmer is None:  # PyStemmer's objects aren't safe across threads
        import Stemmer

        stemmer = _LOCAL.stemmer = Stemmer.Stemmer("english")
    return stemmer.stemWords([word for word in words if word not in _STOP])


def name_terms(text: str) -> set[str]:
    """Terms of the words that are written like names: capitalised, or numbers."""
    words = [word for word in _WORDS.findall(text) if word[0].isupper() or word[0].isdigit()]
    return set(terms(" ".join(words)))


@dataclass(frozen=True)
class Match:
    """How well each passage of a context matches an instruction: two float32 arrays.

    `rank` orders the passages. `score` is in [0, 1] and, unlike a BM25 score, compares across
    contexts, so it decides what is "nothing".
    """

    rank: np.ndarray
    score: np.ndarray

    @cached_property
    def best(self) -> float:
        """The best score in the context; 0 where it has no passages."""
        return float(self.score.max(initial=0.0))


class LexicalIndex:
    """A `bm25s` index of passages; idf is the context's."""

    def __init__(self, index: Any, n_passages: int):
        self._index = index
        self.n_passages = n_passages

    @classmethod
    def build(cls, texts: Sequence[str]) -> "LexicalIndex":
        import bm25s

        logging.getLogger("bm25s").setLevel(logging.WARNING)
        vocabulary: dict[str, int] = {}
        ids = [[vocabulary.setdefault(t, len(vocabulary)) for t in terms(text)] for text in texts]
        if not vocabulary:
            return cls(None, len(texts))
        index = bm25s.BM25(method="lucene")
        tokenized = bm25s.tokenization.Tokenized(ids=ids, vocab=vocabulary)
        index.index(tokenized, show_progress=False)
        return cls(index, len(texts))

    def save(self, folder: Path) -> None:
        if self._index is not None:
            self._index.save(str(folder), show_progress=False)

    @classmethod
    def load(cls, folder: Path, n_passages: int) -> "LexicalIndex":
        import bm25s

        if not (folder / "params.index.json").exists():
            return cls(None, n_passages)
        return cls(bm25s.BM25.load(str(folder), show_progress=False), n_passages)

    def match(self, instruction: str) -> Match:
        """BM25 ranks; the score is the share of the instruction's idf mass that a passage holds.

        All zero when no word of the instruction is content.
        """
        bm25 = np.zeros(self.n_passages, np.float32)
        covered = np.zeros(self.n_passages, np.float32)
        wanted = list(dict.fromkeys(terms(instruction)))
        if self._index is None or not wanted:
            return Match(bm25, covered)
        names, mass, found = name_terms(instruction), 0.0, []
        for term in wanted:
            token = self._index.vocab_dict.get(term)
            holders = self._holders(token)
            weight = self._idf(len(holders)) * (NAME_WEIGHT if term in names else 1.0)
            covered[holders] += weight
            mass += weight
            if token is not None:
                found.append(token)
        if found:
            bm25 = self._index.get_scores(found)
        return Match(bm25, covered / np.float32(mass))

    def _idf(self, holders: float) -> float:
        """Of a word in so many passages, alike at every length of the context."""
        n = self.n_passages
        if n > REGION:
            holders = max(holders * REGION / n, min(holders, LOCAL))
            n = REGION
        return min(float(np.log1p((n - holders + 0.5) / (holders + 0.5))), IDF_CAP)

    def _holders(self, token: int | None) -> np.ndarray:
        """Passages that hold a token: the column of bm25s' sparse matrix (lucene: no zeros)."""
        if token is None:
            return np.empty(0, np.int32)
        bounds = self._index.scores["indptr"]
        return self._index.scores["indices"][bounds[token] : bounds[token + 1]]
