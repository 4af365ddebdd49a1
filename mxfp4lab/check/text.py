"""What a submission's process says, made fit for a terminal and a log."""

from __future__ import annotations


def plain(said: object, limit: int = 500) -> str:
    """One printable line of at most `limit` characters: whatever could move a cursor or cannot be encoded is escaped.

    Args:
        said: text of an untrusted process.
        limit: characters kept.
    """
    text = " ".join(str(said)[: 4 * limit].split())
    text = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
    return text if len(text) <= limit else text[: limit - 4] + " ..."
