"""How a number is said to a person."""


def counted(number: int, what: str) -> str:
    """A number and what it counts: `what` is one of them.

    >>> counted(1, "event"), counted(1_234, "batch"), counted(0, "record of the input")
    ('1 event', '1,234 batches', '0 records of the input')
    """
    noun, space, rest = what.partition(" ")
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{number:,} {noun}{ending}{space}{rest}"
