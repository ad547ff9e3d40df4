"""What a value of CSV is to Spark's reader, as Spark 4 says it (tests/spark/test_two_engines.py asks it), by type."""

from __future__ import annotations

from typing import Any, Final

DEAD: Final = object()  # a dead letter
TIME = "2026-01-01T00:00:00Z"
US = 1_767_225_600_000_000
HOUR = 3_600_000_000

VALUES: dict[str, dict[str, Any]] = {
    "string": {
        "": None, '""': None, " x ": " x ", '"x"': "x", ' "x" ': ' "x" ', '"x" ': "x", '"a\\"b"': 'a"b', 'a"b': 'a"b',
        "a\\b": "a\\b", "a\\,b": DEAD, '"a,b"': "a,b", '"a\\\\"': "a\\", 'a""b': 'a""b', '\\"a': '\\"a',
        '"\\n"': "\\n", "a\tb": "a\tb", "'a,b'": DEAD, "#x": "#x", "null": "null", '"a\\\\b"': "a\\b", '"a\\b"': "a\\b",
        "\u00a0x": "\u00a0x", '"abc': DEAD, "é": "é",
    },
    "long": {
        "5": 5, "+5": 5, "-5": -5, " 5": DEAD, "5 ": DEAD, "05": 5, "5.0": DEAD, "1e3": DEAD, '""': None, '"5"': 5, "٥": 5,
        "9223372036854775807": 2**63 - 1, "9223372036854775808": DEAD, "-": DEAD, "0x5": DEAD, "5_0": DEAD, "-0": 0,
        "-9223372036854775808": -(2**63),
    },
    "integer": {"5": 5, "2147483647": 2**31 - 1, "2147483648": DEAD, "-2147483648": -(2**31)},
    "double": {
        "5": 5.0, "+5": 5.0, ".5": 0.5, "5.": 5.0, " 5": 5.0, "5 ": 5.0, "1e3": 1000.0, "1E3": 1000.0, "nan": DEAD,
        "Inf": DEAD, "inf": DEAD, "Infinity": DEAD, "-Infinity": DEAD, "1e999": DEAD, "5d": 5.0, "5f": 5.0, "": None,
        '"5"': 5.0, "1e-400": 0.0, "-0.0": -0.0, "5_0": DEAD, "٥": DEAD, "1e+3": 1000.0, "+Inf": DEAD, "0.1": 0.1,
    },
    "boolean": {
        "true": True, "TRUE": True, "True": True, "t": DEAD, "1": DEAD, "yes": DEAD, "false": False, " true": DEAD,
        "FALSE": False, "": None,
    },
    "timestamp": {
        "2026-01-01": US, "2026-01-01T00:00:00": US, "2026-01-01 00:00:00": US, "2026-01-01 00:00": US,
        "2026-01-01T00": DEAD, "2026-01-01T00:00:00+01:00": US - HOUR, "2026-01-01T00:00:00+0100": US - HOUR,
        "2026-01-01T00:00:00+01": DEAD, "2026-01-01T00:00:00 +01:00": US - HOUR, "2026-01-01T00:00:00.1Z": US + 100_000,
        "2026-01-01T00:00:00.123456Z": US + 123_456, "2026-01-01T00:00:00.1234567Z": DEAD,
        "2026-01-01T00:00:00.123456000Z": US + 123_456, "2026": US, "2026-01": US, "2026-1-1": US,
        "2026-01-01T0:0:0Z": US, "2026-01-01T24:00:00Z": DEAD, "2026-01-01T23:59:60Z": DEAD, "2026-02-29": DEAD,
        "20260101": DEAD, "2026-01-01T00:00:00 UTC": US, " 2026-01-01": US, "2026-01-01 ": US, "12026-01-01": DEAD,
        "T00:00": DEAD, "2026-01-01T00:00:00-00:00": US, "": None,
        "2026-01-01T00:00:00+18:00": US - 18 * HOUR, "2026-01-01T00:00:00+18:01": DEAD, "2026-01-01T00:00:00.Z": DEAD,
        "2026-01-01T00:00:00.12345Z": US + 123_450, "2026-01-01T": US,
    },
}  # fmt: skip
# what Spark reads all the same, and is a dead letter without it: quotes that stand where none can, a few words for numbers
ONLY_SPARK = {
    "string": ['"a""b"', '"a"b', '""""', '"a" b'],
    "double": ["0x1p3"],
    "timestamp": ["2026-01-01T00:00:00Europe/Berlin", "2026-01-01t00:00:00z"],
}
