"""How numbers of things are written in sentences."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 rule``, ``2 rules``; `plural` where an s is not enough."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
