from collections.abc import Callable

from waterclock.changes._written import Form, Written

TEXT: int
NUMBER: int
BOOLEAN: int
JSON: int

class TuplePlan:
    form: Form
    def __init__(self, form: Form, kinds: bytes) -> None: ...
    def row(self, message: bytes, at: int) -> tuple[Written, int] | None: ...
    def fetched(self, value: Callable[[int, int], bytes | None], row: int) -> tuple[Written, int] | None: ...
