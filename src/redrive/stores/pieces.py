"""An index of texts for stores that index no parts of a text: every place in a text begins a piece of eight characters.

Whoever looks for a part of a text looks for the pieces of the part: of all that have these, few have it elsewhere. A
part that is shorter than a piece is the beginning of one. Longer pieces cost as much as trigrams, since there are as
many of them, and name far fewer letters each.
"""

from __future__ import annotations

SPAN = 8  # characters of a piece
SHORTEST = 3  # of what is looked for by its pieces: fewer characters are in nearly every letter
_MOST = 100_000  # characters of a text that are found; what is shown of a body is far less


def pieces(text: str) -> list[str]:
    """What begins at each place of a text."""
    return sorted({text[at : at + SPAN] for at in range(min(len(text), _MOST))})


def pieces_of_part(part: str) -> list[str]:
    """The whole pieces that every text with this part has; none, if it is shorter than a piece."""
    return sorted({part[at : at + SPAN] for at in range(len(part) - SPAN + 1)})
